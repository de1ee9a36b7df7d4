"use strict";

// Brings one fragment to life. Texts of records are set as text, never as markup.
function explorer(root) {
  const { plot, columns, groups } = JSON.parse(root.querySelector("script").textContent);
  const control = (name) => root.querySelector(`[name="${name}"]`);
  const leftOut = new Set();
  const sorting = { column: "quality", down: null };
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const text = ([mean, half]) =>
    format.format(mean) + (half === null ? "" : " \u00b1\u00a0" + format.format(Number(half.toPrecision(2))));

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // The options of a select; what was chosen stays so where it is still offered.
  function offer(select, options) {
    const before = select.value;
    select.replaceChildren(...options.map(([value, words]) => new Option(words, value)));
    if (options.some(([value]) => value === before)) select.value = before;
    select.parentElement.hidden = !options.length;
  }

  function mark(row) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg"), path = document.createElementNS(space, "path");
    svg.setAttribute("class", "mark");
    svg.setAttribute("viewBox", "-1.2 -1.2 2.4 2.4");
    svg.setAttribute("aria-hidden", "true");
    const drawn = { d: row.path, fill: row.fill, stroke: row.colour, "stroke-width": 0.3 };
    for (const [name, value] of Object.entries(drawn)) path.setAttribute(name, value);
    svg.append(path);
    return svg;
  }

  const group = () => groups[Number(control("problem").value)];
  const onBackend = () => group().rows.filter((row) => row.backend === control("backend").value);
  const measured = () =>
    Object.keys(columns).filter((name) => onBackend().some((row) => name in row.values));

  function chooseProblem() {
    offer(control("backend"), [...new Set(group().rows.map((row) => row.backend))].map((name) => [name, name]));
    leftOut.clear();
    chooseBackend();
  }

  function chooseBackend() {
    const words = (names) => names.map((name) => [name, columns[name].words]);
    const names = measured();
    offer(control("quality"), words(names.filter((name) => columns[name].role === "quality")));
    offer(control("price"), words(names.filter((name) => columns[name].role === "price")));
    const chips = onBackend().map((row) => {
      const chip = element("button", { type: "button", title: "Leave out, or take in again" }, mark(row), row.method);
      chip.ariaPressed = String(!leftOut.has(row.method));
      chip.addEventListener("click", () => {
        if (!leftOut.delete(row.method)) leftOut.add(row.method);
        chip.ariaPressed = String(!leftOut.has(row.method));
        show();
      });
      return chip;
    });
    root.querySelector(".methods").replaceChildren(...chips);
    Object.assign(sorting, { column: "quality", down: null });
    show();
  }

  function chosen() {
    const words = control("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    return onBackend().filter(
      (row) =>
        !leftOut.has(row.method) &&
        (!words.length || words.some((word) => row.method.toLowerCase().includes(word))),
    );
  }

  // Points of the plot; on the frontier are those that no other one equals or beats in both.
  function points(rows, quality, price) {
    const sign = columns[quality]?.lower ? -1 : 1;
    const both = rows.filter((row) => quality in row.values && price in row.values);
    const made = both.map((row) => {
      const [y, half] = row.values[quality], [x] = row.values[price];
      return {
        x, y, low: y - (half ?? 0), high: y + (half ?? 0),
        method: row.method, colour: row.colour, path: row.path, fill: row.fill,
        quality: text(row.values[quality]), price: text(row.values[price]),
      };
    });
    const beats = (a, b) => a.x <= b.x && sign * a.y >= sign * b.y && (a.x < b.x || a.y !== b.y);
    for (const point of made) point.frontier = !made.some((other) => beats(other, point));
    return made;
  }

  // The points fill the plot: the interval of two seeds may be many times as long, and is cut off.
  function scaled(values, isLog) {
    const log = isLog && values.every((value) => value > 0);
    const ends = [Math.min(...values), Math.max(...values)].map((end) => (log ? Math.log(end) : end));
    const margin = 0.12 * (ends[1] - ends[0]) || 0.1 * Math.abs(ends[0]) || 1;
    const domain = [ends[0] - margin, ends[1] + margin].map((end) => (log ? Math.exp(end) : end));
    return { type: log ? "log" : "linear", nice: false, domain };
  }

  // Names the points of the frontier, the best first, where no other name is in the way.
  function label(drawn, { x, y }, [width, height]) {
    const position = (value, { type, domain }, size) => {
      const [from, to, at] = [...domain, value].map((end) => (type === "log" ? Math.log(end) : end));
      return ((at - from) / (to - from)) * size;
    };
    const taken = [];
    for (const point of drawn.filter((one) => one.frontier).sort((a, b) => b.x - a.x)) {
      const [across, up] = [position(point.x, x, width), position(point.y, y, height)];
      const half = 4 * Math.min(point.method.length, 25);
      point.named = !taken.some((one) => Math.abs(one.across - across) < one.half + half && Math.abs(one.up - up) < 16);
      if (point.named) taken.push({ across, up, half });
    }
  }

  function draw(rows, quality, price) {
    const place = root.querySelector(".plot"), drawn = points(rows, quality, price);
    place.hidden = root.querySelector(".note").hidden = !drawn.length;
    const without = rows.length - drawn.length;
    root.querySelector(".status").textContent =
      `${rows.length} of ${onBackend().length} methods` +
      (without && quality && price ? `; ${without} not in the plot: no price or no quality in the records` : "");
    if (!drawn.length) return;
    root.querySelector(".better").textContent = columns[quality].lower ? "below" : "above";
    const spec = structuredClone(plot), scales = {};
    for (const [axis, name] of [["x", price], ["y", quality]]) {
      scales[axis] = scaled(drawn.map((point) => point[axis]), columns[name].log);
      for (const layer of spec.layer)
        Object.assign(layer.encoding[axis], { title: columns[name].words, scale: scales[axis] });
    }
    label(drawn, scales, [place.clientWidth, spec.height]);
    spec.datasets = { ...spec.datasets, rows: drawn };
    vegaEmbed(place, spec, { actions: false, ast: true, renderer: "svg" });
  }

  function shownColumns(quality, price) {
    const names = measured();
    const first = [quality, price].filter(Boolean);
    const others = names.filter((name) => !first.includes(name));
    return control("all").checked ? [...first, ...others] : [...first, ...others.filter((name) => columns[name].role === "price")];
  }

  function table(rows, quality, price) {
    const names = shownColumns(quality, price);
    const head = [["method", "method"], ...names.map((name) => [name, columns[name].words]), ["seeds", "seeds"]];
    const column = sorting.column === "quality" ? quality || price : sorting.column;
    const down = sorting.down ?? columns[column]?.lower === false;
    const value = (row) => (column in row ? row[column] : row.values[column]?.[0]);
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      return (down ? -1 : 1) * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
    const best = Object.fromEntries(
      names.map((name) => {
        const all = rows.filter((row) => name in row.values).map((row) => row.values[name][0]);
        const { lower } = columns[name];
        return [name, lower === null || !all.length ? null : (lower ? Math.min : Math.max)(...all)];
      }),
    );
    root.querySelector("thead").replaceChildren(
      element("tr", {}, ...head.map(([name, words]) => {
        const button = element("button", { type: "button", textContent: words });
        const cell = element("th", { scope: "col" }, button);
        if (name === column) cell.ariaSort = down ? "descending" : "ascending";
        button.addEventListener("click", () => {
          const again = name === column ? !down : columns[name]?.lower === false;
          Object.assign(sorting, { column: name, down: again });
          show();
        });
        return cell;
      })),
    );
    root.querySelector("tbody").replaceChildren(
      ...sorted.map((row) =>
        element("tr", {},
          element("td", {}, mark(row), row.method),
          ...names.map((name) => {
            const shown = name in row.values;
            const className = shown && row.values[name][0] === best[name] ? "best" : "";
            return element("td", { className, textContent: shown ? text(row.values[name]) : "-" });
          }),
          element("td", { textContent: row.seeds })),
      ),
    );
  }

  function show() {
    const rows = chosen(), quality = control("quality").value, price = control("price").value;
    draw(rows, quality, price);
    table(rows, quality, price);
  }

  for (const experiment of new Set(groups.map((one) => one.experiment))) {
    const parts = groups.flatMap((one, index) =>
      one.experiment === experiment ? [new Option(one.problem, index)] : []);
    control("problem").append(element("optgroup", { label: experiment }, ...parts));
  }
  control("problem").addEventListener("change", chooseProblem);
  control("backend").addEventListener("change", chooseBackend);
  for (const name of ["quality", "price", "all"]) control(name).addEventListener("change", show);
  control("filter").addEventListener("input", show);
  // A link to the page may name an experiment behind "#".
  const named = groups.findIndex((one) => one.experiment === decodeURIComponent(location.hash.slice(1)));
  if (named > 0) control("problem").value = String(named);
  if (groups.length) chooseProblem();
}

for (const root of document.querySelectorAll(".explorer")) explorer(root);
