// The map of memory at some moments.

const CELL = 5;
const ROW = 10;
const ROW_GAP = 3;
// What the letters of cells stand for: a colour, and a name.
const USES = [
  ["live", "in use"], ["waiting", "freed, waits for its points"], ["guarded", "free, another stream may still use it"],
  ["ready", "free, could go back to the driver"], ["stranded", "free, but stuck next to live blocks"],
  ["away", "in use through a window"],
];
const SIZES = ["under 1 MiB", "1 to 10 MiB", "10 to 100 MiB", "over 100 MiB"];
const LIVES = ["to the end", "over half of the pass", "1 % to half", "under 1 %"];
const BY = ["state", "stream", "size", "lifetime"];

/** Returns the runs of cells of a row: use, tag and number. */
function cellsOf(text) {
  const runs = [];
  for (const [, use, tag, number] of text.matchAll(/([a-f])([A-P]?)(\d*)/g)) {
    runs.push({ use: use.charCodeAt(0) - 97, tag: tag ? tag.charCodeAt(0) - 65 : -1, cells: Number(number || 1) });
  }
  return runs;
}

function mapSection(program, cursor) {
  const state = { moment: firstMoment(program), by: "state" };
  const output = make("output", {});
  const slider = make("input", {
    type: "range", min: 0, max: program.moments.length - 1, value: state.moment, "aria-label": "Moment of the map",
  });
  const maps = program.runs.map((run) => mapOf(program, run, state));
  const keys = make("ul", { class: "keys" });
  const peaks = program.moments.flatMap(([, why], at) => (why ? [[at, why]] : []));
  const jumps = peaks.map(([at, why]) => {
    const jump = make("button", { type: "button" }, why);
    jump.addEventListener("click", () => show(at, true));
    return [at, jump];
  });
  const show = (moment, moves) => {
    state.moment = moment;
    slider.value = moment;
    const [at, why] = program.moments[moment];
    const text = `Event ${count(at + 1)} of ${count(program.events)}${why ? ": " + why : ""}`;
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    for (const [place, jump] of jumps) jump.setAttribute("aria-pressed", String(place === moment));
    for (const map of maps) map.paint();
    if (moves) cursor.move(Math.floor(at * program.columns / program.events));
  };
  slider.addEventListener("input", () => show(Number(slider.value), true));
  const choose = (by) => {
    state.by = by;
    keys.replaceChildren(...keysOf(program, by));
    for (const map of maps) map.paint();
  };
  const by = switchOf("by", "Colours of the map", BY, choose);
  const lead = `Each cell is ${bytes(program.cell)} of reserved memory, coloured by what fills most of it. A ` +
    "gap marks the end of a segment or a run of pages; addresses without memory are left out." + windowsText(program);
  const controls = make("div", { class: "controls" }, by, make("div", { class: "jumps" },
    ...jumps.map(([, jump]) => jump)));
  const how = "The slider has the peaks (the buttons) and evenly spaced moments; nothing in between is shown. Point " +
    "at a cell, tap it or move there with the arrow keys to see what lies there. At the peaks, the larger blocks are " +
    "named individually.";
  choose("state");
  const part = section("map", "Map of memory", lead, controls, output, slider, keys,
    make("div", { class: "map" }, ...maps.map((map) => map.element)), make("p", { class: "note" }, how),
    behind("Table of the map", () => mapTable(program)));
  redraws.push(() => maps.forEach((map) => map.paint()));
  show(state.moment, false);
  return part;
}

function windowsText(program) {
  const has = program.runs.some((run) => run.moments.some((moment) => moment.rows.some((row) => row.window)));
  return has ? " Windows map the same memory at a second address, so their blocks appear twice; empty windows are " +
    "left out." : "";
}

function firstMoment(program) {
  const find = (reason) => program.moments.findIndex(([, why]) => why.includes(reason));
  const refused = find("first refusal");
  return Math.max(0, refused < 0 ? find("most reserved") : refused);
}

function switchOf(name, title, values, choose) {
  const options = values.map((value, at) => {
    const input = make("input", { type: "radio", name, value, checked: at === 0 });
    input.addEventListener("change", () => choose(value));
    return make("label", {}, input, make("span", {}, value));
  });
  return make("fieldset", { class: "switch" }, make("legend", { class: "hidden" }, title), ...options);
}

function keysOf(program, by) {
  const item = (tint, text) => make("li", {}, key(tint), text);
  if (by === "size") return SIZES.map((text, at) => item("q" + at, text)).concat(item("free", "not in use"));
  if (by === "lifetime") return LIVES.map((text, at) => item("q" + (3 - at), text)).concat(item("free", "not in use"));
  if (by === "stream") {
    const streams = [...new Set(program.runs.flatMap((run) => run.moments.flatMap((moment) =>
      moment.rows.map((row) => row.stream))))].sort((a, b) => a - b);
    const shown = streams.slice(0, 8).map((stream, at) => item("s" + at, "stream " + stream));
    const more = streams.length > 8 ? [make("li", {}, "colours repeat after eight streams")] : [];
    return [...shown, ...more, item("free", "not in use")];
  }
  const seen = new Set(program.runs.flatMap((run) => run.moments.flatMap((moment) =>
    moment.rows.flatMap((row) => row.cells.match(/[a-f]/g) || []))));
  return USES.flatMap(([tint, text], at) => (seen.has("abcdef"[at]) ? [item(tint, text)] : []));
}

/** Returns the groups of rows of a moment: by stream, with windows behind what is at home. */
function groupsOf(rows) {
  const groups = [];
  for (const row of rows) {
    const last = groups[groups.length - 1];
    if (last && last.stream === row.stream && last.window === row.window && last.pool === row.pool) last.rows.push(row);
    else groups.push({ stream: row.stream, pool: row.pool, window: row.window, rows: [row] });
  }
  return groups;
}

/** Returns the heights of a map of that width, and where each cell begins. Calls `place` with each run of cells. */
function layOut(program, rows, width, place) {
  const left = gutter(width);
  const perLine = width - CELL;
  let y = 0;
  for (const group of groupsOf(rows)) {
    let x = left;
    if (place.group) place.group(group, y);
    for (const row of group.rows) {
      const cells = Math.max(1, Math.ceil(row.bytes / program.cell));
      if (place.row) x = place.row(row, x, y, left, perLine, group);
      const start = place.row ? null : x;
      if (start !== null) {
        let rest = cells;
        while (rest > 0) {
          const fits = Math.max(0, Math.floor((perLine - x) / CELL) + 1);
          if (rest <= fits) { x += rest * CELL; rest = 0; } else { rest -= fits; x = left; y += ROW + ROW_GAP; }
        }
      } else {
        y = place.y;
      }
      x += 2;
    }
    y += ROW + ROW_GAP + 5;
  }
  return Math.max(ROW, y - 8);
}

function mapOf(program, run, state) {
  const canvas = make("canvas", { role: "application", tabindex: "0", "aria-roledescription": "map of memory" });
  const note = make("span", {});
  const pointed = make("p", { class: "note pointed" });
  const element = make("div", { class: "panel" }, make("h3", {}, run.policy, note), canvas, pointed);
  let boxes = [];
  let stops = null;
  let at = -1;
  const point = (stop) => {
    if (stop === at) return;
    at = stop;
    pointed.replaceChildren(...(at < 0 ? [] : toldAt(program, stops[at])));
    paint();
  };
  const pointTo = (event) => {
    const frame = canvas.getBoundingClientRect();
    stops ??= stopsOf(program, boxes);
    point(stopAt(stops, event.clientX - frame.left, event.clientY - frame.top));
  };
  canvas.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") pointTo(event); });
  canvas.addEventListener("click", pointTo);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch" && document.activeElement !== canvas) point(-1);
  });
  canvas.addEventListener("blur", () => {
    pointed.removeAttribute("aria-live");
    point(-1);
  });
  canvas.addEventListener("keydown", (event) => {
    stops ??= stopsOf(program, boxes);
    const last = stops.length - 1;
    const moves = {
      ArrowRight: () => Math.min(last, at + 1),
      ArrowLeft: () => Math.max(0, at - 1),
      ArrowDown: () => (at < 0 ? 0 : stopBeyond(stops, at, 1)),
      ArrowUp: () => (at < 0 ? 0 : stopBeyond(stops, at, -1)),
      Home: () => 0,
      End: () => last,
      Escape: () => -1,
    };
    if (!moves[event.key] || last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    // What the pointer passes over is not read aloud.
    pointed.setAttribute("aria-live", "polite");
    point(moves[event.key]());
  });
  let [painted, paintedWidth] = [null, 0];
  let known = [0, 0];
  const heightAt = (width) => {
    if (known[0] !== width) {
      const heights = run.moments.map((moment) => layOut(program, moment.rows, width, {}));
      known = [width, Math.max(ROW, ...heights)];
    }
    return known[1];
  };
  const paint = () => {
    const width = canvas.clientWidth;
    if (!width) return;
    const moment = run.moments[state.moment];
    if (!moment) return;
    const [context] = prepared(canvas, heightAt(width));
    context.font = "12px system-ui, sans-serif";
    const reserved = moment.parts.reduce((sum, value) => sum + value, 0);
    const text = `${bytes(reserved)} reserved, ${bytes(moment.parts[0])} live`;
    note.textContent = text;
    canvas.setAttribute("aria-label", `Map under ${run.policy}: ${text}. Arrow keys move from block to block. The ` +
      "table below has the numbers.");
    boxes = paintMap(context, program, moment, width, state.by);
    if (painted !== moment || paintedWidth !== width) {
      [painted, paintedWidth, stops, at] = [moment, width, null, -1];
      pointed.replaceChildren();
    }
    if (at >= 0) outline(context, stops[at]);
  };
  return { element, paint };
}

function paintMap(context, program, moment, width, by) {
  const streams = [...new Set(moment.rows.map((row) => row.stream))].sort((a, b) => a - b);
  const tints = {};
  const boxes = [];
  const tint = (name) => (tints[name] ??= colour(name));
  const place = {
    y: 0,
    group(group, y) {
      context.fillStyle = tint("faint");
      context.textAlign = "left";
      context.textBaseline = "alphabetic";
      const pool = group.pool ? ` p${group.pool}` : "";
      context.fillText(group.window ? "windows" : `stream ${group.stream}${pool}`, 0, y + ROW - 1);
    },
    row(row, x, y, left, perLine) {
      const at = streams.indexOf(row.stream) % 8;
      let first = 0;
      for (const { use, tag, cells } of cellsOf(row.cells)) {
        let rest = cells;
        context.fillStyle = tint(nameOf(by, use, tag, at));
        while (rest > 0) {
          const fits = Math.max(0, Math.floor((perLine - x) / CELL) + 1);
          const now = Math.min(rest, fits);
          if (now > 0) {
            context.fillRect(x, y, now * CELL, ROW);
            boxes.push({ x, y, cells: now, first, row, use, tag });
            first += now;
          }
          x += now * CELL;
          rest -= now;
          if (rest > 0) {
            x = left;
            y += ROW + ROW_GAP;
          }
        }
      }
      place.y = y;
      return x;
    },
  };
  layOut(program, moment.rows, width, place);
  return boxes;
}

function nameOf(by, use, tag, stream) {
  if (by === "state") return USES[use][0];
  if (by === "stream") return use === 5 || tag >= 0 ? "s" + stream : "free";
  if (tag < 0) return "free";
  return by === "size" ? "q" + (tag >> 2) : "q" + (3 - (tag & 3));
}

function mapTable(program) {
  const names = program.runs[0].parts.map(([name]) => name);
  const heads = ["event", "moment", "policy", ...names.map((name) => " " + name), " segments or runs of pages"];
  const rows = program.moments.flatMap(([at, why], place) => program.runs.map((run) => {
    const moment = run.moments[place];
    return [count(at + 1), why || "evenly spaced", run.policy, ...moment.parts.map(bytes),
      count(moment.rows.filter((row) => !row.window).length)];
  }));
  return table(heads, rows);
}
