// The timeline: a panel for each policy, on one scale, with one cursor.

// The parts of the waste ledger, from the bottom of the stack, and what each is.
const PARTS = {
  live: "asked for and not freed",
  rounding: "handed out beyond that",
  waiting: "freed, and waits for the device",
  guarded: "free, and another stream may still use it",
  ready: "free, could go back to the driver",
  stranded: "free, kept by neighbours in use",
  held: "free, held by a private pool",
};
const HEIGHT = 190;
const STRIP = 28;
const STRIPS = [["calls", "p3"], ["mapped", "away"], ["waits", "waiting"]];

/** Returns the numbers of a run for the timeline. Runs share series, of which `known` has those that were read. */
function timelineOf(program, run, known) {
  const read = (series) => (known[series] ??= numbers(program.series[series]));
  const mapped = read(run.mapped);
  return {
    ...Object.fromEntries(Object.entries(run.columns).map(([name, series]) => [name, read(series)])),
    run,
    at: read(run.at),
    parts: run.parts.map(([name, series]) => [name, read(series)]),
    mapped: mapped.map((value, at) => value - (at ? mapped[at - 1] : 0)),
  };
}

/** Returns the section with the timeline. `cursor` tells and hears of the column under the cursor. */
function timelineSection(program, cursor) {
  const known = [];
  const lines = program.runs.map((run) => timelineOf(program, run, known));
  const most = Math.max(1, ...lines.map((line) => largest(line.reserved_max)));
  const used = Object.keys(PARTS).filter((part) => lines.some((line) => partOf(line, part).some((value) => value > 0)));
  const strips = STRIPS.filter(([name]) => lines.some((line) => largest(line[name]) > 0));
  const scales = strips.map(([name]) => Math.max(...lines.map((line) => largest(line[name]))));
  const shared = { program, most, used, strips, scales, cursor };
  const panels = make("div", {}, ...lines.map((line) => panel(line, shared)));
  const slider = make("input", {
    type: "range", min: 0, max: program.columns - 1, value: 0, "aria-label": "Moment of the pass",
  });
  slider.addEventListener("input", () => cursor.move(Number(slider.value)));
  panels.append(slider);
  const readout = make("div", { class: "readout" });
  const tell = () => {
    const column = cursor.column;
    slider.value = column;
    const first = firstOf(program, column);
    slider.setAttribute("aria-valuetext", spoken(lines, column, first));
    readout.replaceChildren(readoutTable(lines, used, column, program));
  };
  cursor.listeners.push(tell);
  tell();
  const grid = make("div", { class: "timeline" + (lines.length > 3 ? " many" : "") }, panels, readout);
  const perColumn = Math.ceil(program.events / program.columns);
  const lead = "Reserved memory over the first pass, by what it is used for. The line above the stack is the most " +
    "that was reserved. Point at a panel, or move the slider, to read values.";
  const how = program.columns < program.events
    ? `Each column stands for ${count(perColumn)} events or one less. Of each, the stack shows the moment at which ` +
      "the most was live, the thin line inside it the least that was live, and the line above it the most that was " +
      "reserved: no peak and no dip is lost. Strips below a panel are sums over a column."
    : "Each event has a column of its own.";
  const part = section("timeline", "Over one pass", lead, grid, make("p", { class: "note" }, how));
  const differs = lines.filter((line) => line.run.differs > 0);
  for (const { run } of differs) {
    const text = `${run.policy}: in ${run.differs} columns the second run, which sampled the stack, differed from ` +
      "the first.";
    part.append(make("p", { class: "note" }, text));
  }
  part.append(behind("Table of the timeline", () => timelineTable(lines, used, program)));
  return part;
}

function partOf(line, name) {
  return (line.parts.find(([part]) => part === name) || [name, []])[1];
}

function firstOf(program, column) {
  return Math.ceil(column * program.events / program.columns);
}

function spoken(lines, column, first) {
  const of = (line) => `${line.run.policy}: ${bytes(line.live_max[column])} live, ` +
    `${bytes(line.reserved_max[column])} reserved`;
  return `event ${count(first + 1)}; ` + lines.map(of).join("; ");
}

function readoutTable(lines, used, column, program) {
  const head = make("tr", {}, make("th", { scope: "col" }, ""),
    ...lines.map((line) => make("th", { scope: "col", class: "n" }, line.run.policy)));
  const row = (name, values, attributes = {}) => make("tr", attributes, make("th", { scope: "row" }, ...name),
    ...values.map((value) => make("td", { class: "n" }, value)));
  const rows = [...used].reverse().map((part) =>
    row([key(part), term(part)], lines.map((line) => bytes(partOf(line, part)[column]))));
  const sum = lines.map((line) => bytes(line.parts.reduce((sum, [, values]) => sum + values[column], 0)));
  const least = lines.map((line) => bytes(line.live_min[column]));
  const extra = STRIPS.filter(([name]) => lines.some((line) => largest(line[name]) > 0)).map(([name, tint]) =>
    row([key(tint), TOLD[name]], lines.map((line) => count(line[name][column]))));
  const refused = lines.some((line) => largest(line.refused) > 0)
    ? [row([key("refused"), "refused"], lines.map((line) => count(line.refused[column])))] : [];
  const sampled = count(lines[0].at[column] + 1);
  return make("table", {}, make("caption", {}, `Event ${sampled} of ${count(program.events)}`), make("thead", {}, head),
    make("tbody", {}, ...rows, row(["reserved"], sum, { class: "sum" }),
      row(["most reserved here"], lines.map((line) => bytes(line.reserved_max[column]))),
      row(["least live here"], least), ...extra, ...refused));
}

const TOLD = { calls: "driver calls", mapped: "pages mapped", waits: "waits" };

function panel(line, shared) {
  const { run } = line;
  const ratio = (run.reserved / Math.max(1, run.live)).toFixed(3);
  const text = `${bytes(run.reserved)} reserved at most, ${ratio} times the peak of live memory`;
  const canvas = make("canvas", { role: "img", "aria-label": `Timeline under ${run.policy}: ${text}` });
  const paint = () => paintPanel(canvas, line, shared);
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const left = gutter(box.width);
    const share = (event.clientX - box.left - left) / (box.width - left);
    shared.cursor.move(Math.floor(Math.min(Math.max(share, 0), 0.999999) * shared.program.columns));
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  redraws.push(paint);
  shared.cursor.listeners.push(paint);
  return make("div", { class: "panel" }, make("h3", {}, run.policy, make("span", {}, text)), canvas);
}

function gutter(width) {
  return width < 500 ? 58 : 68;
}

/** Returns the distance of lines of the grid: a power of two, with three to six of them. */
function stepOf(most) {
  return 2 ** Math.ceil(Math.log2(most / 4.5));
}

function paintPanel(canvas, line, shared) {
  const { program, most, used, strips, scales, cursor } = shared;
  const [context, width] = prepared(canvas, HEIGHT + 8 + strips.length * STRIP);
  const left = gutter(width);
  const y = (value) => HEIGHT - (value / most) * (HEIGHT - 10);
  context.font = "12px system-ui, sans-serif";
  paintGrid(context, { left, width, y, most });
  const columns = pixels(line, program.columns, Math.max(1, Math.floor(width - left)));
  const floor = new Float64Array(columns.length);
  for (const part of used) {
    const values = partOf(line, part);
    context.fillStyle = colour(part);
    columns.forEach(({ best }, at) => {
      const value = values[best];
      if (value > 0) {
        const bottom = y(floor[at]);
        context.fillRect(left + at, y(floor[at] + value), 1.02, bottom - y(floor[at] + value));
        floor[at] += value;
      }
    });
  }
  paintLine(context, columns.map(({ high }) => y(high)), left, colour("ink"), 1.25);
  context.globalAlpha = 0.65;
  paintLine(context, columns.map(({ low }) => y(low)), left, colour("paper"), 1);
  context.globalAlpha = 1;
  paintRefused(context, line, { left, width, columns: program.columns });
  strips.forEach(([name, tint], place) => {
    const bottom = HEIGHT + 8 + (place + 1) * STRIP - 4;
    paintStrip(context, line[name], { name, tint, left, width, bottom, most: scales[place] });
  });
  const x = left + (cursor.column + 0.5) * (width - left) / program.columns;
  context.fillStyle = colour("mark");
  context.fillRect(Math.round(x), 0, 1, HEIGHT + 8 + strips.length * STRIP);
}

/** Returns for each unit of width the sample with the most live bytes, the most reserved and the least live. */
function pixels(line, columns, width) {
  const live = partOf(line, "live");
  return Array.from({ length: width }, (_, at) => {
    const begin = Math.floor(at * columns / width);
    const end = Math.max(begin + 1, Math.floor((at + 1) * columns / width));
    const found = { best: begin, high: 0, low: Infinity };
    for (let column = begin; column < end; column += 1) {
      if (live[column] > live[found.best]) found.best = column;
      found.high = Math.max(found.high, line.reserved_max[column]);
      found.low = Math.min(found.low, line.live_min[column]);
    }
    return found;
  });
}

function paintGrid(context, { left, width, y, most }) {
  const step = stepOf(most);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let value = 0; value <= most; value += step) {
    const at = Math.round(y(value)) + 0.5;
    context.strokeStyle = colour(value ? "grid" : "line");
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(width, at);
    context.stroke();
    context.fillStyle = colour("faint");
    context.fillText(tick(value), left - 8, value ? at : at - 5);
  }
}

function paintLine(context, heights, left, tint, weight) {
  context.strokeStyle = tint;
  context.lineWidth = weight;
  context.beginPath();
  heights.forEach((height, at) => {
    if (at && heights[at - 1] !== height) context.lineTo(left + at, heights[at - 1]);
    context.lineTo(left + at, height);
  });
  context.lineTo(left + heights.length, heights[heights.length - 1]);
  context.stroke();
  context.lineWidth = 1;
}

function paintRefused(context, line, { left, width, columns }) {
  context.fillStyle = colour("refused");
  line.refused.forEach((value, column) => {
    if (value > 0) {
      const x = left + (column + 0.5) * (width - left) / columns;
      context.beginPath();
      context.moveTo(x - 4, 0);
      context.lineTo(x + 4, 0);
      context.lineTo(x, 8);
      context.fill();
    }
  });
}

function paintStrip(context, values, { name, tint, left, width, bottom, most }) {
  const wide = (width - left) / values.length;
  context.fillStyle = colour("line");
  context.fillRect(left, bottom, width - left, 1);
  context.fillStyle = colour(tint);
  values.forEach((value, column) => {
    if (value > 0) {
      const height = Math.max(1.5, value / most * (STRIP - 8));
      context.fillRect(left + column * wide, bottom - height, Math.max(wide, 1), height);
    }
  });
  context.fillStyle = colour("faint");
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  context.fillText(name, left - 8, bottom);
}

function timelineTable(lines, used, program) {
  const heads = ["event", "policy", ...used.map((part) => " " + part), " reserved", " most reserved", " calls",
    " waits"];
  const rows = [];
  const step = Math.max(1, Math.floor(program.columns / 24));
  for (let column = 0; column < program.columns; column += step) {
    for (const line of lines) {
      const parts = used.map((part) => partOf(line, part)[column]);
      const sum = line.parts.reduce((sum, [, values]) => sum + values[column], 0);
      rows.push([count(line.at[column] + 1), line.run.policy, ...parts.map(bytes), bytes(sum),
        bytes(line.reserved_max[column]), count(line.calls[column]), count(line.waits[column])]);
    }
  }
  return table(heads, rows);
}
