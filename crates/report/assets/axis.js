// The axis of the timeline: where columns are, which part of them is shown, and the ticks below.

// How far one can zoom in: to this many columns of equal width, or of a pass's time to this share.
const CLOSEST = { columns: 12, time: 1e-6 };
// The least distance of two numbers on the axis of a wide panel. A narrow one has four numbers or more.
const TICK_GAP = 92;

/** Returns where each column begins, from 0 to 1, and the end, in events or in time. */
function edgesOf(program, by) {
  const { columns, events } = program;
  const edge = new Float64Array(columns + 1).fill(1);
  if (by === "time") {
    const micros = timesOf(program);
    const whole = durationOf(program);
    for (let column = 0; column < columns; column += 1) edge[column] = (micros[column] - micros[0]) / whole;
  } else {
    for (let column = 0; column < columns; column += 1) edge[column] = firstOf(program, column) / events;
  }
  return edge;
}

/** Returns the first event of a column. */
function firstOf(program, column) {
  return Math.ceil(column * program.events / program.columns);
}

/** Returns when each column begins and the last one ends. Returns null if the trace does not say, or takes no time. */
function timesOf(program) {
  if (program.times === undefined) {
    const micros = program.micros ? numbers(program.micros) : null;
    program.times = micros && micros[program.columns] > micros[0] ? micros : null;
  }
  return program.times;
}

/** Returns how long the axis of time is: a little longer than the pass, so that its last events have a width. */
function durationOf(program) {
  const { columns } = program;
  const micros = timesOf(program);
  return (micros[columns] - micros[0]) * (1 + 1 / columns);
}

/** Returns which part of the pass is shown, from 0 to 1 of its axis. Calls the listeners when that changes. */
function passView(program) {
  const view = {
    program, by: "events", edge: edgesOf(program, "events"), from: 0, to: 1, listeners: [],
    isWhole: () => view.from === 0 && view.to === 1,
    /** Returns the narrowest part that can be shown. */
    least: () => (view.by === "time" ? Math.min(1, Math.max(CLOSEST.time, 1 / durationOf(program)))
      : Math.min(1, CLOSEST.columns / program.columns)),
    /** Shows a part. One that is too narrow, or that reaches over an end, is moved. */
    show(from, to) {
      const span = Math.min(1, Math.max(to - from, view.least()));
      const middle = (from + to) / 2;
      view.from = Math.max(0, Math.min(middle - span / 2, 1 - span));
      view.to = span === 1 ? 1 : view.from + span;
      view.changed();
    },
    /** Shows less or more, by a factor, around a place that stays where it is. */
    zoom(factor, about) {
      const around = about ?? (view.from + view.to) / 2;
      const span = Math.min(1, (view.to - view.from) * factor);
      const from = Math.max(0, Math.min(around - (around - view.from) / (view.to - view.from) * span, 1 - span));
      view.show(from, from + span);
    },
    /** Moves by a share of what is shown. */
    pan(share) {
      const by = share * (view.to - view.from);
      view.show(view.from + by, view.to + by);
    },
    reset: () => view.show(0, 1),
    changed() {
      view.ask ??= requestAnimationFrame(() => {
        view.ask = null;
        for (const listener of view.listeners) listener();
      });
    },
    /** Changes to the other axis, and shows the same events there. */
    choose(by) {
      const edge = edgesOf(program, by);
      const [from, to] = [view.from, view.to].map((place) => moved(place, view.edge, edge));
      Object.assign(view, { by, edge });
      view.show(from, to);
    },
    /** Returns the column at a place. */
    columnAt: (place) => columnAt(view.edge, place),
    /** Returns the place of a column's middle. */
    placeOf: (column) => (view.edge[column] + view.edge[column + 1]) / 2,
    shows: (column) => view.edge[column + 1] >= view.from && view.edge[column] <= view.to,
    /** Moves as far as it takes to show a column. */
    reveal(column) {
      if (view.shows(column)) return;
      const half = (view.to - view.from) / 2;
      view.show(view.placeOf(column) - half, view.placeOf(column) + half);
    },
    /** Returns the times between which it is shown. */
    times() {
      const micros = timesOf(program);
      const end = micros[program.columns];
      return [view.from, view.to].map((at) => Math.round(Math.min(end, micros[0] + at * durationOf(program))));
    },
    /** Returns the first and the last event that are shown. */
    events() {
      const last = columnAt(view.edge, view.to - 1e-12);
      return [firstOf(program, columnAt(view.edge, view.from)) + 1,
        last + 1 < program.columns ? firstOf(program, last + 1) : program.events];
    },
  };
  return view;
}

/** Returns the last column that begins at or before a place. */
function columnAt(edge, place) {
  let [low, high] = [0, edge.length - 2];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (edge[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Returns where a place of one axis is on another one. */
function moved(place, from, to) {
  if (place <= 0 || place >= 1) return place;
  const column = columnAt(from, place);
  const wide = from[column + 1] - from[column];
  const share = wide > 0 ? (place - from[column]) / wide : 0;
  return to[column] + share * (to[column + 1] - to[column]);
}

/** Returns for each pixel of a panel the first column in it and the one after its last. No column is left out. */
function columnsOf(view, width) {
  const { edge, from, to } = view;
  const columns = edge.length - 1;
  const spans = new Array(width);
  let end = columnAt(edge, from);
  // Columns without a width are at the same place as the one after them.
  while (end > 0 && edge[end - 1] === from) end -= 1;
  for (let at = 0; at < width; at += 1) {
    const right = from + (at + 1) * (to - from) / width;
    const before = end;
    while (end < columns && edge[end] < right) end += 1;
    // A column that began in an earlier pixel goes on in this one.
    const left = from + at * (to - from) / width;
    const begin = before > 0 && (before === end || edge[before] > left) ? before - 1 : before;
    spans[at] = [begin, Math.max(end, begin + 1)];
  }
  return spans;
}

/** Returns the least step of 1, 2 or 5 times a power of ten that is about a number or more. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least * 0.95);
}

/** Returns the ticks of what is shown: the place of each, and its text. */
function ticksOf(view, width) {
  const { program, from, to } = view;
  const isTime = view.by === "time";
  const micros = isTime ? timesOf(program) : [];
  // An event's number is one more than the number of those before it.
  const zero = isTime ? micros[0] : 1;
  const whole = isTime ? durationOf(program) : program.events;
  const shown = Math.max(4, width / TICK_GAP);
  const step = Math.max(1, roundStep((to - from) * whole / shown));
  const ticks = [];
  for (let value = Math.ceil((zero + from * whole) / step) * step; value <= zero + to * whole; value += step) {
    const at = (value - zero) / whole;
    if (at < 1 || isTime) ticks.push({ at, text: isTime ? duration(value, step) : count(value) });
  }
  return ticks;
}

/** Formats microseconds in the unit of a step. */
function duration(micros, step) {
  if (step >= 1e6) return count(Math.round(micros / 1e6)) + " s";
  if (step >= 1e5) return (micros / 1e6).toFixed(1) + " s";
  return step >= 1e3 ? count(Math.round(micros / 1e3)) + " ms" : count(Math.round(micros)) + " µs";
}
