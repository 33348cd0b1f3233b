// Draws the report from the numbers in #data. Forms no metric: the command did.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const model = data.model, second = data.second;
  const SVG = document.getElementById("patterns").namespaceURI;
  const byId = (id) => document.getElementById(id);

  // ---- Elements and numbers ----

  function make(space, name, attributes, children) {
    const e = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const key in attributes) if (attributes[key] != null) e.setAttribute(key, attributes[key]);
    for (const child of [].concat(children == null ? [] : children)) e.append(child);
    return e;
  }
  const html = (name, attributes, children) => make(null, name, attributes, children);
  const draw = (name, attributes, children) => make(SVG, name, attributes, children);

  function number(v, digits) {
    if (v == null) return "\u2013";
    if (typeof v === "string") return v.replace("inf", "\u221e");
    if (Number.isInteger(v)) return String(v);
    const d = digits || 4;
    return v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e6) ? v.toExponential(d - 2) : String(+v.toPrecision(d));
  }
  const percent = (v) => (v == null ? "\u2013" : (100 * v).toFixed(2) + " %");
  const range = (r, text) => (r && r[0] != null ? text(r[0]) + " to " + text(r[1]) : "");
  const className = (c, name) => (name == null ? String(c) : c + " " + name);

  // ---- Tables, which sort ----

  const LONG = 25; // rows beyond which a table scrolls

  // columns: {title, value(row), text(row), number, short}; a row's value is what it is sorted by, its text what is shown.
  function table(caption, columns, rows) {
    const kind = (c) => (c.number ? "number" : c.short ? "short" : null);
    const body = html("tbody");
    const fill = (list) => body.replaceChildren(...list.map((row) => html("tr", {}, columns.map((c, i) =>
      html(i ? "td" : "th", { scope: i ? null : "row", class: kind(c) },
        c.text ? c.text(row) : c.number ? number(c.value(row)) : String(c.value(row)))))));
    const heads = columns.map((c) => {
      const head = html("th", { scope: "col", class: kind(c), "aria-sort": "none" },
        html("button", { type: "button" }, c.title));
      head.firstChild.addEventListener("click", () => {
        const first = c.number ? "descending" : "ascending", other = c.number ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        heads.forEach((h) => h.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", order);
        fill(sorted(rows, c, order === "ascending" ? 1 : -1));
      });
      return head;
    });
    fill(rows);
    return html("div", { class: rows.length > LONG ? "scroll long" : "scroll", tabindex: "0", role: "region", "aria-label": caption },
      html("table", {}, [html("caption", {}, caption), html("thead", {}, html("tr", {}, heads)), body]));
  }

  // What has no value comes last either way; equal rows stay in their order.
  function sorted(rows, column, sign) {
    const missing = (v) => v == null;
    return rows.slice().sort((a, b) => {
      const x = column.value(a), y = column.value(b);
      if (missing(x) || missing(y)) return missing(x) - missing(y);
      return x < y ? -sign : x > y ? sign : 0;
    });
  }

  // ---- Drawings ----

  const WIDE = 460, HIGH = 320, LEFT = 52, RIGHT = 12, TOP = 34, BOTTOM = 46;

  function steps(low, high) {
    const raw = (high - low) / 5, power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].find((s) => s * power >= raw * 0.999) * power;
    const list = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) list.push(k * step);
    return list;
  }

  // A frame with numbers along its sides: {svg, x, y, add}.
  function chart(about, xTitle, yTitle, x0, x1, y0, y1) {
    const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": about });
    const x = (v) => LEFT + (v - x0) / (x1 - x0) * (WIDE - LEFT - RIGHT);
    const y = (v) => HIGH - BOTTOM - (v - y0) / (y1 - y0) * (HIGH - TOP - BOTTOM);
    const add = (name, attributes, children) => svg.appendChild(draw(name, attributes, children));
    for (const v of steps(x0, x1)) {
      add("line", { class: "grid", x1: x(v), x2: x(v), y1: TOP, y2: HIGH - BOTTOM });
      add("text", { class: "tick", x: x(v), y: HIGH - BOTTOM + 16, "text-anchor": "middle" }, String(+v.toPrecision(6)));
    }
    for (const v of steps(y0, y1)) {
      add("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(v), y2: y(v) });
      add("text", { class: "tick", x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, String(+v.toPrecision(6)));
    }
    add("text", { x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 8, "text-anchor": "middle" }, xTitle);
    add("text", { x: 14, y: (TOP + HIGH - BOTTOM) / 2, "text-anchor": "middle",
      transform: `rotate(-90 14 ${(TOP + HIGH - BOTTOM) / 2})` }, yTitle);
    const frame = () => add("rect", { class: "frame", x: LEFT, y: TOP, width: WIDE - LEFT - RIGHT, height: HIGH - TOP - BOTTOM });
    return { svg, x, y, add, frame };
  }

  // Names over a drawing, each with a piece of what it stands for: [class, shape, name].
  function legend(c, entries) {
    let at = LEFT;
    for (const [kind, shape, name] of entries) {
      if (shape === "bar") c.add("rect", { class: kind, x: at, y: 10, width: 18, height: 12 });
      else c.add("line", { class: kind, x1: at, x2: at + 24, y1: 16, y2: 16 });
      c.add("text", { x: at + 30, y: 20 }, name);
      at += 44 + 6.6 * name.length;
    }
  }

  function bar(c, kind, x0, x1, top, title) {
    if (!(top > 0)) return;
    c.add("rect", { class: kind, x: c.x(x0), y: c.y(top), width: Math.max(c.x(x1) - c.x(x0), 0.5), height: c.y(0) - c.y(top) },
      draw("title", {}, title));
  }

  function path(c, kind, xs, ys) {
    const points = xs.map((v, i) => [c.x(v), c.y(ys[i])]).map((p) => p[0].toFixed(1) + "," + p[1].toFixed(1));
    c.add("polyline", { class: kind, points: points.join(" ") });
  }

  // ---- Calibration ----

  const accuracyOf = (bins, b) => bins.right[b] / bins.count[b];

  function reliability(at) {
    const bins = model.temperatures.bins[at], n = bins.count.length;
    const c = chart("Reliability diagram: accuracy by confidence, " + n + " bins", "confidence", "accuracy", 0, 1, 0, 1);
    for (let b = 0; b < n; b++)
      if (bins.count[b]) bar(c, "bar-pale", b / n, (b + 1) / n, accuracyOf(bins, b), binTitle(bins, b, n));
    c.add("line", { class: "even", x1: c.x(0), y1: c.y(0), x2: c.x(1), y2: c.y(1) });
    marks(c, bins, "mark-first", false);
    if (second) marks(c, second.temperatures.bins[at], "mark-second", true);
    c.frame();
    legend(c, [["bar-pale", "bar", second ? "accuracy, first (dots)" : "accuracy (dots: at the mean)"]].concat(
      second ? [["mark-second", "bar", "second"]] : []));
    byId("reliability").replaceChildren(c.svg);
  }

  const binTitle = (bins, b, n) => `confidence ${number(b / n, 3)} to ${number((b + 1) / n, 3)}: ` +
    `${bins.count[b]} rows, accuracy ${number(accuracyOf(bins, b))}, mean confidence ${number(bins.confidence[b])}`;

  function marks(c, bins, kind, square) {
    const n = bins.count.length;
    for (let b = 0; b < n; b++) {
      if (!bins.count[b]) continue;
      const x = c.x(bins.confidence[b]), y = c.y(accuracyOf(bins, b)), title = draw("title", {}, binTitle(bins, b, n));
      if (square) c.add("rect", { class: kind, x: x - 4, y: y - 4, width: 8, height: 8 }, title);
      else c.add("circle", { class: kind, cx: x, cy: y, r: 4.5 }, title);
    }
  }

  function confidence(at) {
    const bins = model.temperatures.bins[at], n = bins.count.length;
    const right = bins.right, wrong = bins.count.map((v, b) => v - right[b]);
    const sum = (list) => list.reduce((a, b) => a + b, 0), rights = sum(right), wrongs = sum(wrong);
    const most = Math.max(...right.map((v) => v / (rights || 1)), ...wrong.map((v) => v / (wrongs || 1)));
    const c = chart("Histogram of confidence: right rows solid, wrong rows hatched", "confidence", "share of rows", 0, 1, 0, most);
    for (let b = 0; b < n; b++) {
      const middle = (b + 0.5) / n, where = `${number(b / n, 3)} to ${number((b + 1) / n, 3)}: `;
      bar(c, "bar-first", (b + 0.08) / n, middle, right[b] / (rights || 1), where + right[b] + " right");
      bar(c, "bar-second", middle, (b + 0.92) / n, wrong[b] / (wrongs || 1), where + wrong[b] + " wrong");
    }
    c.frame();
    legend(c, [["bar-first", "bar", "right: " + rights], ["bar-second", "bar", "wrong: " + wrongs]]);
    byId("confidence").replaceChildren(c.svg);
  }

  function at(place) {
    const t = model.temperatures, names = [["log_loss", "Log loss"], ["ece", "ECE"], ["mce", "MCE"]];
    const value = number(t.temperature[place], 3);
    byId("temperature").value = place;
    byId("temperature").setAttribute("aria-valuetext", "temperature " + value);
    byId("at-temperature").textContent = value;
    byId("at").replaceChildren(...names.map(([key, title]) => html("div", {}, [html("dt", {}, title),
      html("dd", { id: "at-" + key }, number(t[key][place]) + (second ? "; second " + number(second.temperatures[key][place]) : ""))])));
    reliability(place);
    confidence(place);
  }

  function calibration() {
    const t = model.temperatures, slider = byId("temperature"), usual = (t.temperature.length - 1) / 2;
    const finite = (v) => (typeof v === "number" ? v : Infinity);
    const best = t.log_loss.reduce((b, v, i) => (finite(v) < finite(t.log_loss[b]) ? i : b), usual);
    slider.min = 0;
    slider.max = t.temperature.length - 1;
    slider.addEventListener("input", () => at(+slider.value));
    byId("least").addEventListener("click", () => at(best));
    byId("usual").addEventListener("click", () => at(usual));
    at(usual);
  }

  // ---- Risk by coverage ----

  function risk() {
    const a = model.risk_coverage, b = second && second.risk_coverage;
    const most = Math.max(...a.risk, ...(b ? b.risk : []), 1e-9);
    const c = chart("Risk by coverage: AURC " + number(model.metrics.aurc), "coverage", "error rate", 0, 1, 0, most);
    path(c, "line-first", a.coverage, a.risk);
    if (b) path(c, "line-second", b.coverage, b.risk);
    c.frame();
    legend(c, [["line-first", "line", (b ? "first, " : "") + "AURC " + number(model.metrics.aurc)]].concat(
      b ? [["line-second", "line", "second, AURC " + number(second.metrics.aurc)]] : []));
    byId("risk").replaceChildren(c.svg);
    const columns = [{ title: "coverage", number: true, value: (v) => v, text: (v) => `${100 * v} %` },
      { title: second ? "first" : "error rate", number: true, value: (v) => riskAt(a, v), text: (v) => percent(riskAt(a, v)) }];
    if (b) columns.push({ title: "second", number: true, value: (v) => riskAt(b, v), text: (v) => percent(riskAt(b, v)) });
    byId("coverages").replaceChildren(table("Error rate at a coverage", columns, [0.5, 0.7, 0.8, 0.9, 0.95, 1]));
  }

  // At the last point that is not beyond a coverage.
  function riskAt(curve, coverage) {
    const beyond = curve.coverage.findIndex((v) => v > coverage + 1e-9);
    return curve.risk[(beyond < 0 ? curve.risk.length : beyond) - 1];
  }

  // ---- Outliers ----

  function outliers() {
    const o = data.ood;
    if (!o) return;
    byId("ood").hidden = false;
    byId("ood-text").textContent = `${o.inside} rows of ${model.file} (inside) and ${o.outside} of ${o.file} (outside), told apart ` +
      "by scores of which large means inside.";
    byId("ood-table").replaceChildren(table("How well each score tells them apart", [
      { title: "score", value: (r) => r[0] },
      ...[["auroc", "AUROC"], ["aupr_in", "AUPR in"], ["aupr_out", "AUPR out"], ["fpr95", "FPR95"],
        ["detection_error", "detection error"]].map(([key, title]) => ({ title, number: true, value: (r) => r[1][key] })),
    ], Object.entries(o.scores)));
    for (const [name, h] of Object.entries(o.histograms)) byId("ood-charts").append(outlierChart(name, h, o));
  }

  function outlierChart(name, h, o) {
    const n = h.inside.length, wide = h.high > h.low ? (h.high - h.low) / n : 1 / n;
    const most = Math.max(...h.inside.map((v) => v / o.inside), ...h.outside.map((v) => v / o.outside));
    const c = chart(`Histogram of ${name}: inside solid, outside hatched`, name, "share of rows", h.low, h.low + n * wide, 0, most);
    h.inside.forEach((v, i) => {
      const from = h.low + i * wide;
      bar(c, "bar-first", from, from + wide / 2, v / o.inside, v + " inside");
      bar(c, "bar-second", from + wide / 2, from + wide, h.outside[i] / o.outside, h.outside[i] + " outside");
    });
    c.frame();
    legend(c, [["bar-first", "bar", "inside"], ["bar-second", "bar", "outside"]]);
    return html("figure", {}, [html("figcaption", {}, name), c.svg]);
  }

  // ---- Lists ----

  function lists() {
    const target = { title: "true class", value: (r) => r.target, text: (r) => className(r.target, r.target_name) };
    const taken = { title: "taken for", value: (r) => r.predicted, text: (r) => className(r.predicted, r.predicted_name) };
    const column = (key, title) => ({ title, number: true, value: (r) => r[key] });
    const fill = (id, list, none, caption, columns) =>
      byId(id).replaceChildren(list.length ? table(caption, columns, list) : html("p", {}, none));
    fill("confused", model.confused, "Every row is right.", "True class and the class it was taken for",
      [target, taken, column("count", "rows"),
        { title: "of the class", number: true, value: (r) => r.share, text: (r) => percent(r.share) }]);
    fill("errors", model.errors, "Every row is right.", "Wrong rows, the most confident first",
      [{ title: "row", short: true, value: (r) => r.row }, target, taken, column("confidence", "confidence"),
        column("probability", "p of the true class")]);
    fill("classes", model.per_class, "", "Classes that occur", [
      { title: "class", value: (r) => r.class, text: (r) => className(r.class, r.name) }, column("rows", "rows"),
      column("predicted", "predicted"), column("precision", "precision"), column("recall", "recall"), column("f1", "F1"),
      column("confidence", "mean confidence")]);
    byId("classes-note").textContent = `${model.per_class.length} of ${model.classes} classes` +
      (model.per_class.length < model.classes ? ": those with rows, or the most of them." : ".") + " A heading sorts.";
  }

  function metrics() {
    const rows = data.definitions, ranges = (m) => (d) => range(m.intervals[d.key], (v) => number(v));
    const columns = [{ title: "metric", value: (d) => (d.key === "top_k_accuracy" ? `top-${model.k} accuracy` : d.title) },
      { title: second ? "first" : "value", number: true, value: (d) => model.metrics[d.key] },
      { title: "95 %", short: true, value: ranges(model) }];
    if (second) columns.push({ title: "second", number: true, value: (d) => second.metrics[d.key] },
      { title: "95 %", short: true, value: ranges(second) });
    byId("metrics").replaceChildren(table("Metrics of the rows", columns.concat({ title: "what it is", value: (d) => d.about }), rows));
  }

  function comparison() {
    const c = data.comparison;
    if (!c) return;
    byId("comparison").hidden = false;
    byId("comparison-text").textContent = `First: ${model.file}. Second: ${second.file}. ${c.test}: p = ${number(c.p)}, of the ` +
      `${c.right.first + c.right.second} rows that one alone has right. Accuracy, second less first: ` +
      `${number(c.accuracy.difference)} (${range(c.accuracy.interval, number)}). Log loss: ${number(c.log_loss.difference)} ` +
      `(${range(c.log_loss.interval, number)}).`;
    byId("comparison-table").replaceChildren(table("Rows that are right", [{ title: "right", value: (r) => r[0] },
      { title: "rows", number: true, value: (r) => r[1] }], [["both", c.right.both], ["the first alone", c.right.first],
      ["the second alone", c.right.second], ["neither", c.right.neither]]));
  }

  // ---- All of it ----

  function card(title, value, below) {
    return html("div", { class: "card" }, [html("span", {}, title), html("b", {}, value), html("span", {}, below)]);
  }

  function summary() {
    const m = model.metrics, i = model.intervals, name = data.title || "Report on " + model.file;
    document.title = byId("title").textContent = name;
    byId("about").textContent = `${model.file}: ${model.rows} row${model.rows === 1 ? "" : "s"} of ${model.classes} classes, ` +
      model.type + (model.left_out ? `; ${model.left_out} left out` : "") +
      (model.temperature !== 1 ? `; temperature ${number(model.temperature)}` : "") + ".";
    byId("made").textContent = `${data.program} ${data.version}`;
    byId("summary").append(card("Accuracy", percent(m.accuracy), range(i.accuracy, (v) => (100 * v).toFixed(2)) + " %"),
      card(`Top-${model.k} accuracy`, percent(m.top_k_accuracy), ""),
      card("Log loss", number(m.log_loss), range(i.log_loss, number)),
      card("ECE", number(m.ece), model.bins.count.length + " bins"),
      card("AUROC of right", number(m.auroc), "by confidence"), card("AURC", number(m.aurc), "E-AURC " + number(m.e_aurc)));
  }

  summary();
  comparison();
  calibration();
  risk();
  outliers();
  lists();
  metrics();
})();
