// What all parts of the page use: elements, numbers, colours, and what is drawn anew.

const spaces = { svg: document.getElementById("drawing").namespaceURI };
const root = document.documentElement;
const errors = [];
root.dataset.errors = "0";
addEventListener("error", (event) => {
  errors.push(event.message);
  root.dataset.errors = String(errors.length);
});

/** Returns a new element. Text is never read as markup. */
function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(spaces.svg, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") element.style.cssText = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Formats bytes as the tables do. */
function bytes(value) {
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit + 1 < UNITS.length) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || scaled >= 100 ? 0 : scaled < 10 ? 2 : 1;
  return scaled.toFixed(digits) + " " + UNITS[unit];
}

/** Formats bytes without needless zeros, for an axis. */
function tick(value) {
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  return String(Math.round(value * 100) / 100) + " " + UNITS[unit];
}

function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

// The digit of each character code.
const DIGITS = new Uint8Array(128);
[..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"].forEach((letter, digit) => {
  DIGITS[letter.charCodeAt(0)] = digit;
});
const FLAT = ".".charCodeAt(0);

/** Returns the numbers of a series, which is written as `Series` in series.rs says. */
function numbers(series) {
  const begin = series.indexOf(" ");
  const unit = Number(series.slice(0, begin));
  const all = [];
  let sum = 0;
  for (let at = begin + 1; at < series.length;) {
    const isFlat = series.charCodeAt(at) === FLAT;
    if (isFlat) at += 1;
    let digit = DIGITS[series.charCodeAt(at)];
    at += 1;
    // The lowest bit is the sign of a difference.
    const low = digit & 1;
    let size = (digit & 31) >> 1;
    for (let scale = 16; digit > 31; scale *= 32) {
      digit = DIGITS[series.charCodeAt(at)];
      at += 1;
      size += (digit & 31) * scale;
    }
    if (!isFlat) all.push(sum += low ? -unit * size : unit * size);
    else for (let times = 2 * size + low; times > 0; times -= 1) all.push(sum);
  }
  return new Float64Array(all);
}

function largest(list) {
  let most = 0;
  for (const value of list) if (value > most) most = value;
  return most;
}

function colour(name) {
  return getComputedStyle(root).getPropertyValue("--" + name).trim();
}

function key(name) {
  return make("span", { class: "key", style: `background: var(--${name})`, "aria-hidden": "true" });
}

/** What is drawn anew when the page has another width or other colours. */
let redraws = [];

function redraw() {
  for (const again of redraws) again();
}

/** Makes a canvas as sharp as the screen, and returns its context and its width in units of the page. */
function prepared(canvas, height) {
  const width = canvas.clientWidth || canvas.parentElement.clientWidth;
  const ratio = devicePixelRatio || 1;
  canvas.style.height = height + "px";
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width];
}

function section(id, title, lead, ...children) {
  const heading = make("h2", { id }, title);
  return make("section", { "aria-labelledby": id }, heading, make("p", { class: "lead" }, lead), ...children);
}

/** Returns a table in a fold, which is built when it is first opened. */
function behind(title, build) {
  const fold = make("details", {}, make("summary", {}, title));
  fold.addEventListener("toggle", () => {
    if (fold.open && fold.children.length === 1) {
      fold.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, build()));
    }
  });
  return fold;
}

/** Returns a table. Numbers are the cells of columns whose head begins with a space. Heads may have words explained. */
function table(heads, rows, attributes = {}) {
  const isNumber = heads.map((head) => head.startsWith(" "));
  const head = heads.map((text, at) => make("th", { scope: "col", class: isNumber[at] && "n" },
    ...explained(text.trim())));
  const cell = (value, at) => make(at ? "td" : "th", { scope: at ? null : "row", class: isNumber[at] && "n" }, value);
  const body = rows.map((row) => make("tr", {}, ...row.map(cell)));
  return make("table", attributes, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}
