// Who holds memory, and why a request was refused.

function holdersSection(program) {
  const { holders } = program;
  const share = (value) => make("div", { class: "bar", "aria-hidden": "true" },
    make("i", { style: `width: ${(100 * value / Math.max(1, holders.live)).toFixed(2)}%; background: var(--live)` }));
  const percent = (value) => (100 * value / Math.max(1, holders.live)).toFixed(1) + " %";
  const isByLine = Boolean(program.who.stacks);
  const hasPlaces = holders.groups.some((group) => group.place);
  const place = (text) => (hasPlaces ? [text] : []);
  const rows = holders.groups.map((group) => {
    const sum = group.bytes * group.blocks;
    const more = group.other_places ? ` and ${count(group.other_places)} more` : "";
    return [bytes(group.bytes), count(group.blocks), group.lifetime, ...place((group.place || "") + more),
      count(group.first + 1), bytes(sum), percent(sum), share(sum)];
  });
  if (holders.other_blocks) {
    const sum = holders.other_bytes;
    rows.push(["other sizes", count(holders.other_blocks), "", ...place(""), "", bytes(sum), percent(sum), share(sum)]);
  }
  const heads = ["size of each", " blocks", "lives", ...place(isByLine ? "main allocating line" : "main label"),
    " first at event", " total", " share", ""];
  const list = table(heads, rows, { class: hasPlaces ? "holders places" : "holders" });
  const cells = ["size", "blocks", "lives", ...place("place"), "first", "sum", "percent", "share"];
  for (const row of list.rows) [...row.cells].forEach((cell, at) => cell.classList.add(cells[at]));
  const lead = explained(`The most memory is [live] after event ${count(holders.at + 1)}: ${bytes(holders.live)} in ` +
    `${count(holders.blocks)} blocks. They are grouped by size and lifetime, and are the same ` +
    "under every policy.");
  return section("holders", "Who holds memory", lead, boxed("Who holds memory", list));
}

/** Returns a box in which what is too wide scrolls. */
function boxed(title, content) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, content);
}

function refusals(program) {
  const refused = program.runs.flatMap((run, at) => (run.refusal ? [refusal(run, program, "refused-" + at)] : []));
  return program.fits ? [...refused, fitsSection(program.fits)] : refused;
}

function fitsSection(fits) {
  const rows = fits.policies.map(([policy, refused, reserved]) =>
    [policyTerm(policy), refused ? count(refused) : "none", bytes(reserved), refused ? "no" : "yes"]);
  const list = table(["policy", " [refused]", " peak [reserved]", "fits"], rows);
  return section("fits", "Which policies would have fit", fits.sentence, boxed("Which policies would have fit", list));
}

function refusal(run, program, id) {
  const { refusal: seen } = run;
  const names = run.parts.map(([name]) => name);
  const most = Math.max(seen.limit, seen.reserved, seen.requested);
  const wide = (value) => `${(100 * value / most).toFixed(3)}%`;
  const piece = (value, tint) => (value > 0
    ? make("i", { style: `width: ${wide(value)}; min-width: 2px; background: var(--${tint})` }) : null);
  const line = (name, note, ...pieces) => [
    make("div", {}, name, make("small", {}, note)),
    make("div", { class: "bar", role: "img", "aria-label": `${name}: ${note}` }, ...pieces),
  ];
  const stack = names.map((name, at) => piece(seen.parts[at], name));
  const left = Math.max(0, seen.limit - seen.reserved);
  const rows = [
    line("reserved", `${bytes(seen.reserved)} of a limit of ${bytes(seen.limit)}`, ...stack, piece(left, "idle")),
    line("free in total", bytes(seen.free), piece(seen.free, "ready")),
    line("the request", `${bytes(seen.requested)} on stream ${seen.stream}`, piece(seen.requested, "refused")),
  ];
  if (seen.hole) {
    const [stream, size] = seen.hole;
    const pin = (before) => seen.pins.filter((pin) => pin.before === before).map((pin) =>
      piece(Math.max(pin.bytes, most / 400), pin.waiting ? "waiting" : "live"));
    rows.push(line("largest hole", `${bytes(size)} on stream ${stream}`, ...pin(true), piece(size, "ready"),
      ...pin(false)));
  }
  const part = section(id, `Why ${run.policy} refused a request`,
    refusalText(seen, program), make("div", { class: "oom" }, ...rows.flat()));
  const keys = names.flatMap((name, at) => (seen.parts[at] > 0 ? [make("li", {}, key(name), term(name))] : []));
  part.append(make("ul", { class: "keys" }, ...keys, make("li", {}, key("idle"), "not reserved")),
    make("details", {}, make("summary", {}, "The error message the program would get"), make("pre", {}, seen.message)));
  return part;
}

function refusalText(seen, program) {
  const more = seen.limit - seen.reserved;
  const told = (pin) => `${pin.waiting ? "freed" : "live"} block of ${bytes(pin.bytes)} ` +
    (pin.born == null ? "" : `(allocated at event ${count(pin.born + 1)}, lives ${pin.lifetime}) `) +
    (pin.waiting ? "that waits for the device " : "") + (pin.before ? "lies before it" : "follows it");
  const pins = seen.hole && seen.pins.length ? ` A ${seen.pins.map(told).join(" and a ")}.` : "";
  const piece = seen.hole ? `, and the largest piece is ${bytes(seen.hole[1])}` : "";
  return `Event ${count(seen.at + 1)} of ${count(program.events)} is the first refused request. It asks for ` +
    `${bytes(seen.requested)}; ${bytes(seen.free)} are free in total${piece}.${pins} The limit leaves ` +
    (more > 0 ? `room to reserve ${bytes(more)} more.` : "no room to reserve more.");
}
