// How one zooms into the timeline and moves along it: with a mouse, with fingers, with keys and with buttons.

// How far a pointer moves before a press becomes a range.
const DRAG = 5;
const FACTOR = 1.6;

const POINTER_HINT = "Drag to zoom into a range, Ctrl + wheel to zoom, Shift + drag to move, double-click for the " +
  "whole pass. Keys: + and \u2212 zoom, arrows, Home and End move, 0 shows the whole pass.";
const TOUCH_HINT = "Pinch to zoom, two fingers to move, double-tap for all.";

/** Has a panel's plot zoom and move what all panels show. `range` marks what is being selected, from 0 to 1. */
function zoomBy(plot, view, cursor, range) {
  const fingers = new Map();
  let drag = null;
  const shareOf = (event) => {
    const box = plot.getBoundingClientRect();
    const left = gutter(box.width);
    return Math.min(Math.max((event.clientX - box.left - left) / (box.width - left), 0), 1);
  };
  const placeOf = (share) => view.from + share * (view.to - view.from);
  const point = (event) => cursor.move(view.columnAt(Math.min(placeOf(shareOf(event)), view.to - 1e-12)));
  const stop = () => {
    drag = null;
    range(null);
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") {
      fingers.set(event.pointerId, shareOf(event));
      if (fingers.size === 1) point(event);
      if (fingers.size === 2) drag = { held: [...fingers].map(([id, share]) => [id, placeOf(share)]) };
      return;
    }
    if (event.button > 1) return;
    const isPan = event.shiftKey || event.button === 1;
    if (isPan) event.preventDefault();
    plot.setPointerCapture(event.pointerId);
    drag = { isPan, x: event.clientX, share: shareOf(event), place: placeOf(shareOf(event)) };
    point(event);
  });
  plot.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") {
      if (!fingers.has(event.pointerId)) return;
      fingers.set(event.pointerId, shareOf(event));
      if (drag && drag.held) pinch(view, drag.held, fingers);
      else if (fingers.size === 1) point(event);
      return;
    }
    if (!drag) return point(event);
    if (drag.isPan) {
      const span = view.to - view.from;
      const from = drag.place - shareOf(event) * span;
      return view.show(from, from + span);
    }
    point(event);
    drag.isRange ||= Math.abs(event.clientX - drag.x) >= DRAG;
    if (drag.isRange) range([drag.share, shareOf(event)].sort((a, b) => a - b));
  });
  const lift = (event) => {
    if (event.pointerType === "touch") {
      fingers.delete(event.pointerId);
      if (fingers.size < 2) drag = null;
      return;
    }
    if (drag && drag.isRange && event.type === "pointerup") {
      const [from, to] = [drag.share, shareOf(event)].sort((a, b) => a - b).map(placeOf);
      if (to > from) view.show(from, to);
      point(event);
    }
    stop();
  };
  plot.addEventListener("pointerup", lift);
  plot.addEventListener("pointercancel", lift);
  plot.addEventListener("dblclick", () => view.reset());
  // With two fingers the page neither scrolls nor zooms.
  plot.addEventListener("touchmove", (event) => {
    if (event.touches.length > 1) event.preventDefault();
  }, { passive: false });
  // A plain wheel scrolls the page. Browsers report a pinch on a touchpad as a wheel with Ctrl.
  plot.addEventListener("wheel", (event) => {
    const pixels = (delta) => delta * (event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 160 : 1);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      view.zoom(Math.exp(Math.max(-240, Math.min(pixels(event.deltaY), 240)) * 0.004), placeOf(shareOf(event)));
      point(event);
    } else {
      const sideways = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
      if (view.isWhole() || Math.abs(sideways) <= (event.shiftKey ? 0 : Math.abs(event.deltaY))) return;
      event.preventDefault();
      view.pan(pixels(sideways) / plot.clientWidth);
      point(event);
    }
  }, { passive: false });
}

/** Shows what keeps two places of the pass under two fingers. */
function pinch(view, held, fingers) {
  const now = held.map(([id]) => fingers.get(id));
  const apart = now[1] - now[0];
  if (Math.abs(apart) < 0.02) return;
  const span = Math.abs((held[1][1] - held[0][1]) / apart);
  const middle = (held[0][1] + held[1][1]) / 2;
  const from = middle - (now[0] + now[1]) / 2 * span;
  view.show(from, from + span);
}

/** Has an element with the focus zoom and move by keys. */
function zoomByKeys(element, view, cursor) {
  const about = () => (view.shows(cursor.column) ? view.placeOf(cursor.column) : undefined);
  const anywhere = {
    "+": () => view.zoom(1 / FACTOR, about()),
    "=": () => view.zoom(1 / FACTOR, about()),
    "-": () => view.zoom(FACTOR, about()),
    0: () => view.reset(),
  };
  const here = {
    ArrowLeft: () => view.pan(-0.2),
    ArrowRight: () => view.pan(0.2),
    Home: () => view.show(0, view.to - view.from),
    End: () => view.show(1 - (view.to - view.from), 1),
  };
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = anywhere[event.key] || (event.target === element && here[event.key]);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** Returns the buttons above the panels, and what is shown in words. */
function zoomControls(view, cursor) {
  const { program } = view;
  const about = () => (view.shows(cursor.column) ? view.placeOf(cursor.column) : undefined);
  const button = (text, label, act) => {
    const element = make("button", { type: "button", "aria-label": label }, text);
    element.addEventListener("click", act);
    return element;
  };
  const closer = button("+", "Zoom in", () => view.zoom(1 / FACTOR, about()));
  const further = button("\u2212", "Zoom out", () => view.zoom(FACTOR, about()));
  const whole = button("Whole pass", "Show the whole pass", () => view.reset());
  const output = make("output", {});
  const tell = () => {
    const [first, last] = view.events();
    const times = view.by === "time" ? `, ${view.times().map(moment).join(" to ")}` : "";
    output.textContent = view.isWhole() ? `All ${count(program.events)} events${times}`
      : `Events ${count(first)} to ${count(last)} of ${count(program.events)}${times}`;
    for (const element of [further, whole]) element.disabled = view.isWhole();
    closer.disabled = view.to - view.from <= view.least() * 1.0001;
  };
  view.listeners.push(tell);
  tell();
  const axis = timesOf(program)
    ? [switchOf("axis", "What the axis shows", ["events", "time"], (by) => view.choose(by))] : [];
  return make("div", { class: "controls" }, ...axis, make("div", { class: "jumps" }, closer, further, whole), output);
}
