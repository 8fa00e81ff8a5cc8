// Who holds memory, and why a request was refused.

function holdersSection(program) {
  const { holders } = program;
  const share = (value) => make("div", { class: "bar", "aria-hidden": "true" },
    make("i", { style: `width: ${(100 * value / Math.max(1, holders.live)).toFixed(2)}%; background: var(--live)` }));
  const percent = (value) => (100 * value / Math.max(1, holders.live)).toFixed(1) + " %";
  const rows = holders.groups.map((group) => {
    const sum = group.bytes * group.blocks;
    return [bytes(group.bytes), count(group.blocks), group.lifetime, count(group.first + 1), bytes(sum), percent(sum),
      share(sum)];
  });
  if (holders.other_blocks) {
    const sum = holders.other_bytes;
    rows.push(["other sizes", count(holders.other_blocks), "", "", bytes(sum), percent(sum), share(sum)]);
  }
  const list = table(["size of each", " blocks", "lives", " first at event", " together", " share", ""], rows);
  for (const row of list.querySelectorAll("tr")) row.lastElementChild.classList.add("share");
  list.style.width = "100%";
  const lead = `When the most is live, behind event ${count(holders.at + 1)}: ${bytes(holders.live)} in ` +
    `${count(holders.blocks)} blocks, by size and by how long they live. No policy changes this.`;
  return section("holders", "Who holds memory", lead, make("div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Who holds memory" }, list));
}

function refusals(program) {
  const refused = program.runs.flatMap((run, at) => (run.refusal ? [refusal(run, program, "refused-" + at)] : []));
  return program.fits ? [...refused, fitsSection(program.fits)] : refused;
}

function fitsSection(fits) {
  const rows = fits.policies.map(([policy, refused, reserved]) =>
    [policy, refused ? count(refused) : "none", bytes(reserved), refused ? "no" : "yes"]);
  const list = table(["policy", " refused requests", " reserved at most", "fits"], rows);
  return section("fits", "Which policy would have fitted", fits.sentence, make("div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Which policy would have fitted" }, list));
}

function refusal(run, program, id) {
  const told = run.refusal;
  const names = run.parts.map(([name]) => name);
  const most = Math.max(told.limit, told.reserved, told.requested);
  const wide = (value) => `${(100 * value / most).toFixed(3)}%`;
  const piece = (value, tint) => (value > 0
    ? make("i", { style: `width: ${wide(value)}; min-width: 2px; background: var(--${tint})` }) : null);
  const line = (name, note, ...pieces) => [
    make("div", {}, name, make("small", {}, note)),
    make("div", { class: "bar", role: "img", "aria-label": `${name}: ${note}` }, ...pieces),
  ];
  const stack = names.map((name, at) => piece(told.parts[at], name));
  const left = Math.max(0, told.limit - told.reserved);
  const rows = [
    line("reserved", `${bytes(told.reserved)} of ${bytes(told.limit)} that may be`, ...stack, piece(left, "idle")),
    line("free, in all", bytes(told.free), piece(told.free, "ready")),
    line("the request", `${bytes(told.requested)} on stream ${told.stream}`, piece(told.requested, "refused")),
  ];
  if (told.hole) {
    const [stream, size] = told.hole;
    const pin = (before) => told.pins.filter((pin) => pin.before === before).map((pin) =>
      piece(Math.max(pin.bytes, most / 400), pin.waiting ? "waiting" : "live"));
    rows.push(line("largest hole", `${bytes(size)} on stream ${stream}`, ...pin(true), piece(size, "ready"),
      ...pin(false)));
  }
  const part = section(id, `Why ${run.policy} refused a request`,
    refusalText(told, program), make("div", { class: "oom" }, ...rows.flat()));
  const keys = names.flatMap((name, at) => (told.parts[at] > 0 ? [make("li", {}, key(name), name)] : []));
  part.append(make("ul", { class: "keys" }, ...keys, make("li", {}, key("idle"), "not reserved")),
    make("details", {}, make("summary", {}, "The error, as the program sees it"), make("pre", {}, told.message)));
  return part;
}

function refusalText(told, program) {
  let text = `At event ${count(told.at + 1)} of ${count(program.events)}, for the first time: ` +
    `${bytes(told.requested)} were asked for, and ${bytes(told.free)} are free in all`;
  text += told.hole ? `; the largest piece has ${bytes(told.hole[1])}.` : ".";
  const more = told.limit - told.reserved;
  text += more > 0 ? ` Another ${bytes(more)} may still be reserved.` : " No more may be reserved.";
  if (!told.hole) return text;
  const pin = (pin) => `a block of ${bytes(pin.bytes)} ${pin.before ? "before" : "behind"} it` +
    (pin.waiting ? ", which is freed and waits for the device" : ", which is in use") +
    (pin.born == null ? "" : ` (allocated at event ${count(pin.born + 1)}, lives: ${pin.lifetime})`);
  return told.pins.length ? `${text} What keeps that piece from being larger: ${told.pins.map(pin).join("; ")}.` : text;
}
