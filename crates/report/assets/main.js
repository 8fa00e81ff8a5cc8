// The page: which program is shown, and in which colours.

const { programs } = JSON.parse(document.getElementById("data").textContent);

function show(program) {
  redraws = [];
  const cursor = {
    column: Math.floor((program.runs[0].moments.length ? program.holders.at : 0) * program.columns / program.events),
    listeners: [],
    move(column) {
      if (column === cursor.column) return;
      cursor.column = column;
      cursor.ask ??= requestAnimationFrame(() => {
        cursor.ask = null;
        for (const listener of cursor.listeners) listener();
      });
    },
  };
  const facts = make("dl", { class: "facts" }, ...program.facts.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  document.getElementById("program").replaceChildren(
    facts,
    timelineSection(program, cursor),
    ...refusals(program),
    ...(hasOrigins(program) ? [whoSection(program)] : []),
    mapSection(program, cursor),
    lifeSection(program),
    ...(hasOrigins(program) ? [] : [whoSection(program)]),
    holdersSection(program),
  );
  redraw();
}

function choosePrograms() {
  const nav = document.getElementById("programs");
  nav.hidden = programs.length < 2;
  const buttons = programs.map((program, at) => {
    const button = make("button", { type: "button", "aria-current": String(at === 0) }, program.name);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-current", String(other === button));
      show(program);
    });
    return button;
  });
  nav.append(...buttons);
}

function chooseTheme() {
  const inputs = document.querySelectorAll("#theme input");
  const set = (value) => {
    if (value) root.dataset.theme = value;
    else delete root.dataset.theme;
    for (const input of inputs) input.checked = input.value === value;
  };
  for (const input of inputs) {
    input.addEventListener("change", () => {
      set(input.value);
      redraw();
    });
  }
  // A link may say which: report.html#dark.
  if (["#dark", "#light"].includes(location.hash)) set(location.hash.slice(1));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

explainHeads();
showMeanings();
document.querySelector("footer").before(...glossary());
chooseTheme();
choosePrograms();
show(programs[0]);
let width = innerWidth;
addEventListener("resize", () => {
  if (width !== innerWidth) {
    width = innerWidth;
    redraw();
  }
});
root.dataset.drawn = performance.now().toFixed(0);
