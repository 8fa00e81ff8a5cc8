// The timeline: a panel for each policy, on one scale, with one cursor. All show the same part of the pass.

// The parts of the waste ledger, from the bottom of the stack.
const PARTS = ["live", "rounding", "waiting", "guarded", "ready", "stranded", "held"];
const HEIGHT = 190;
const STRIP = 28;
const AXIS = 26;
const STRIPS = [["calls", "p3"], ["mapped", "away"], ["waits", "waiting"]];
const STRIP_NAMES = { calls: "driver calls", mapped: "pages mapped", waits: "waits" };

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

/** Returns the section with the timeline. `cursor` has the column under the cursor, and says when it changes. */
function timelineSection(program, cursor) {
  const known = [];
  const lines = program.runs.map((run) => timelineOf(program, run, known));
  const most = Math.max(1, ...lines.map((line) => largest(line.reserved_max)));
  const used = PARTS.filter((part) => lines.some((line) => partOf(line, part).some((value) => value > 0)));
  const strips = STRIPS.filter(([name]) => lines.some((line) => largest(line[name]) > 0));
  const scales = strips.map(([name]) => Math.max(...lines.map((line) => largest(line[name]))));
  const view = passView(program);
  const shared = { program, most, used, strips, scales, cursor, view, marks: [] };
  const panels = make("div", { class: "panels", tabindex: 0, role: "group", "aria-label": "Panels of the timeline",
    "aria-describedby": "zoom-hint", "aria-keyshortcuts": "+ - 0 ArrowLeft ArrowRight Home End" },
  ...lines.map((line) => panel(line, shared)));
  zoomByKeys(panels, view, cursor);
  panels.append(cursorSlider(lines, shared));
  const readout = readoutOf(lines, shared);
  const mark = () => shared.marks.forEach((marks) => marks.cursor());
  cursor.listeners.push(() => view.reveal(cursor.column), readout.tell, mark);
  view.listeners.push(mark);
  redraws.push(mark);
  readout.tell();
  const hint = make("p", { class: "note hint", id: "zoom-hint" }, make("span", { class: "fine" }, POINTER_HINT),
    make("span", { class: "coarse" }, TOUCH_HINT));
  const grid = make("div", { class: "timeline" + (lines.length > 3 ? " many" : "") }, panels, readout.element);
  const lead = explained("What [reserved] memory was used for in the first [pass]. The top line is the most " +
    "reserved. Point at a panel or move the slider to read values.");
  const part = section("timeline", "Over one pass", lead, zoomControls(view, cursor), hint, grid,
    make("p", { class: "note" }, howExact(program)));
  for (const { run } of lines.filter((line) => line.run.differs > 0)) {
    const text = `${run.policy}: in ${count(run.differs)} columns, the second replay, which drew the columns, ` +
      "reserved a different amount from the first.";
    part.append(make("p", { class: "note" }, text));
  }
  part.append(behind("Table of the timeline", () => timelineTable(lines, used, program)));
  return part;
}

function howExact(program) {
  const marks = " Triangles below a panel mark the peaks that the map shows.";
  if (program.columns === program.events) return "Each event has a column of its own." + marks;
  const events = count(Math.ceil(program.events / program.columns));
  return `Each of ${count(program.columns)} columns covers up to ${events} events. A column shows the moment with ` +
    "the most live memory, the thin line is the least live, and the top line is the most reserved, so peaks and dips " +
    "are kept. Strips show the total per column." + marks;
}

function partOf(line, name) {
  return (line.parts.find(([part]) => part === name) || [name, []])[1];
}

/** Returns the slider, which has the width of the panels and moves the cursor by columns. */
function cursorSlider(lines, shared) {
  const { program, cursor, view } = shared;
  const STEPS = 1000;
  const slider = make("input", { type: "range", min: 0, max: STEPS, step: "any", "aria-label": "Moment of the pass" });
  const clamped = (column) => Math.min(Math.max(column, 0), program.columns - 1);
  slider.addEventListener("input", () => {
    const place = view.from + Number(slider.value) / STEPS * (view.to - view.from);
    cursor.move(view.columnAt(Math.min(place, view.to - 1e-12)));
  });
  slider.addEventListener("keydown", (event) => {
    const [first, last] = [view.columnAt(view.from), view.columnAt(view.to - 1e-12)];
    const page = Math.max(1, Math.round((last - first) / 20));
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page };
    const to = event.key === "Home" ? first : event.key === "End" ? last : cursor.column + steps[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || Number.isNaN(to)) return;
    event.preventDefault();
    cursor.move(clamped(to));
  });
  const tell = () => {
    const { column } = cursor;
    slider.value = (view.placeOf(column) - view.from) / (view.to - view.from) * STEPS;
    slider.setAttribute("aria-valuetext", spoken(lines, column, firstOf(program, column)));
  };
  cursor.listeners.push(tell);
  view.listeners.push(tell);
  tell();
  return slider;
}

function spoken(lines, column, first) {
  const of = (line) => `${line.run.policy}: ${bytes(line.live_max[column])} live, ` +
    `${bytes(line.reserved_max[column])} reserved`;
  return `event ${count(first + 1)}; ` + lines.map(of).join("; ");
}

/** Returns the table of values under the cursor. Its cells are filled anew, so that a word in it keeps the focus. */
function readoutOf(lines, shared) {
  const { program, used, cursor, view } = shared;
  const cells = [];
  const row = (name, value, attributes = {}) => make("tr", attributes, make("th", { scope: "row" }, ...name),
    ...lines.map((line) => {
      const cell = make("td", { class: "n" });
      cells.push((column) => { cell.textContent = value(line, column); });
      return cell;
    }));
  const extra = STRIPS.filter(([name]) => lines.some((line) => largest(line[name]) > 0)).map(([name, tint]) =>
    row([key(tint), term(STRIP_NAMES[name])], (line, column) => count(line[name][column])));
  const refused = lines.some((line) => largest(line.refused) > 0)
    ? [row([key("refused"), term("refused")], (line, column) => count(line.refused[column]))] : [];
  const rows = [
    ...[...used].reverse().map((part) =>
      row([key(part), term(part)], (line, column) => bytes(partOf(line, part)[column]))),
    row([term("reserved")], (line, column) =>
      bytes(line.parts.reduce((sum, [, values]) => sum + values[column], 0)), { class: "sum" }),
    row(["most reserved in this column"], (line, column) => bytes(line.reserved_max[column])),
    row(["least live in this column"], (line, column) => bytes(line.live_min[column])),
    ...extra, ...refused,
  ];
  const caption = make("caption");
  const head = make("tr", {}, make("th", { scope: "col" }, ""),
    ...lines.map((line) => make("th", { scope: "col", class: "n" }, ...policyTerm(line.run.policy))));
  const element = make("div",
    { class: "readout", tabindex: 0, role: "region", "aria-label": "Values under the cursor" },
    make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...rows)));
  const micros = timesOf(program);
  const tell = () => {
    const { column } = cursor;
    const time = micros ? `, ${moment(micros[column])}` : "";
    caption.textContent = `Event ${count(lines[0].at[column] + 1)} of ${count(program.events)}${time}`;
    for (const fill of cells) fill(column);
  };
  view.listeners.push(tell);
  return { element, tell };
}

/** Formats microseconds with three digits or more. */
function moment(micros) {
  if (micros < 1e3) return `${micros} µs`;
  return micros < 1e6 ? `${(micros / 1e3).toFixed(2)} ms` : `${(micros / 1e6).toFixed(3)} s`;
}

function panel(line, shared) {
  const { run } = line;
  const { cursor, view } = shared;
  const ratio = (run.reserved / Math.max(1, run.live)).toFixed(3);
  const text = `${bytes(run.reserved)} peak reserved, ${ratio} times peak live`;
  const canvas = make("canvas", { role: "img", "aria-label": `Timeline under ${run.policy}: ${text}` });
  const mark = make("i", { class: "cursor" });
  const range = make("i", { class: "range", hidden: true });
  const plot = make("div", { class: "plot" }, canvas, range, mark);
  let width = 0;
  const paint = () => {
    width = paintPanel(canvas, line, shared);
  };
  // Marks are elements over the picture, so that it is not drawn anew for each move of a pointer.
  const across = (share) => gutter(width) + share * (width - gutter(width));
  shared.marks.push({
    cursor() {
      const share = (view.placeOf(cursor.column) - view.from) / (view.to - view.from);
      mark.hidden = !view.shows(cursor.column);
      mark.style.transform = `translateX(${Math.round(across(Math.min(Math.max(share, 0), 1)))}px)`;
    },
    range(shares) {
      range.hidden = !shares;
      if (!shares) return;
      range.style.left = across(shares[0]) + "px";
      range.style.width = across(shares[1]) - across(shares[0]) + "px";
    },
  });
  zoomBy(plot, view, cursor, (shares) => shared.marks.forEach((marks) => marks.range(shares)));
  redraws.push(paint);
  view.listeners.push(paint);
  return make("div", { class: "panel" }, make("h3", {}, make("b", {}, ...policyTerm(run.policy)),
    make("span", {}, text)), plot);
}

function gutter(width) {
  return width < 500 ? 58 : 68;
}

/** Returns the distance of lines of the grid: a power of two, with three to six of them. */
function stepOf(most) {
  return 2 ** Math.ceil(Math.log2(most / 4.5));
}

/** Draws a panel. Returns its width. */
function paintPanel(canvas, line, shared) {
  const { program, most, used, strips, scales, view } = shared;
  const bottom = HEIGHT + 8 + strips.length * STRIP;
  const [context, width] = prepared(canvas, bottom + AXIS);
  const left = gutter(width);
  const frame = { left, width, wide: Math.max(1, Math.floor(width - left)), view };
  const y = (value) => HEIGHT - (value / most) * (HEIGHT - 10);
  context.font = "12px system-ui, sans-serif";
  paintGrid(context, { left, width, y, most });
  const spans = columnsOf(view, frame.wide);
  const columns = pixels(line, spans);
  const floor = new Float64Array(columns.length);
  for (const part of used) {
    const values = partOf(line, part);
    context.fillStyle = colour(part);
    columns.forEach(({ best }, at) => {
      const value = values[best];
      if (value > 0) {
        const under = y(floor[at]);
        context.fillRect(left + at, y(floor[at] + value), 1.02, under - y(floor[at] + value));
        floor[at] += value;
      }
    });
  }
  paintLine(context, columns.map(({ high }) => y(high)), left, colour("ink"), 1.25);
  context.globalAlpha = 0.65;
  paintLine(context, columns.map(({ low }) => y(low)), left, colour("paper"), 1);
  context.globalAlpha = 1;
  paintRefused(context, line.refused, spans, left);
  strips.forEach(([name, tint], place) => {
    const under = HEIGHT + 8 + (place + 1) * STRIP - 4;
    paintStrip(context, line[name], spans, { name, tint, left, width, bottom: under, most: scales[place] });
  });
  paintAxis(context, program, frame, bottom);
  return width;
}

/** Returns for each pixel the sample with the most live bytes, the most reserved and the least live. */
function pixels(line, spans) {
  const live = partOf(line, "live");
  return spans.map(([begin, end]) => {
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

function paintRefused(context, refused, spans, left) {
  context.fillStyle = colour("refused");
  let last = -1;
  spans.forEach(([begin, end], at) => {
    let column = begin;
    while (column < end && !(refused[column] > 0)) column += 1;
    if (column === end || column === last) return;
    last = column;
    paintTriangle(context, left + at, 0, 8);
  });
}

/** Draws a triangle that points down from a height, or up where its height is negative. */
function paintTriangle(context, x, y, height) {
  context.beginPath();
  context.moveTo(x - 4, y);
  context.lineTo(x + 4, y);
  context.lineTo(x, y + height);
  context.fill();
}

function paintStrip(context, values, spans, { name, tint, left, width, bottom, most }) {
  context.fillStyle = colour("line");
  context.fillRect(left, bottom, width - left, 1);
  context.fillStyle = colour(tint);
  spans.forEach(([begin, end], at) => {
    let value = 0;
    for (let column = begin; column < end; column += 1) value = Math.max(value, values[column]);
    if (value > 0) {
      const height = Math.max(1.5, value / most * (STRIP - 8));
      context.fillRect(left + at, bottom - height, 1.02, height);
    }
  });
  context.fillStyle = colour("faint");
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  context.fillText(name, left - 8, bottom);
}

/** Draws the axis, with a triangle for each peak that the map shows. */
function paintAxis(context, program, { left, width, wide, view }, top) {
  const x = (place) => left + (place - view.from) / (view.to - view.from) * wide;
  context.fillStyle = colour("faint");
  context.textBaseline = "top";
  context.textAlign = "right";
  context.fillText(view.by === "time" ? "time" : "event", left - 8, top + 9);
  let free = left;
  for (const { at, text } of ticksOf(view, wide)) {
    const half = context.measureText(text).width / 2;
    context.fillRect(Math.round(x(at)), top, 1, 5);
    // A number at an end is moved inside.
    const middle = Math.min(Math.max(x(at), left + half), width - half);
    if (middle - half < free) continue;
    context.textAlign = "center";
    context.fillText(text, middle, top + 9);
    free = middle + half + 12;
  }
  context.fillRect(left, top, wide, 1);
  context.fillStyle = colour("ink");
  for (const [at, why] of program.moments) {
    const place = view.placeOf(Math.floor(at * program.columns / program.events));
    if (why && place >= view.from && place <= view.to) paintTriangle(context, x(place), top + 7, -6);
  }
}

function timelineTable(lines, used, program) {
  const heads = ["event", "policy", ...used.map((part) => " " + part), " reserved", " most reserved",
    " driver calls", " waits"];
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
