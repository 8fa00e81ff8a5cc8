// Who allocates: a chart of call stacks or labels, the outermost at the top.

const CALLS = ["short", "every call"];
const FLOOR = 22;
const FLOORS = 28;
const PAD = 5;
const NOT_KNOWN = ["no label", "no call stack"];
const WEIGHTS = ["at the peak", "allocated in all"];
// What `placesOf` adds up.
const OWN = "What libraries allocate counts at the line that calls them, and your code below a line at its own lines. ";
const NO_STACK = "Blocks usually have no call stack because the recording does not have their allocation, or because " +
  "a library made them outside Python.";

function hasOrigins({ who }) {
  return Boolean(who.stacks || who.by_label);
}

function whoSection(program) {
  const { who } = program;
  if (!hasOrigins(program)) return section("who", "Who allocates", howToKnow());
  const kinds = [who.stacks && "by stack", who.by_label && "by label"].filter(Boolean);
  const trees = {};
  const treeFor = (kind) => (trees[kind] ??= treeOf(who, kind));
  const state = { kind: kinds[0], weight: 0, isShort: true, focus: 0, at: 0, query: "", boxes: [] };
  const parts = {
    canvas: make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "chart of who allocates",
      "aria-describedby": "who-keys" }),
    path: make("div", { class: "path", role: "group", "aria-label": "Where the chart begins" }),
    output: make("output", { class: "node" }),
    deeper: make("p", { class: "note deeper" }),
    search: make("input", { type: "search", placeholder: "Search frames", "aria-label": "Search frames and labels",
      autocomplete: "off", spellcheck: "false" }),
    found: make("output", { class: "found" }),
  };
  const chart = { program, state, parts, view: () => shownOf(treeFor(state.kind), state.weight, state.isShort) };
  const again = (from) => {
    Object.assign(state, from);
    state.tallest = 0;
    state.focus = state.at = trunkOf(chart.view());
    update(chart);
  };
  parts.search.addEventListener("input", () => {
    state.query = parts.search.value.trim().toLowerCase();
    update(chart);
  });
  const controls = make("div", { class: "controls" },
    switchOf("weight", "What is counted", WEIGHTS, (value) => again({ weight: WEIGHTS.indexOf(value) })),
    kinds.length > 1 ? switchOf("kind", "Who is counted", kinds, (kind) => again({ kind })) : null,
    who.stacks ? switchOf("calls", "Which calls are shown", CALLS, (value) => again({ isShort: value === CALLS[0] }))
      : null,
    parts.search, parts.found);
  const hint = make("p", { class: "note", id: "who-keys" },
    "Click a call or press Enter to zoom in; use the names above or Escape to go back. Arrow keys move." +
    (who.stacks ? " The short view hides library calls that only call one other function." : ""));
  const missing = isStackMissing(who) ? [make("p", { class: "note" }, NO_STACK)] : [];
  const item = (tint, text) => make("li", {}, key(tint), text);
  const keys = make("ul", { class: "keys" }, item("mine", who.stacks ? "your code" : "labels"),
    who.stacks ? item("library", "library code (by path)") : null, item("found", "found by the search"));
  const lead = whoLead(program, treeFor(kinds[0]));
  listen(chart);
  again({});
  redraws.push(() => update(chart));
  const fold = behind(who.stacks ? "Table of the lines of your code" : "Table of the labels",
    () => placesTable(treeFor(kinds[0])));
  return section("who", "Who allocates", lead, controls, parts.path, make("div", { class: "icicle" }, parts.canvas),
    parts.deeper, parts.output, keys, hint, ...missing, fold);
}

/** Returns whether some blocks have no call stack where others have one. */
function isStackMissing({ stacks }) {
  return Boolean(stacks) && stacks.names.some((name, at) => at > 0 && name === -1);
}

function howToKnow() {
  const code = (text) => make("code", {}, text);
  return ["This trace has neither call stacks nor labels. In PyTorch, call ",
    code("torch.cuda.memory._record_memory_history()"), " first and ",
    code("torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")"), " last, and run ",
    code("millpond report snapshot.pickle"), ". Millpond's own recordings keep tags."];
}

/** Returns the nodes of a tree: their texts, children and weights. */
function treeOf(who, kind) {
  const isStack = kind === "by stack";
  const lists = isStack ? who.stacks : who.by_label;
  const parents = numbers(lists.parents);
  const texts = isStack ? (name) => who.frames[who.calls[name]] : (name) => who.labels[name];
  const nodes = lists.names.map((name, at) => ({
    parent: at ? parents[at] : -1, name, children: [],
    text: at === 0 ? "everything" : name >= 0 ? texts(name) : name === -1 ? NOT_KNOWN[Number(isStack)]
      : `${count(-name - 1)} smaller`,
    kind: name < 0 ? "idle" : isStack && who.libraries[who.calls[name]] === "1" ? "library" : "mine",
    bytes: [lists.peak_bytes[at], lists.all_bytes[at]],
    blocks: [lists.peak_blocks[at], lists.all_blocks[at]],
  }));
  for (let at = 1; at < nodes.length; at += 1) nodes[nodes[at].parent].children.push(at);
  return { nodes, isStack, views: {} };
}

/** Returns what is shown of a tree: the nodes below each that have bytes, the largest first, and the node above it. In
 * the short view, calls of libraries are left out that only call one other and allocate nothing themselves. */
function shownOf(tree, weight, isShort) {
  const { nodes, views } = tree;
  const known = views[`${weight} ${isShort}`];
  if (known) return known;
  const size = (at) => nodes[at].bytes[weight];
  const sorted = nodes.map((node) => node.children.filter((at) => size(at) > 0).sort((a, b) =>
    (nodes[a].name < 0) - (nodes[b].name < 0) || size(b) - size(a)));
  const passed = (from) => {
    let at = from;
    const goesOn = () => sorted[at].length === 1 && size(sorted[at][0]) === size(at);
    while (nodes[at].kind === "library" && goesOn()) [at] = sorted[at];
    return at;
  };
  const below = isShort ? sorted.map((children) => children.map(passed)) : sorted;
  const up = nodes.map(() => -1);
  const shown = new Array(nodes.length).fill(false);
  const visit = [0];
  while (visit.length) {
    const at = visit.pop();
    shown[at] = true;
    for (const child of below[at]) {
      up[child] = at;
      visit.push(child);
    }
  }
  return (views[`${weight} ${isShort}`] = { nodes, weight, sorted: below, up, shown });
}

/** Returns the call that the chart begins at: the last one that all blocks have in common. Where what is below it is
 * too deep for the chart, it is the last one that has nine tenths of the bytes. */
function trunkOf({ nodes, sorted, up, shown, weight }) {
  const whole = nodes[0].bytes[weight];
  const down = (from, least) => {
    let at = from;
    for (;;) {
      const [next] = sorted[at];
      if (next === undefined || nodes[next].name < 0 || !whole || nodes[next].bytes[weight] < least * whole) return at;
      at = next;
    }
  };
  const all = down(0, 1);
  const depths = nodes.map(() => 0);
  nodes.forEach((_, at) => { if (at && shown[at]) depths[at] = depths[up[at]] + 1; });
  return largest(depths) - depths[all] < FLOORS ? all : down(all, 0.9);
}

/** Returns a node and those above it, from the root. */
function pathTo(at, above) {
  const path = [];
  for (let node = at; node >= 0; node = above(node)) path.unshift(node);
  return path;
}

/** Returns the bytes and blocks of each line of the program itself, with those of the libraries that it calls. Without
 * stacks these are the labels. */
function placesOf(tree, weight) {
  const { nodes } = tree;
  const sums = new Map();
  for (let at = 1; at < nodes.length; at += 1) {
    const node = nodes[at];
    const below = (what) => node.children.reduce((all, child) => all + nodes[child][what][weight], 0);
    const sum = (what) => node[what][weight] - below(what);
    const [own, blocks] = [sum("bytes"), sum("blocks")];
    if (own <= 0 && blocks <= 0) continue;
    const path = pathTo(at, (node) => nodes[node].parent).reverse();
    const place = path.find((up) => nodes[up].kind === "mine") ?? at;
    const known = sums.get(nodes[place].text) ?? [0, 0];
    sums.set(nodes[place].text, [known[0] + own, known[1] + blocks]);
  }
  return [...sums].sort(([, a], [, b]) => b[0] - a[0]);
}

function whoLead(program, tree) {
  const lead = `The chart shows what is live at the peak, after event ${count(program.holders.at + 1)}, or ` +
    "everything a pass allocates. Each call lies under its caller and is as wide as the bytes of its blocks.";
  const first = placesOf(tree, 0).find(([text]) => text !== NOT_KNOWN[Number(tree.isStack)]);
  if (!first || !tree.nodes[0].bytes[0]) return lead;
  return [make("strong", {}, first[0]), ` holds the most${tree.isStack ? " of its own" : ""}: ${bytes(first[1][0])}, ` +
    `${share(first[1][0], tree.nodes[0].bytes[0])} of the peak. ${tree.isStack ? OWN : ""}`, lead];
}

function share(part, whole) {
  return (100 * part / Math.max(1, whole)).toFixed(1) + " %";
}

/** Returns a node that is shown and those above it that are left out. */
function standsFor(at, { nodes, up }) {
  return pathTo(at, (node) => (nodes[node].parent === up[at] ? -1 : nodes[node].parent));
}

function isFound(node, query) {
  return query !== "" && node.name >= 0 && node.text.toLowerCase().includes(query);
}

function update(chart) {
  paintIcicle(chart);
  showPath(chart);
  showNode(chart);
  showFound(chart);
}

function paintIcicle({ program, state, parts, view }) {
  const { nodes, sorted } = view();
  const { canvas } = parts;
  if (!canvas.clientWidth) return;
  const tints = {};
  const tint = (name) => (tints[name] ??= colour(name));
  const whole = Math.max(1, nodes[state.focus].bytes[state.weight]);
  // The places are known before the height is.
  const width = canvas.clientWidth;
  const boxes = [];
  let [floors, isCut] = [0, false];
  const lay = (at, x, floor) => {
    const wide = nodes[at].bytes[state.weight] / whole * width;
    if (wide < 0.4) return wide;
    if (floor >= FLOORS) {
      isCut = true;
      return wide;
    }
    boxes.push({ at, x, floor, width: wide });
    floors = Math.max(floors, floor + 1);
    let left = x;
    for (const child of sorted[at]) left += lay(child, left, floor + 1);
    return wide;
  };
  lay(state.focus, 0, 0);
  state.boxes = boxes;
  parts.deeper.textContent = isCut ? "Deeper calls do not fit: zoom in to see them." : "";
  state.tallest = Math.max(state.tallest || 0, floors);
  const [context] = prepared(canvas, state.tallest * FLOOR);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const { at, x, floor, width: wide } of boxes) {
    const node = nodes[at];
    const found = standsFor(at, view()).some((one) => isFound(nodes[one], state.query));
    context.fillStyle = tint(found ? "found" : at ? node.kind : "library");
    const drawn = Math.max(0.5, wide - (wide > 3 ? 1 : 0));
    context.fillRect(x, floor * FLOOR, drawn, FLOOR - 1);
    if (at === state.at) {
      context.strokeStyle = tint("mark");
      context.lineWidth = 2;
      context.strokeRect(x + 1, floor * FLOOR + 1, Math.max(1, drawn - 2), FLOOR - 3);
    }
    if (wide > 30) {
      context.fillStyle = tint(found ? "on-found" : "on-" + (at ? node.kind : "library"));
      context.fillText(fitted(context, node.text, wide - 2 * PAD), x + PAD, floor * FLOOR + FLOOR / 2);
    }
  }
  const total = bytes(nodes[0].bytes[state.weight]);
  canvas.setAttribute("aria-label",
    `Who allocates ${total} of ${program.name}, ${WEIGHTS[state.weight]}, ${state.kind}`);
}

/** Returns as much of a text as there is room for. Of a path the end says the most. */
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let [least, most] = [0, text.length];
  while (least < most) {
    const middle = (least + most + 1) >> 1;
    if (context.measureText("…" + text.slice(-middle)).width <= room) least = middle;
    else most = middle - 1;
  }
  return least > 2 ? "…" + text.slice(-least) : "";
}

function showPath(chart) {
  const { state, parts } = chart;
  const { nodes, up } = chart.view();
  const path = pathTo(state.focus, (at) => up[at]);
  const step = (at) => {
    const button = make("button", { type: "button", "aria-current": String(at === state.focus),
      title: nodes[at].text }, nodes[at].text);
    button.addEventListener("click", () => zoom(chart, at));
    return button;
  };
  const shown = path.length > 5 ? [path[0], null, ...path.slice(-3)] : path;
  const middle = () => make("span", { class: "faint" }, `… ${count(path.length - 4)} calls …`);
  parts.path.replaceChildren(...shown.flatMap((at, place) =>
    [place ? make("span", { class: "faint", "aria-hidden": "true" }, "›") : null, at === null ? middle() : step(at)])
    .filter(Boolean));
}

function showNode({ state, parts, view }) {
  const { nodes } = view();
  const node = nodes[state.at];
  const told = (weight) => `${bytes(node.bytes[weight])} in ${count(node.blocks[weight])} ` +
    `${node.blocks[weight] === 1 ? "block" : "blocks"}, ${share(node.bytes[weight], nodes[0].bytes[weight])}`;
  parts.output.replaceChildren(make("strong", {}, node.text),
    make("span", {}, `${WEIGHTS[0]}: ${told(0)}`), make("span", {}, `${WEIGHTS[1]}: ${told(1)}`));
}

function showFound({ state, parts, view }) {
  if (!state.query) {
    parts.found.textContent = "";
    return;
  }
  const { nodes } = view();
  // A frame that is found under another one counts once.
  const within = new Array(nodes.length).fill(false);
  let [frames, sum] = [0, 0];
  nodes.forEach((node, at) => {
    const above = at > 0 && within[node.parent];
    const found = isFound(node, state.query);
    if (found) frames += 1;
    if (found && !above) sum += node.bytes[state.weight];
    within[at] = found || above;
  });
  parts.found.textContent = frames === 0 ? "nothing found"
    : `${count(frames)} found, with ${bytes(sum)}, ${share(sum, nodes[0].bytes[state.weight])}`;
}

function zoom(chart, at) {
  const { nodes, up } = chart.view();
  // What stands for several nodes has nothing below it.
  chart.state.focus = nodes[at].name < 0 && at > 0 ? up[at] : at;
  chart.state.at = at;
  update(chart);
}

function listen(chart) {
  const { state, parts } = chart;
  const { canvas } = parts;
  const boxAt = (event) => {
    const frame = canvas.getBoundingClientRect();
    const [x, floor] = [event.clientX - frame.left, Math.floor((event.clientY - frame.top) / FLOOR)];
    return state.boxes.find((box) => box.floor === floor && x >= box.x && x < box.x + box.width);
  };
  const point = (at) => {
    if (at === state.at) return;
    state.at = at;
    paintIcicle(chart);
    showNode(chart);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = event.pointerType === "touch" ? null : boxAt(event);
    if (box) point(box.at);
  });
  let before = -1;
  canvas.addEventListener("pointerdown", () => { before = state.at; });
  canvas.addEventListener("click", (event) => {
    const box = boxAt(event);
    if (!box) return;
    // A finger points at first, and enters with the second touch.
    if (event.pointerType === "touch" && before !== box.at) point(box.at);
    else zoom(chart, box.at);
  });
  canvas.addEventListener("keydown", (event) => {
    const { sorted, up } = chart.view();
    const beside = (step) => {
      if (state.at === state.focus) return state.at;
      const all = sorted[up[state.at]];
      return all[Math.max(0, Math.min(all.length - 1, all.indexOf(state.at) + step))];
    };
    const moves = {
      ArrowUp: () => point(state.at === state.focus ? state.at : up[state.at]),
      ArrowDown: () => point(sorted[state.at][0] ?? state.at),
      ArrowLeft: () => point(beside(-1)),
      ArrowRight: () => point(beside(1)),
      Enter: () => zoom(chart, state.at),
      Escape: () => zoom(chart, Math.max(0, up[state.focus])),
      Home: () => zoom(chart, 0),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  });
}

function placesTable(tree) {
  const { nodes } = tree;
  const [whole, all] = nodes[0].bytes;
  const both = [0, 1].map((weight) => new Map(placesOf(tree, weight)));
  const rows = [...both[0]].slice(0, 40).map(([text, [sum, blocks]]) => {
    const [in_all] = both[1].get(text) ?? [0];
    return [text, bytes(sum), share(sum, whole), count(blocks), bytes(in_all), share(in_all, all)];
  });
  const heads = [tree.isStack ? "line" : "label", " live at the peak", " share", " blocks",
    " allocated in all", " share"];
  return table(heads, rows);
}

/** Returns the frames of a named block, innermost first, and its label; nothing where they are not known. */
function originOf(who, block) {
  const frames = [];
  for (let call = who.block_calls[block] ?? 0; call > 0; call = callersOf(who)[call - 1]) {
    const frame = who.calls[call - 1];
    frames.push({ text: who.frames[frame], library: who.libraries[frame] === "1" });
  }
  return { frames, label: who.labels[(who.block_labels[block] ?? 0) - 1] };
}

function callersOf(who) {
  return (who.callersRead ??= numbers(who.callers));
}
