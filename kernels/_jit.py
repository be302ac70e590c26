"""The one way a kernel is compiled: ``@jit``, and where its machine code is kept.

Numba's own file cache keys a function by the file it stands in, so it misses an edit in another file of
``kernels/`` (numba/numba#1833, #9304), and it ignores bounds checks and the optimization level. Our cache
folder therefore carries a digest of everything that shapes the code: all sources of ``kernels/``, Numba's
and llvmlite's versions, ``NUMBA_BOUNDSCHECK`` and ``NUMBA_OPT``. The folder lies in the user's
cache folder (``LAGSWEEP_CACHE_DIR`` names another), never in site-packages, and only our own functions use
it: ``NUMBA_CACHE_DIR`` and the caches of the user's functions stay as they are.

A file of the cache that was cut or altered is not run: the kernel is compiled again, with one note. A folder
that cannot be written (a full disk) means no cache, with one note.

Of all files in ``kernels/`` this one alone reads files and the environment.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config as numba_config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.compiler import Compiler

_KERNELS_PACKAGE = __package__


def user_cache_folder() -> Path:
    """Name the folder that holds all of our compiled code, by the platform's custom.

    Returns
    -------
    Path
        ``LAGSWEEP_CACHE_DIR`` if set, else ``lagsweep/numba`` under the user's cache folder.
    """
    named = os.environ.get("LAGSWEEP_CACHE_DIR")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "lagsweep" / "numba"


def kernels_digest() -> str:
    """Digest what shapes the machine code: every source of ``kernels/``, versions and compile flags.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for part in (
        numba.__version__,
        llvmlite.__version__,
        sys.version,
        f"boundscheck={numba_config.BOUNDSCHECK}",  # type: ignore[attr-defined]
        f"opt={numba_config.OPT}",  # type: ignore[attr-defined]
    ):
        digest.update(str(part).encode() + b"\0")
    return digest.hexdigest()[:32]


@cache
def cache_folder() -> Path | None:
    """Return the folder for this exact code, made if needed; None, with one warning, where none can be."""
    folder = user_cache_folder() / kernels_digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _tell_unwritable(folder, str(error))
        return None
    return folder


class _Locator(_CacheLocator):
    """Put a kernel's machine code into :func:`cache_folder`, told apart by module and name."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file = py_file
        # Numba names a cache file by the bare module name: two rooms may hold files of one name.
        self._place = f"{py_func.__module__.removeprefix(_KERNELS_PACKAGE)}.{py_func.__code__.co_firstlineno}"
        self._folder = cache_folder()

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        # The folder's name already is the stamp of every source.
        return "in-folder-name"

    def get_disambiguator(self) -> str:
        return self._place

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        return cls(py_func, py_file) if cache_folder() is not None else None


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  (Numba's own class attribute)


class _SealedFiles(IndexDataCacheFile):
    """A kernel's files in the cache: code behind its digest, and none of a file that was cut or altered.

    Numba unpickles and runs whatever lies there. What cannot be read is as if it were not there: the kernel
    is compiled again and the file replaced.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())
        except Exception:  # of a damaged pickle, anything
            _tell_unreadable(self._cache_path)
            return {}

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def _load_data(self, name: str) -> Any:
        sealed = Path(self._data_path(name)).read_bytes()
        digest, content = sealed[:32], sealed[32:]
        if hashlib.sha256(content).digest() != digest:
            _tell_unreadable(self._cache_path)
            raise OSError(f"{name} was cut or altered")  # which Numba takes for a file that is gone
        return pickle.loads(content)


class _KernelCache(FunctionCache):
    _impl_class = _CacheImpl

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_file = _SealedFiles(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, or say once that it cannot be kept: the kernel runs all the same."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _tell_unwritable(Path(self._cache_path), error.strerror or str(error))


@cache
def _tell_unreadable(folder: str) -> None:
    warnings.warn(
        f"LAGSWEEP_CACHE_DIR: some compiled kernels in {folder} were cut or altered and are compiled again.",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _tell_unwritable(folder: Path, reason: str) -> None:
    warnings.warn(
        f"LAGSWEEP_CACHE_DIR: compiled kernels cannot be kept in {folder} ({reason}). They are compiled "
        "again in each process; name a writable folder to change that.",
        RuntimeWarning,
        stacklevel=2,
    )


class _DistinctArrays(Compiler):
    """Compile a function whose arrays share no memory: what is read of one outlives a write to another.

    Numba has the flag but no option for it.
    """

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, args: Any, *rest: Any) -> None:
        return_type, flags, local_types = rest
        flags.noalias = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, local_types)


def jit(
    *args: Any, inline: bool = False, nogil: bool = True, counted: bool = True, distinct: bool = False
) -> Any:
    """Compile a kernel with the project's settings: no fastmath, no GIL, cached by content.

    Parameters
    ----------
    inline : bool
        LLVM inlines it at every call site; for small helpers. Numba's own inlining (``inline="always"``)
        copies the source into each caller and types it there again: as fast, but longer to compile.
    nogil : bool
        Release the GIL while the kernel runs, so that threads run kernels in parallel.
    counted : bool
        False for a kernel that makes no array: references to its arrays are then not counted, which saves
        two locked instructions wherever an array is handed to a helper. The caller holds them anyway.
    distinct : bool
        No two arrays given to the kernel share memory, apart from what it only reads. Of one that breaks this
        the results are undefined.

    Notes
    -----
    ``NUMBA_DISABLE_JIT=1`` leaves the plain Python function, so the same source is its own slow form.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        # Nothing calls a kernel through a C pointer: without that wrapper it compiles faster.
        options: dict[str, Any] = {"no_cfunc_wrapper": True} | ({} if counted else {"_nrt": False})
        if distinct:
            options["pipeline_class"] = _DistinctArrays
        dispatcher = numba.njit(nogil=nogil, forceinline=inline, error_model="python", **options)(function)
        # A kernel file that is run as a script has another module's name: its code would be found again under
        # that name, by a process that has no such module.
        ours = function.__module__.startswith(f"{_KERNELS_PACKAGE}.")
        if ours and not inline and hasattr(dispatcher, "_cache") and cache_folder() is not None:
            dispatcher._cache = _KernelCache(dispatcher.py_func)
        return dispatcher

    return decorate(args[0]) if args else decorate


def kernels_are_compiled() -> bool:
    """Tell whether kernels are compiled in this process, or run as the plain Python that they are."""
    return not numba_config.DISABLE_JIT  # type: ignore[attr-defined]


def code_is_kept(kernel: Any) -> bool:
    """Tell whether a kernel's machine code is in the cache, or nothing is compiled at all.

    Parameters
    ----------
    kernel : callable
        What :func:`jit` gave; not an inlined one.

    Returns
    -------
    bool
        False before its first call ever with this exact source, and without a cache.
    """
    if numba_config.DISABLE_JIT:  # type: ignore[attr-defined]
        return True
    kept = kernel._cache
    # The index file names the compiled signatures; only a cache of ours has one.
    return isinstance(kept, _KernelCache) and bool(kept._cache_file._load_index())
