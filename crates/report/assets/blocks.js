// The blocks of the map: which lies in a cell, and what is known of it.

const FRAMES_SHOWN = 6;

/** Returns the table of the named blocks of a program: where each number is in it, and when each is allocated. */
function namedOf(program) {
  const { blocks } = program;
  if (!blocks.read) {
    const places = new Map(Array.from(numbers(blocks.numbers), (number, place) => [number, place]));
    blocks.read = { places, born: numbers(blocks.born) };
  }
  return blocks.read;
}

/** Returns the named blocks of a row: where each begins in its segment, and its place in the table. */
function placedIn(program, row) {
  const { places } = namedOf(program);
  const placed = [];
  let [offset, number] = [0, 0];
  for (let at = 0; at < (row.blocks || []).length; at += 2) {
    offset += row.blocks[at];
    number += row.blocks[at + 1];
    placed.push({ offset, block: places.get(number) });
  }
  return placed;
}

/** Returns for each cell of a row the named block that covers at least half of it and more than any other, by its place
 * in `placedIn`; -1 where there is none. */
function cellBlocks(program, row) {
  if (row.covers) return row.covers;
  const { cell } = program;
  const cells = Math.max(1, Math.ceil(row.bytes / cell));
  const most = new Float64Array(cells);
  const covers = new Int32Array(cells).fill(-1);
  placedIn(program, row).forEach(({ offset, block }, place) => {
    const begin = Math.max(0, offset - (row.begin || 0));
    const end = Math.min(row.bytes, offset - (row.begin || 0) + program.blocks.bytes[block]);
    for (let at = Math.floor(begin / cell); at * cell < end; at += 1) {
      const part = Math.min(end, (at + 1) * cell) - Math.max(begin, at * cell);
      const whole = Math.min(row.bytes, (at + 1) * cell) - at * cell;
      if (part > most[at] && 2 * part >= whole) {
        most[at] = part;
        covers[at] = place;
      }
    }
  });
  row.covers = covers;
  return covers;
}

/** Returns what can be pointed at, in order: blocks where they are known, or else cells of one use side by side. */
function stopsOf(program, boxes) {
  const stops = [];
  for (const box of boxes) {
    const { row, use, tag } = box;
    const covers = cellBlocks(program, row);
    const placed = tag < 0 ? [] : placedIn(program, row);
    for (let at = 0; at < box.cells; at += 1) {
      const place = tag < 0 ? -1 : covers[box.first + at];
      const last = stops[stops.length - 1];
      const rect = { x: box.x + at * CELL, y: box.y, width: CELL };
      const goesOn = last && last.row === row && last.place === place && (place >= 0 || last.box === box);
      if (!goesOn) stops.push({ row, use, tag, box, place, placed: placed[place], rects: [rect] });
      else if (last.box === box) last.rects[last.rects.length - 1].width += CELL;
      else {
        last.rects.push(rect);
        last.box = box;
      }
    }
  }
  return stops;
}

function stopAt(stops, x, y) {
  return stops.findIndex(({ rects }) => rects.some((rect) =>
    x >= rect.x && x < rect.x + rect.width && y >= rect.y - 1 && y < rect.y + ROW + 1));
}

/** Returns the stop in the next line of the map, up or down, that is nearest to one. */
function stopBeyond(stops, from, step) {
  const { x, y } = stops[from].rects[0];
  let [best, distance] = [from, Infinity];
  stops.forEach(({ rects }, at) => {
    for (const rect of rects) {
      const lines = (rect.y - y) * step;
      if (lines <= 0) continue;
      const aside = Math.max(0, rect.x - x, x - rect.x - rect.width + 1);
      if (lines * 10000 + aside < distance) [best, distance] = [at, lines * 10000 + aside];
    }
  });
  return best;
}

function outline(context, stop) {
  context.strokeStyle = colour("mark");
  context.lineWidth = 2;
  for (const { x, y, width } of stop.rects) context.strokeRect(x - 1, y - 1, width + 2, ROW + 2);
}

/** Returns what lies at a stop, in words: a list of children for an element. */
function toldAt(program, stop) {
  const { row, use, tag, placed } = stop;
  const place = row.window ? "a window" : `segment ${row.segment}`;
  const what = USES[use][1];
  if (!placed) {
    const blocks = tag < 0 ? "" : `; blocks ${SIZES[tag >> 2]}, which live: ${LIVES[tag & 3]}`;
    return [`Stream ${row.stream}, ${place} of ${bytes(row.bytes)}: ${what}${blocks}`];
  }
  const { blocks } = program;
  const at = placed.block;
  const born = namedOf(program).born[at];
  const lived = blocks.lived[at];
  const end = lived ? `freed at event ${count(born + lived + 1)}` : "not freed in the pass";
  const offset = placed.offset ? `${bytes(placed.offset)} into ${place}` : `at the start of ${place}`;
  const facts = `, ${offset}, stream ${blocks.streams[at]}: ${what}. Allocated at event ${count(born + 1)}, ${end}.`;
  return [make("strong", {}, `Block of ${bytes(blocks.bytes[at])}`), facts, ...originLine(program, at)];
}

function originLine(program, block) {
  const { frames, label } = originOf(program.who, block);
  const first = frames.findIndex((frame) => !frame.library);
  const line = frames.slice(0, Math.max(FRAMES_SHOWN, first + 1)).flatMap(({ text }, at) => [
    at ? " ← " : null, at === first ? make("strong", {}, text) : text]);
  if (frames.length > FRAMES_SHOWN) line.push(" ← …");
  const parts = [];
  if (label !== undefined) parts.push(make("span", { class: "origin" }, `Label: ${label}`));
  if (line.length) parts.push(make("span", { class: "origin" }, ...line));
  return parts;
}
