"""Tables of what programs took on each allocator: of each program, of their means, and of the worst."""

import json
import math
import pathlib
import statistics

from programs.allocators import ALLOCATORS

HEAD = """\
| program | allocator | reserved GiB | live GiB | reserved / live | ms a step | over native | retries | driver \
requests | loss |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"""
# By how much more than two native runs the losses of another allocator may differ from theirs: of few runs, the two
# that are compared need not be those that differ most.
LIKE_CONTROL = 4


def later(times):
    """Returns the times of the steps in the second half, in milliseconds."""
    return times[len(times) // 2:]


def summed(rounds):
    """Returns one row for all rounds of a program on an allocator: those that did not finish count as one that failed,
    whatever the others were."""
    for row in rounds:
        if "losses" not in row:
            return row
    row = dict(max(rounds, key=lambda row: row.get("reserved", 0)))
    row["times"] = [statistics.median(step) for step in zip(*(row["times"] for row in rounds))]
    row["later"] = [later(one["times"]) for one in rounds]
    row["runs"] = [one["losses"] for one in rounds]
    return row


def over(row, native):
    """Returns what each step of the second half takes over the same step of the same round natively: a list for each
    round."""
    return [[mine / its for mine, its in zip(*both)] for both in zip(row["later"], native["later"])]


def median_over(row, native):
    """Returns the median of what all these steps take over the native ones."""
    return statistics.median(ratio for each in over(row, native) for ratio in each)


def told(row, native):
    """Returns what steps take over the native ones as a cell of the table."""
    each = [statistics.median(ratios) for ratios in over(row, native)]
    return f"{median_over(row, native):.3f} ({min(each):.3f} to {max(each):.3f})"


def apart(one, other):
    """Returns the most by which the losses of a step of two runs differ, over the size of that loss."""
    most = 0.0
    for mine, its in zip(one, other):
        if mine != its and not (math.isnan(mine) and math.isnan(its)):
            most = max(most, abs(mine - its) / max(abs(its), 1e-12)) if math.isfinite(mine - its) else math.inf
    return most


def spread(runs):
    """Returns the most by which two of these runs are apart."""
    return max((apart(one, other) for one in runs for other in runs if one is not other), default=0.0)


def sameness(row, natives):
    """Returns how the losses of all steps compare with those of the native runs: ``equal`` to one of them, ``like
    control``, or ``DIFFERS``, with how far they are apart, and how far native runs are. Nothing is said of a native run
    that is the only one."""
    if all(native is run for native in natives for run in row["runs"]):
        return ""
    nearest = max(min(apart(run, native) for native in natives if native is not run) for run in row["runs"])
    if nearest == 0:
        return "equal"
    usual = spread(natives)
    if len(natives) < 2:
        return f"{nearest:.1e} apart"
    if nearest <= LIKE_CONTROL * usual:
        return f"like control ({nearest:.1e}, {usual:.1e})"
    return f"DIFFERS ({nearest:.1e}, {usual:.1e})"


def line(row, native=None, natives=()):
    """Returns a row as a line of the table, with its times over those of the native row, and its losses compared with
    those of the native runs."""
    cells = [row["program"], row["allocator"]]
    if "skipped" in row:
        return "| " + " | ".join([*cells, *[""] * 7, f"SKIPPED: {row['skipped']}"]) + " |"
    if "failed" in row:
        why = row["failed"].replace("|", "/")
        return "| " + " | ".join([*cells, *[""] * 7, f"NOT FINISHED, at step {row['step']}: {why}"]) + " |"
    if "reserved" in row:
        of = row["driver"]
        requests = str(of["num_device_alloc"] + of["num_device_free"]) if of else "not told"
        if "driver.calls" in of:
            requests += f" ({of['driver.calls']} calls, {of['driver.stalls']} waits)"
        cells += [f"{row['reserved'] / 2**30:.2f}", f"{row['live'] / 2**30:.2f}"]
        cells += [f"{row['reserved'] / row['live']:.3f}"]
    else:
        cells += ["", "", ""]
    cells += [f"{statistics.median(later(row['times'])):.1f}", told(row, native) if native else ""]
    cells += [str(row["retries"]), requests] if "reserved" in row else ["", ""]
    loss = f"{row['loss']:.6f}"
    if "runs" in row and row["allocator"] != "native" and natives:
        loss += f" {sameness(row, natives)}"
    return "| " + " | ".join([*cells, loss.strip()]) + " |"


def mean(values):
    """Returns the geometric mean, or ``None`` of nothing."""
    values = list(values)
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def cell(value):
    """Returns a ratio as a cell."""
    return "" if value is None else f"{value:.3f}"


class Figures:
    """The ratios of the programs of a kind, by allocator."""

    def __init__(self, rows):
        finished = [row for row in rows if "reserved" in row]
        self.allocators = list(dict.fromkeys(row["allocator"] for row in rows))
        self.of = {(row["program"], row["allocator"]): row for row in finished}
        self.unfinished = [row for row in rows if "failed" in row]

    def waste(self, allocator):
        """Returns what is reserved over what is live, by program."""
        return {key[0]: row["reserved"] / row["live"] for key, row in self.of.items() if key[1] == allocator}

    def times(self, allocator):
        """Returns what the second half of the steps takes over the native ones, by program."""
        both = {key[0]: (row, self.of.get((key[0], "native"))) for key, row in self.of.items() if key[1] == allocator}
        return {name: median_over(row, native) for name, (row, native) in both.items() if native}

    def line(self, kind, allocator):
        """Returns a line of the table of means."""
        waste, times = self.waste(allocator), self.times(allocator)
        lost = [row["program"] for row in self.unfinished if row["allocator"] == allocator]
        worst = [f"{max(one.values()):.3f} ({max(one, key=one.get)})" if one else "" for one in (waste, times)]
        cells = [kind, allocator, str(len(waste)), cell(mean(waste.values())), worst[0], cell(mean(times.values())),
                 worst[1], ", ".join(lost)]
        return "| " + " | ".join(cells) + " |"


def means(catalogue, table):
    """Returns a table with the geometric means of reserved over live and of the time over native's, and the worst of
    each, by the kind of programs and by allocator."""
    lines = ["| programs | allocator | finished | reserved / live | worst | time over native | worst | not finished |",
             "|---|---|---:|---:|---:|---:|---:|---|"]
    for kind in dict.fromkeys(catalogue.kind(row["program"]) for row in table):
        figures = Figures([row for row in table if catalogue.kind(row["program"]) == kind])
        lines += [figures.line(kind, allocator) for allocator in figures.allocators]
    return "\n".join(lines)


def write(catalogue, folder, measured):
    """Writes all rows as JSON, and the tables. Returns the tables."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{catalogue.file}.json").write_text(json.dumps(measured, indent=1) + "\n")
    each, natives = {}, {}
    for row in measured:
        each.setdefault((row["program"], row["allocator"]), []).append(row)
        if row["allocator"] in ("native", "control") and "losses" in row:
            natives.setdefault(row["program"], []).append(row["losses"])
    best = [summed(rounds) for rounds in each.values()]
    best.sort(key=lambda row: (catalogue.names.index(row["program"]), list(ALLOCATORS).index(row["allocator"])))
    native = {row["program"]: row for row in best if row["allocator"] == "native" and "later" in row}
    lines = [line(row, native.get(row["program"]), natives.get(row["program"], ())) for row in best]
    text = "\n".join([HEAD, *lines]) + "\n"
    if any("reserved" in row for row in best):
        text += "\n" + means(catalogue, best) + "\n"
    (folder / f"{catalogue.file}.md").write_text(text)
    return text
