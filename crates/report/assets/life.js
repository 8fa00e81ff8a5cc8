// The picture of a life: what each pass reserved and called, and what work in flight pinned.

const CHART = { width: 320, height: 150, left: 44, right: 76, top: 10, bottom: 22 };

function lifeSection(program) {
  const { runs } = program;
  const passes = runs[0].passes.length;
  const verdicts = make("ul", { class: "verdicts" }, ...runs.map((run) =>
    make("li", {}, make("strong", {}, ...policyTerm(run.policy)), ". ", run.verdict)));
  const lead = passes > 1
    ? explained("All passes run on one allocator. A program has settled once a [pass] makes no [driver calls].")
    : "There was one pass. With more, this shows whether the program settles.";
  const parts = [verdicts];
  if (passes > 1) {
    const charts = [
      ["reserved / live", (pass) => pass.reserved / Math.max(1, pass.live), (value) => value.toFixed(2)],
      ["driver calls", (pass) => pass.calls, (value) => count(Math.round(value))],
      ["waits", (pass) => pass.waits + pass.stalls, (value) => count(Math.round(value))],
    ].filter(([, value]) => runs.some((run) => run.passes.some((pass) => value(pass) > 0)));
    parts.push(make("div", { class: "charts" }, ...charts.map((chart) => lifeChart(runs, ...chart))));
  }
  const pins = runs.filter((run) => run.passes.some((pass) => pass.pinned.bytes > 0));
  if (pins.length) {
    parts.push(make("h3", { style: "margin-top: 28px" },
      ...explained("Freed memory [pinned] by work in flight in the last pass")),
      make("div", { class: "pins" }, ...pins.map(pinned)),
      make("p", { class: "note" }, "The maximum of 24 samples of the pass. Memory that waits for several streams " +
        "counts for each of them."));
  }
  parts.push(behind("Table of the passes", () => lifeTable(runs)));
  return section("life", "Pass by pass", lead, ...parts);
}

function lifeChart(runs, title, value, format) {
  const { width, height, left, right, top, bottom } = CHART;
  const lists = runs.map((run) => run.passes.map(value));
  const most = Math.max(...lists.flat());
  const passes = lists[0].length;
  const x = (pass) => left + pass * (width - left - right) / (passes - 1);
  const y = (number) => height - bottom - number / most * (height - top - bottom);
  const said = runs.map((run, at) => `${run.policy}: ${lists[at].map(format).join(", ")}`).join("; ");
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${title} by pass. ${said}` });
  for (const number of [0, most]) {
    picture.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: y(number), y2: y(number) }),
      draw("text", { x: left - 8, y: y(number) + 4, "text-anchor": "end" }, number ? format(number) : "0"));
  }
  picture.append(draw("text", { x: left, y: height - 4 }, "pass 1"),
    draw("text", { x: width - right, y: height - 4, "text-anchor": "end" }, String(passes)));
  const labels = spread(lists.map((list) => y(list[list.length - 1]) + 4), 14, height - bottom + 4);
  runs.forEach((run, at) => {
    const tint = `var(--p${at % 4})`;
    const points = lists[at].map((number, pass) => `${x(pass).toFixed(1)},${y(number).toFixed(1)}`);
    picture.append(draw("polyline", { points: points.join(" "), fill: "none", stroke: tint, "stroke-width": 1.75 }));
    lists[at].forEach((number, pass) => picture.append(draw("circle", { cx: x(pass), cy: y(number), r: 2.5,
      fill: tint })));
    const last = format(lists[at][passes - 1]);
    picture.append(draw("text", { x: width - right + 8, y: labels[at], style: `fill: ${tint}` },
      `${run.policy} ${last}`));
  });
  return make("figure", { style: "margin: 0" }, make("h3", {}, title), picture);
}

/** Returns the heights of labels, moved apart so that each has its line. */
function spread(heights, line, lowest) {
  const order = heights.map((_, at) => at).sort((a, b) => heights[b] - heights[a]);
  let limit = lowest;
  const moved = [...heights];
  for (const at of order) {
    moved[at] = Math.min(moved[at], limit);
    limit = moved[at] - line;
  }
  return moved;
}

function pinned(run) {
  const { pinned: pins } = run.passes[run.passes.length - 1];
  const most = Math.max(1, ...pins.streams.map(([, waiting, own]) => waiting + own));
  const bar = (waiting, own) => make("div", { class: "bar", "aria-hidden": "true" },
    make("i", { style: `width: ${100 * waiting / most}%; background: var(--waiting)` }),
    make("i", { style: `width: ${100 * own / most}%; background: var(--guarded)` }));
  const rows = pins.streams.filter(([, waiting, own]) => waiting + own > 0).map(([stream, waiting, own]) =>
    [`stream ${stream}`, bytes(waiting), bytes(own), bar(waiting, own)]);
  const list = table(["", " [waits for it|waiting]", " its own, free", ""], rows);
  for (const row of list.querySelectorAll("tr")) row.lastElementChild.classList.add("share");
  return make("div", {}, make("h3", {}, `${run.policy}: ${bytes(pins.bytes)}`), list);
}

function lifeTable(runs) {
  const heads = ["pass", "policy", " peak live", " peak reserved", " reserved / live", " driver calls", " driver time",
    " stream waits", " host waits", " refused", " [pinned]"];
  const time = (micros) => (micros < 1000 ? `${micros} us` : `${(micros / 1000).toFixed(1)} ms`);
  const rows = runs[0].passes.flatMap((_, at) => runs.flatMap((run) => {
    const pass = run.passes[at];
    return pass ? [[String(at + 1), run.policy, bytes(pass.live), bytes(pass.reserved),
      (pass.reserved / Math.max(1, pass.live)).toFixed(3), count(pass.calls), time(pass.micros), count(pass.waits),
      count(pass.stalls), count(pass.refused), bytes(pass.pinned.bytes)]] : [];
  }));
  return table(heads, rows);
}
