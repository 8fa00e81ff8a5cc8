// What the words on the page mean. docs/explanation/glossary.md has the same sentences; a test compares them.

const TERMS = {
  "live": "Memory that the program asked for and has not freed.",
  "reserved": "Memory taken from the driver, in use or not.",
  "waste": "Reserved memory that is not live.",
  "rounding": "Bytes granted beyond what was asked for.",
  "waiting": "Freed memory that the device may still be using.",
  "guarded": "Free memory that another stream may still be using, so its next user waits for that stream.",
  "ready": "Free memory that could go back to the driver at once.",
  "stranded": "Free memory that cannot go back to the driver, because its segment or page is partly in use.",
  "held": "Free memory that belongs to a private pool, such as that of a CUDA graph.",
  "pinned": "Freed memory that others cannot use until work in flight is done.",
  "refused": "A request that failed for lack of memory.",
  "driver calls": "Calls that take memory from the driver, give it back, map pages, or wait.",
  "pass": "One replay of the recorded events, on the allocator as the previous pass left it.",
  "stream": "An ordered queue of device work: a CUDA stream, a Vulkan or wgpu queue.",
  "segment": "One allocation from the driver, which reserved counts.",
  "page": "A piece of physical memory from the driver.",
  "window": "Addresses where pages are mapped a second time, side by side.",
  "classic": "The policy that works like PyTorch's native allocator.",
  "paged": "The default policy, which remaps free pages of any stream to serve a request.",
  "tight": "The policy paged with growth:tight, which makes streams wait before it creates more memory.",
  "expandable": "The policy classic with expandable_segments:True.",
  "direct": "The policy without a cache: each allocation and each free calls the driver.",
  "fragmentation": "Free memory in pieces too small for a request.",
  "expandable_segments": "PyTorch's setting that lets a segment grow instead of adding another one.",
};

const idOf = (name) => "term-" + name.replace(/\W+/g, "-");

/** Returns a word with what it means, or the plain text if that is not known. */
function term(name, text = name) {
  if (!Object.hasOwn(TERMS, name)) return text;
  return word(text, idOf(name));
}

/** Returns a word that the element with that id describes. */
function word(text, id) {
  return make("button", { type: "button", class: "term", "aria-describedby": id }, text);
}

/** Returns the name of a policy with what it means. What follows a comma is a setting. */
function policyTerm(label) {
  const [name] = label.split(",");
  return [term(name), label.slice(name.length)];
}

/** Returns a text as parts: `[word]` and `[text|word]` stand for words with what they mean. */
function explained(text) {
  return text.split(/(\[[^\]]+\])/).map((part) => {
    if (!part.startsWith("[")) return part;
    const [shown, name] = part.slice(1, -1).split("|");
    return term(name || shown, shown);
  });
}

/** Makes words of the heads of the table of numbers, whose meanings are in their titles. */
function explainHeads() {
  const ids = new Map();
  for (const head of document.querySelectorAll(".numbers th[title]")) {
    const [name, meaning] = [head.textContent, head.title];
    ids.set(name, "head-" + ids.size);
    head.removeAttribute("title");
    head.replaceChildren(word(name, ids.get(name)), make("span", { id: ids.get(name), hidden: true }, meaning));
  }
  // On a narrow page each number has its head next to it.
  for (const cell of document.querySelectorAll(".numbers td[data-head]")) {
    cell.prepend(make("span", { class: "narrow" }, word(cell.dataset.head, ids.get(cell.dataset.head))));
    cell.removeAttribute("data-head");
  }
  for (const cell of document.querySelectorAll(".numbers th[scope=row]")) {
    cell.replaceChildren(...policyTerm(cell.textContent));
  }
}

/** Returns the list of all words, in a fold, and what describes their buttons to those who do not see them. */
function glossary() {
  const names = Object.keys(TERMS).sort();
  const list = names.flatMap((name) => [make("dt", {}, name), make("dd", {}, TERMS[name])]);
  const fold = make("details", { class: "glossary" }, make("summary", {}, "Words on this page"),
    make("dl", {}, ...list));
  // What is in a closed fold describes nothing.
  return [fold, make("div", { hidden: true }, ...names.map((name) => make("p", { id: idOf(name) }, TERMS[name])))];
}

/** Shows what a word means while a pointer or the focus is on it, or once it is tapped. */
function showMeanings() {
  const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
  document.body.append(tip);
  let shown = null;
  let later = 0;
  const wordOf = (event) => (event.target.closest ? event.target.closest(".term") : null);
  const hide = () => {
    clearTimeout(later);
    tip.hidden = true;
    shown = null;
  };
  const show = (word) => {
    clearTimeout(later);
    if (shown === word) return;
    shown = word;
    tip.textContent = document.getElementById(word.getAttribute("aria-describedby")).textContent;
    tip.hidden = false;
    const box = word.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left), root.clientWidth - tip.offsetWidth - 8);
    const above = box.bottom + tip.offsetHeight + 8 > root.clientHeight;
    tip.style.left = left + scrollX + "px";
    tip.style.top = (above ? box.top - tip.offsetHeight - 6 : box.bottom + 6) + scrollY + "px";
  };
  addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    if (tip.contains(event.target)) clearTimeout(later);
    else if (wordOf(event)) show(wordOf(event));
  });
  addEventListener("pointerout", (event) => {
    if (shown && (wordOf(event) || tip.contains(event.target)) && document.activeElement !== shown) {
      clearTimeout(later);
      later = setTimeout(hide, 150);
    }
  });
  addEventListener("focusin", (event) => (wordOf(event) ? show(wordOf(event)) : hide()));
  addEventListener("focusout", hide);
  addEventListener("click", (event) => (wordOf(event) ? show(wordOf(event)) : tip.contains(event.target) || hide()));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("resize", hide);
}
