"""A browser for tests, driven through chromedriver's WebDriver interface with the standard library alone.

The specification is https://www.w3.org/TR/webdriver2; the paths that begin with ``goog`` and ``se`` are
chromedriver's own.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_LONG = 120.0  # a machine that is busy takes its time


class BrowserError(RuntimeError):
    """What chromedriver said went wrong."""


class Browser:
    """One headless Chromium with an empty profile; use it as a context manager."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._stack = contextlib.ExitStack()
        self._profile = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        )
        self._start_driver()
        options = {
            "binary": _program("chromium"),
            "args": [
                *ARGUMENTS,
                f"--user-data-dir={self._profile / 'user'}",
                f"--window-size={width},{height}",
            ],
        }
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        except BaseException:
            self._stack.close()
            raise
        self._session = f"/session/{answer['sessionId']}"
        self._stack.callback(self._quit)

    def _start_driver(self) -> None:
        log = self._profile / "chromedriver.log"
        driver = subprocess.Popen(
            [_program("chromedriver"), "--port=0", f"--log-path={log}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._stack.callback(_end, driver)
        for line in driver.stdout:
            if "started successfully on port" in line:
                self._port = int(line.rstrip().rstrip(".").rpartition(" ")[2])
                return
        raise BrowserError("chromedriver did not start")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _quit(self) -> None:
        with contextlib.suppress(BrowserError, OSError):
            self._send("DELETE", self._session)

    def _send(self, method: str, path: str, body: object = None) -> object:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_LONG)
        try:
            text = json.dumps(body if body is not None else {}) if method == "POST" else None
            connection.request(method, path, text, {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value and "message" in value:
            raise BrowserError(f"{value['error']}: {value['message']}")
        return value

    def _post(self, path: str, body: object = None) -> object:
        return self._send("POST", f"{self._session}/{path}", body)

    # What a test does

    def open(self, path: Path) -> None:
        """Open a file."""
        self._post("url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments: object) -> object:
        """Run a script's body and give what it returns."""
        return self._post("execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, *arguments: object, seconds: float = 60.0) -> object:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            value = self.run(f"return {condition};", *arguments)
            if value:
                return value
            time.sleep(0.05)
        raise BrowserError(f"not within {seconds} s: {condition}")

    def mouse(self, *moves: tuple[str, float, float] | tuple[str]) -> None:
        """Use the mouse: ("move", x, y) in the viewport, ("down",), ("up",)."""
        actions = []
        for what, *at in moves:
            if what == "move":
                actions.append(
                    {
                        "type": "pointerMove",
                        "duration": 30,
                        "x": round(at[0]),
                        "y": round(at[1]),
                        "origin": "viewport",
                    }
                )
            else:
                actions.append({"type": {"down": "pointerDown", "up": "pointerUp"}[what], "button": 0})
        source = {
            "type": "pointer",
            "id": "mouse",
            "parameters": {"pointerType": "mouse"},
            "actions": actions,
        }
        self._post("actions", {"actions": [source]})

    def click(self, x: float, y: float) -> None:
        """Click a point of the viewport."""
        self.mouse(("move", x, y), ("down",), ("up",))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press, move and release."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        self.mouse(("move", *start), ("down",), ("move", *middle), ("move", *end), ("up",))

    def emulate(self, width: int, height: int, *, phone: bool = False, dark: bool = False) -> None:
        """Take a screen's size, and what the reader prefers."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def devtools(self, command: str, **parameters: object) -> object:
        """Send a command of the DevTools protocol."""
        return self._post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Take a picture of the page."""
        answer = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def console(self) -> list[dict]:
        """Return what the console said since the last time."""
        return self._post("se/log", {"type": "browser"})

    def requests(self) -> list[str]:
        """Return the addresses of everything that was fetched since the last time."""
        found = []
        for entry in self._post("se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BrowserError(f"{name} is not installed; Debian has it as chromium and chromium-driver")
    return found


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
