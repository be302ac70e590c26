"use strict";
// Draws the report's charts and links them: cells picked in one chart light up in all of them.
(function () {
  const content = JSON.parse(document.getElementById("content").textContent);
  const tables = content.tables.map(function (table) {
    return table.columns[0].map(function (_, row) {
      const one = {};
      table.fields.forEach(function (field, k) { one[field] = table.columns[k][row]; });
      return one;
    });
  });
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // element id -> { view, rows }
  let highlighted = [];
  let source = null;
  let metric = content.metric;

  function style(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // How text and axes look; a value that names a variable of the page's styles takes its colour now.
  function look(narrow) {
    const config = JSON.parse(JSON.stringify(content.look), function (_, value) {
      return typeof value === "string" && value.startsWith("--") ? style(value) : value;
    });
    config.legend.labelLimit = narrow ? 250 : 420;
    if (narrow) {
      config.legend.columns = 1;
      config.legend.layout.top.direction = "vertical";
    }
    return config;
  }

  // A specification names its tables; here they get their rows back. On dark paper, dark colours give way.
  function filled(spec, rows) {
    return JSON.parse(JSON.stringify(spec), function (key, value) {
      if (dark.matches && typeof value === "string" && content.on_dark[value]) return content.on_dark[value];
      if (key !== "data" || !value || value.table === undefined) return value;
      rows.push.apply(rows, tables[value.table]);
      return { values: tables[value.table] };
    });
  }

  function highlight(cells, from) {
    highlighted = cells;
    source = cells.length ? from : null;
    const changes = [];
    drawn.forEach(function (one) {
      if (one.linked) changes.push(one.view.signal("highlight", cells).runAsync());
    });
    document.querySelectorAll("tr[data-cell]").forEach(function (row) {
      row.classList.toggle("lit", cells.indexOf(Number(row.dataset.cell)) >= 0);
    });
    const bar = document.getElementById("picked");
    bar.hidden = cells.length === 0;
    bar.querySelector("span").textContent =
      cells.length === 1 ? (content.labels[cells[0]] || "1 configuration") : cells.length + " configurations";
    document.documentElement.dataset.highlighted = cells.join(" ");
    return Promise.all(changes);
  }

  function listen(id, one) {
    const signals = one.view.getState().signals || {};
    one.linked = "highlight" in signals;
    if ("picked" in signals) {
      one.view.addSignalListener("picked", function (_, value) {
        const cells = value && value.cell ? value.cell.map(Number) : [];
        if (cells.length || source === id) highlight(cells, id);
      });
    }
    if ("brush" in signals) {
      one.view.addSignalListener("brush", function (_, value) {
        if (!value || !value.x || !value.y) {
          if (source === id + " box") highlight([], null);
          return;
        }
        const inside = one.rows.filter(function (row) {
          return row.cell !== undefined && row.x >= Math.min.apply(null, value.x) &&
            row.x <= Math.max.apply(null, value.x) && row.y >= Math.min.apply(null, value.y) &&
            row.y <= Math.max.apply(null, value.y);
        });
        const cells = Array.from(new Set(inside.map(function (row) { return row.cell; })));
        highlight(cells, id + " box");
      });
    }
  }

  async function draw(chart) {
    const element = document.getElementById(chart.id);
    const old = drawn.get(chart.id);
    if (old) old.view.finalize();
    const rows = [];
    const spec = filled(chart.variants[metric] || chart.variants[""], rows);
    const result = await vegaEmbed(element, spec, {
      actions: false, renderer: "svg", config: look(element.clientWidth < 560),
      tooltip: { theme: dark.matches ? "dark" : "light" }
    });
    const one = { view: result.view, rows: rows, linked: false };
    drawn.set(chart.id, one);
    listen(chart.id, one);
    if (one.linked && highlighted.length) await one.view.signal("highlight", highlighted).runAsync();
    if (spec.description) element.setAttribute("aria-label", spec.description);
    element.dataset.drawn = "yes";
  }

  function showScale() {
    const ends = content.scales[metric];
    if (!ends) return;
    document.getElementById("scale-low").textContent = ends[0];
    document.getElementById("scale-high").textContent = ends[1];
  }

  async function drawAll(charts) {
    showScale();
    for (const chart of charts) await draw(chart);
    document.documentElement.dataset.ready = "yes";
  }

  document.querySelectorAll("tr[data-cell]").forEach(function (row) {
    row.tabIndex = 0;
    function pick() {
      const cell = Number(row.dataset.cell);
      highlight(source === "table" && highlighted[0] === cell ? [] : [cell], "table");
    }
    row.addEventListener("click", pick);
    row.addEventListener("keydown", function (event) { if (event.key === "Enter") pick(); });
  });
  document.getElementById("clear").addEventListener("click", function () { highlight([], null); });
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") highlight([], null); });
  const chooser = document.getElementById("metric");
  if (chooser) {
    chooser.addEventListener("change", function () {
      metric = chooser.value;
      drawAll(content.charts.filter(function (chart) { return chart.variants[metric]; }));
    });
  }
  // Paper is light, and a browser tells so while it prints: charts that are drawn anew then would be cut off.
  let printing = false;
  let drawnDark = dark.matches;
  function follow() {
    if (printing || window.matchMedia("print").matches || dark.matches === drawnDark) return;
    drawnDark = dark.matches;
    drawAll(content.charts);
  }
  dark.addEventListener("change", follow);
  window.addEventListener("beforeprint", function () { printing = true; });
  window.addEventListener("afterprint", function () { printing = false; follow(); });
  window.lagsweepReport = { highlight: highlight, views: drawn };
  drawAll(content.charts);
})();
