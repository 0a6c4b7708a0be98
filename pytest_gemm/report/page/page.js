"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SERIES = 8;
  const SHAPES = data.shapes;
  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];

  // Figures: drawn when they come into sight.

  const style = {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, gridDash: [], tickSize: 4,
            labelLimit: 150, titleLimit: 300, labelFlush: false, labelSeparation: 5 },
    legend: { orient: "bottom", labelFontSize: 12, labelLimit: 220, symbolSize: 80, title: null },
  };

  async function draw(place, spec, rows, height) {
    const narrow = place.clientWidth < 480;
    const legend = { ...style.legend, columns: narrow ? 1 : 2, labelLimit: narrow ? 240 : 190 };
    const whole = { height: height - 70, ...spec, data: { values: rows }, config: { ...style, legend },
                    autosize: { type: "fit-x", contains: "padding" } };
    await vegaEmbed(place, whole, { mode: "vega-lite", renderer: "svg", actions: false, ast: true,
                                    tooltip: { theme: "page", disableDefaultStyle: true } });
    place.style.minHeight = "";
    place.dataset.drawn = "yes";
  }

  function only(spec, names) {
    const copy = structuredClone(spec);
    for (const part of [copy, ...(copy.layer || [])]) {
      const { color, shape } = part.encoding || {};
      if (color?.scale?.domain) {
        color.scale = { domain: names, range: names.map((_, i) => `var(--series-${i + 1})`) };
      }
      if (shape) {
        shape.scale = { domain: names, range: SHAPES.slice(0, names.length) };
      }
    }
    return copy;
  }

  function drawFigure(place) {
    const figure = data.figures[place.dataset.figure];
    const show = (names) => draw(place, only(figure.spec, names),
      figure.rows.filter((row) => names.includes(row[figure.choice])), figure.height);
    if (!figure.choice) return draw(place, figure.spec, figure.rows, figure.height);
    if (figure.series.length > SERIES) offer(place, figure, show);
    return show(figure.series.slice(0, SERIES));
  }

  function offer(place, figure, show) {
    const box = place.parentElement.querySelector(".options");
    const chosen = new Set(figure.series.slice(0, SERIES));
    for (const name of figure.series) {
      const label = add(box, "label");
      const input = add(label, "input");
      input.type = "checkbox";
      input.checked = chosen.has(name);
      label.append(" ", name);
      input.addEventListener("change", () => {
        if (input.checked) chosen.add(name); else chosen.delete(name);
        for (const other of box.querySelectorAll("input")) {
          other.disabled = chosen.size >= SERIES && !other.checked;
        }
        show(figure.series.filter((other) => chosen.has(other)));
      });
      input.disabled = !input.checked;
    }
  }

  const sight = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) {
        sight.unobserve(target);
        drawFigure(target);
      }
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".plot[data-figure]").forEach((place) => sight.observe(place));

  // One case: its times, old and new.

  function add(parent, tag, text = "", name = "") {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    if (name) element.className = name;
    parent.append(element);
    return element;
  }

  function unitOf(value) {
    return UNITS.find(([scale]) => value >= scale) || UNITS[UNITS.length - 1];
  }

  function told(value) {
    const [scale, unit] = unitOf(value);
    return `${(value / scale).toPrecision(4)} ${unit}`;
  }

  function dateOf(seconds) {
    return new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  }

  // As short as they can be told apart: labels of an axis.
  function datesOf(whole) {
    const days = whole.map((date) => date.slice(0, 10));
    if (new Set(days).size === days.length) return days;
    const years = new Set(whole.map((date) => date.slice(0, 4)));
    return years.size === 1 ? whole.map((date) => date.slice(5)) : whole;
  }

  function drawCase(place, shown) {
    if (!shown.now || !shown.history.length) return;
    const [scale, unit] = unitOf(shown.now[0]);
    const dates = datesOf(shown.history.map(([at]) => dateOf(at)));
    const past = shown.history.map(([, median, low, high, origin, ...deciles], order) => {
      const [program, epoch, commit, anchor] = data.origins[origin];
      const date = dates[order] + (anchor ? ` (${anchor})` : "");
      return { date, order, program, epoch, commit, deciles, now: 0, time: median / scale, low: low / scale,
               high: high / scale, time_text: told(median), between: `${told(low)} to ${told(high)}` };
    });
    const [median, low, high] = shown.now;
    // What is new, of another compiler say, is no continuation.
    const epoch = shown.state === "new" ? "new" : past.at(-1).epoch;
    const now = { date: "this run", order: past.length, epoch, program: "", commit: "", now: 1,
                  time: median / scale, low: low / scale, high: high / scale,
                  time_text: told(median), between: `${told(low)} to ${told(high)}` };
    panel(place, "Stored sessions and this run", "history", [...past, now], unit, 280);
    if (!shown.samples.length) return;
    const old = past.filter((row) => row.deciles.length).slice(-6).map((row) => ({
      ...row, low: row.deciles[0] / scale, high: row.deciles[1] / scale,
      between: `deciles ${told(row.deciles[0])} to ${told(row.deciles[1])}` }));
    const samples = shown.samples.map((value) => ({ ...now, low: null, high: null, time: value / scale }));
    const ends = [0.1, 0.9].map((part) => shown.samples[Math.round(part * (shown.samples.length - 1))]);
    const middle = { ...now, low: ends[0] / scale, high: ends[1] / scale,
                     between: `deciles ${told(ends[0])} to ${told(ends[1])}` };
    panel(place, "Samples: old (first to last decile) and new (each)", "samples",
          [...old, ...samples, middle], unit, 120 + 26 * (old.length + 1));
  }

  function panel(place, title, name, rows, unit, height) {
    const box = add(place, "div");
    add(box, "h3", title);
    const plot = add(box, "div", "", "plot");
    const spec = structuredClone(data.templates[name]);
    for (const part of [spec, ...spec.layer]) {
      for (const channel of Object.values(part.encoding || {})) {
        if (channel.axis?.title === "time") channel.axis.title = `time in ${unit}`;
      }
    }
    draw(plot, spec, rows, height);
  }

  for (const card of document.querySelectorAll("details[data-case]")) {
    card.addEventListener("toggle", () => {
      if (card.dataset.told || !card.open) return;
      card.dataset.told = "yes";
      drawCase(card.querySelector(".drawn"), data.cases[card.dataset.case]);
    });
  }

  const dialog = document.getElementById("case");
  function openCase(index) {
    const shown = data.cases[index];
    const body = document.getElementById("case-body");
    body.replaceChildren();
    document.getElementById("h-case").textContent = shown.title;
    add(body, "p", shown.headline);
    if (shown.message && shown.message !== shown.headline) add(body, "pre", shown.message).tabIndex = 0;
    const drawn = add(body, "div", "", "drawn");
    const facts = add(body, "dl", "", "facts");
    for (const [label, text] of shown.facts) {
      const pair = add(facts, "div");
      add(pair, "dt", label);
      add(pair, "dd", text);
    }
    dialog.showModal();
    drawCase(drawn, shown);
  }

  // The table: sorted by a click on a heading, searched as one types.

  const table = document.getElementById("cases");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const words = rows.map((row) => row.textContent.toLowerCase());
  const search = document.getElementById("search");
  const state = document.getElementById("state");

  body.addEventListener("click", (event) => {
    if (event.target.closest(".name")) openCase(event.target.closest("tr").dataset.case);
  });

  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, i) => {
      const fits = (!state.value || row.dataset.state === state.value)
        && wanted.every((word) => words[i].includes(word));
      row.hidden = !fits;
      count += fits;
    });
    document.getElementById("shown").textContent = `${count} of ${rows.length} shown`;
  }
  search.addEventListener("input", filter);
  state.addEventListener("change", filter);

  function key(row, column) {
    const cell = row.cells[column];
    if (column === 0) return cell.textContent;
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  }

  const names = new Intl.Collator(undefined, { numeric: true });
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    heading.firstElementChild.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => [key(row, column), row]);
      const order = ([a], [b]) => {
        // What was not measured is last either way.
        if (a === null || b === null) return (a === null) - (b === null);
        const found = column === 0 ? names.compare(a, b) : a - b;
        return down ? -found : found;
      };
      body.append(...keyed.sort(order).map(([, row]) => row));
    });
  });
})();
