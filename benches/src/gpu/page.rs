//! Tables in Markdown, and comma-separated values.

use std::fmt::Write;

use millpond::text::format_bytes;

use super::case::Goal;
use super::compare::{Outcome, Row, Single, Threaded};
use super::contest::Turn;
use crate::case::Unit;
use crate::measure::{Race, Spread};

/// An explanation of the tables.
pub const LEGEND: &str = "\
Every subject goes over the same list of operations, one after the other in each round, alone on the device and from an
empty cache. Numbers are medians over the rounds; *noise* is the width of the middle half of the rounds as a share of
the median; *ratio* is the median over the rounds of the subject's time to the first subject's in the same round, so
above 1 the first subject is faster. *Warm* is nanoseconds of passes that found their memory cached, *cold* milliseconds
from an empty cache through the first pass, driver calls included. *Reserved* is the most that was held by the end of
the first pass, *over live* as a multiple of what was asked for at one time. *p50* to *p99.9* are single operations in
nanoseconds (an allocation or a free), timed one by one, without the clock's own cost. *Checked* blocks were there and
apart from all others alive. *Evicted* is the median of an operation in front of which 8 MiB of other memory are
written, so that nothing of the allocator's is left in the processor's first two caches: what it costs where the program
works on its own data between two requests; the *ratio* behind it is to the first subject's. *Processor ns* is the
processor time of an operation, of all threads together.
";

fn times<T>(row: &Row<T>, first: &Row<T>, time: impl Fn(&T) -> f64) -> Option<f64> {
    let pairs = row.turns.iter().zip(&first.turns);
    let ratios: Vec<f64> = pairs.map(|(own, firsts)| time(own) / time(firsts)).collect();
    (!ratios.is_empty()).then(|| Spread::of(ratios).median)
}

fn spread<T>(row: &Row<T>, time: impl Fn(&T) -> f64) -> Option<Spread> {
    (!row.turns.is_empty()).then(|| Spread::of(row.turns.iter().map(time).collect()))
}

/// Returns the number of operations in the lists that a row's subject had.
fn ops(single: &Single, row: &Row<Turn>) -> usize {
    row.shortened.unwrap_or(single.ops)
}

/// Returns a function from a turn to its nanoseconds per unit.
fn warm(single: &Single, row: &Row<Turn>) -> impl Fn(&Turn) -> f64 {
    let units = single.case.units(ops(single, row)) as f64;
    move |turn| turn.pass_ns / units
}

fn warm_times(single: &Single, row: &Row<Turn>) -> Option<f64> {
    let first = &single.rows[0];
    let (own, firsts) = (warm(single, row), warm(single, first));
    let pairs = row.turns.iter().zip(&first.turns);
    let ratios: Vec<f64> = pairs.map(|(turn, other)| own(turn) / firsts(other)).collect();
    (!ratios.is_empty()).then(|| Spread::of(ratios).median)
}

/// Returns the ratio of cold times, if the list is whole: times of a part cannot be compared.
fn cold_times(single: &Single, row: &Row<Turn>) -> Option<f64> {
    if row.shortened.is_some() { None } else { times(row, &single.rows[0], |turn| turn.cold_ns) }
}

/// Returns the ratio of the times behind evictions.
fn evicted_times(single: &Single, row: &Row<Turn>) -> Option<f64> {
    let p50 = |row: &Row<Turn>| Some(row.turns.first()?.closer?.evicted.p50);
    Some(p50(row)? / p50(&single.rows[0])?)
}

/// Returns the row's cells behind the subject's name, which are empty if it has no turns.
fn cells(single: &Single, row: &Row<Turn>) -> String {
    let Some(spread) = spread(row, warm(single, row)) else { return "| | | | | | | | | | | | | | 0 |".to_owned() };
    let mut out = format!("| {:.1} | {:.0} % ", spread.median, spread.noise_percent());
    // Writing to a string cannot fail.
    let _ = write!(out, "| {:.2} ", warm_times(single, row).unwrap_or(f64::NAN));
    let cold = Spread::of(row.turns.iter().map(|turn| turn.cold_ns / 1e6).collect());
    let _ = match cold_times(single, row) {
        Some(times) => write!(out, "| {:.2} | {times:.2} ", cold.median),
        None => write!(out, "| | "),
    };
    let _ = match row.turns[0].reserved.filter(|_| row.shortened.is_none()) {
        Some(bytes) => write!(out, "| {} | {:.3} ", format_bytes(bytes), bytes as f64 / single.live.max(1) as f64),
        None => write!(out, "| | "),
    };
    let _ = match row.turns[0].closer {
        Some(look) => {
            let l = look.latency;
            let _ = write!(out, "| {:.0} | {:.0} | {:.0} ", l.p50, l.p99, l.p999);
            let ratio = evicted_times(single, row).unwrap_or(f64::NAN);
            write!(out, "| {:.0} | {ratio:.2} | {} |", look.evicted.p50, look.blocks)
        }
        None => write!(out, "| | | | | | |"),
    };
    let _ = write!(out, " {} |", row.turns.len());
    out
}

fn notes<T>(out: &mut String, rows: &[Row<T>]) {
    for row in rows {
        if let Some(ops) = row.shortened.filter(|_| !row.turns.is_empty()) {
            let _ = writeln!(out, "- {}: the first {ops} operations of the list only", row.name);
        }
        if let Some(note) = &row.note {
            let _ = writeln!(out, "- {}: {note}", row.name);
        }
    }
}

fn single_table(single: &Single) -> String {
    let unit = match single.case.unit {
        Unit::Pair => "pair of an allocation and its free",
        Unit::Operation => "operation",
    };
    let live = format_bytes(single.live);
    let mut out =
        format!("### {}\n\n{} operations, {live} live; warm in ns per {unit}\n\n", single.case.name, single.ops);
    out.push_str("| subject | warm | noise | ratio | cold ms | ratio | reserved | over live ");
    out.push_str("| p50 | p99 | p99.9 | evicted | ratio | checked | rounds |\n");
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for row in &single.rows {
        let _ = writeln!(out, "| {} {}", row.name, cells(single, row));
    }
    out.push('\n');
    notes(&mut out, &single.rows);
    goals(&mut out, single.case.goals, |goal| match *goal {
        Goal::Warm(_, peer) => find(&single.rows, peer).and_then(|row| warm_times(single, row)),
        Goal::Cold(_, peer) => find(&single.rows, peer).and_then(|row| cold_times(single, row)),
        Goal::Threads(..) => None,
    });
    out
}

fn find<'a, T>(rows: &'a [Row<T>], name: &str) -> Option<&'a Row<T>> {
    rows.iter().find(|row| row.name == name)
}

fn goals(out: &mut String, goals: &[Goal], measured: impl Fn(&Goal) -> Option<f64>) {
    for goal in goals {
        let said = match *goal {
            Goal::Warm(least, peer) => format!("warm, at least {least} times faster than {peer}"),
            Goal::Cold(least, peer) => format!("cold, at least {least} times as fast as {peer}"),
            Goal::Threads(count, least, peer) => {
                format!("{count} threads, at least {least} times the throughput of {peer}")
            }
        };
        let found = measured(goal).map_or_else(|| "nothing".to_owned(), |times| format!("{times:.2} times"));
        let _ = writeln!(out, "\nGoal: {said}. Measured: {found}.");
    }
}

fn wall(at: usize) -> impl Fn(&Vec<Race>) -> f64 {
    move |races| races[at].wall_ns
}

fn threaded_table(threaded: &Threaded) -> String {
    let mut out = format!("### {} (operations of all threads)\n\n", threaded.case.name);
    out.push_str(
        "| subject | threads | million per second | noise | ratio | times one thread | processor ns | rounds |\n",
    );
    out.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in &threaded.rows {
        let Some(one) = spread(row, wall(0)) else {
            let _ = writeln!(out, "| {} | | | | | | | 0 |", row.name);
            continue;
        };
        for (at, threads) in threaded.threads.iter().enumerate() {
            let Some(wall_ns) = spread(row, wall(at)) else { continue };
            let ratio = times(row, &threaded.rows[0], wall(at)).unwrap_or(f64::NAN);
            let cpu: Option<Vec<f64>> = row.turns.iter().map(|races| races[at].cpu_ns).collect();
            let cpu = cpu.map_or_else(String::new, |cpu| format!("{:.1}", Spread::of(cpu).median));
            let (rate, noise, gain) = (1e3 / wall_ns.median, wall_ns.noise_percent(), one.median / wall_ns.median);
            let (name, rounds) = (&row.name, row.turns.len());
            let _ = writeln!(
                out,
                "| {name} | {threads} | {rate:.3} | {noise:.0} % | {ratio:.2} | {gain:.2} | {cpu} | {rounds} |"
            );
        }
    }
    out.push('\n');
    notes(&mut out, &threaded.rows);
    goals(&mut out, threaded.case.goals, |goal| match *goal {
        Goal::Threads(count, _, peer) => {
            let at = threaded.threads.iter().position(|threads| *threads == count)?;
            times(find(&threaded.rows, peer)?, &threaded.rows[0], wall(at))
        }
        Goal::Warm(..) | Goal::Cold(..) => None,
    });
    out
}

/// Returns one case as a table, with its goals.
pub fn table(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Single(single) => single_table(single),
        Outcome::Threaded(threaded) => threaded_table(threaded),
        Outcome::Skipped(case, why) => format!("### {}\n\nLeft out: {why}.\n", case.name),
    }
}

/// The head line for the lines of [`csv`].
pub const CSV_HEAD: &str = "case,threads,subject,operations,rounds,warm_ns,warm_ratio,cold_ms,cold_ratio,\
                            reserved_bytes,live_bytes,op_p50_ns,op_p99_ns,op_p999_ns,op_evicted_ns,cpu_ns\n";

/// Returns a case as comma-separated values, without the head: warm times are nanoseconds per unit, for several threads
/// per operation of any of them. Fields are empty where nothing was measured. No field needs quotes.
pub fn csv(outcome: &Outcome) -> String {
    let mut out = String::new();
    let cell = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
    match outcome {
        Outcome::Single(single) => {
            for row in &single.rows {
                let (warm_ns, whole) = (spread(row, warm(single, row)).map(|s| s.median), row.shortened.is_none());
                let cold = spread(row, |turn| turn.cold_ns / 1e6).map(|s| s.median).filter(|_| whole);
                let reserved = row.turns.first().and_then(|turn| turn.reserved).filter(|_| whole);
                let reserved = reserved.map_or_else(String::new, |bytes| bytes.to_string());
                let closer = row.turns.first().and_then(|turn| turn.closer);
                let (look, evicted) = (closer.map(|closer| closer.latency), closer.map(|closer| closer.evicted.p50));
                let words = [single.case.name, "1", &row.name].join(",");
                let numbers = [warm_ns, warm_times(single, row), cold, cold_times(single, row)].map(cell).join(",");
                let latency = [look.map(|l| l.p50), look.map(|l| l.p99), look.map(|l| l.p999), evicted];
                let latency = latency.map(cell).join(",");
                let (ops, rounds, live) = (ops(single, row), row.turns.len(), single.live);
                let _ = writeln!(out, "{words},{ops},{rounds},{numbers},{reserved},{live},{latency},");
            }
        }
        Outcome::Threaded(threaded) => {
            for row in &threaded.rows {
                for (at, threads) in threaded.threads.iter().enumerate() {
                    let wall_ns = spread(row, wall(at)).map(|spread| spread.median);
                    let ratio = times(row, &threaded.rows[0], wall(at));
                    let cpu: Option<Vec<f64>> = row.turns.iter().map(|races| races[at].cpu_ns).collect();
                    let cpu = cpu.filter(|cpu| !cpu.is_empty()).map(|cpu| Spread::of(cpu).median);
                    let (case, rounds) = (threaded.case.name, row.turns.len());
                    let numbers = [wall_ns, ratio].map(cell).join(",");
                    let _ = writeln!(out, "{case},{threads},{},,{rounds},{numbers},,,,,,,,,{}", row.name, cell(cpu));
                }
            }
        }
        Outcome::Skipped(..) => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Row, Single, Threaded, csv, table};
    use crate::gpu::case::{GPU_CASES, GpuCase};
    use crate::gpu::contest::{Closer, Turn};
    use crate::measure::{Latency, Race};

    fn case(name: &str) -> GpuCase {
        *GPU_CASES.iter().find(|case| case.name == name).expect(name)
    }

    fn row<T>(name: &str, turns: Vec<T>) -> Row<T> {
        Row { name: name.to_owned(), turns, shortened: None, note: None }
    }

    /// Turns that took these times for 1000 operations, and this number of milliseconds cold.
    fn turns(times_ns: &[f64], cold_ms: f64, reserved: Option<u64>) -> Vec<Turn> {
        let latency = Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4.0 };
        let turn = |(at, pass_ns): (usize, &f64)| {
            let evicted = Latency { p50: if cold_ms > 1.0 { 5.0 } else { 20.0 }, ..latency };
            let closer = (at == 0).then_some(Closer { latency, evicted, blocks: 77 });
            Turn { cold_ns: cold_ms * 1e6, pass_ns: *pass_ns, passes: 3, reserved, closer }
        };
        times_ns.iter().enumerate().map(turn).collect()
    }

    fn single(name: &str) -> Outcome {
        let own = row("millpond paged", turns(&[40e3, 50e3, 60e3], 2.0, Some(3 << 20)));
        let torch = row("torch", turns(&[400e3, 400e3], 1.0, Some(4 << 20)));
        let mut slow = row("cudaMalloc", turns(&[20e3], 5.0, None));
        slow.shortened = Some(200);
        let failed = Row { note: Some("failed: no memory".to_owned()), ..row("torch-expandable", Vec::new()) };
        Outcome::Single(Single { case: case(name), ops: 1000, live: 2 << 20, rows: vec![own, torch, slow, failed] })
    }

    #[test]
    fn times_are_per_unit_and_ratios_by_round() {
        let page = table(&single("trace/gnn"));
        for line in [
            "| millpond paged | 50.0 | 20 % | 1.00 | 2.00 | 1.00 | 3.00 MiB | 1.500 | 1 | 2 | 3 | 5 | 1.00 | 77 | 3 |",
            // The median of 10 and 8, over the rounds that both had.
            "| torch | 400.0 | 0 % | 9.00 | 1.00 | 0.50 | 4.00 MiB | 2.000 | 1 | 2 | 3 | 20 | 4.00 | 77 | 2 |",
            // Times are per operation of its own list; cold times of a part of the list are left out.
            "| cudaMalloc | 100.0 | 0 % | 2.50 | | | | | 1 | 2 | 3 | 5 | 1.00 | 77 | 1 |",
            "- cudaMalloc: the first 200 operations of the list only",
            "- torch-expandable: failed: no memory",
            "Goal: warm, at least 8 times faster than torch. Measured: 9.00 times.",
            "Goal: cold, at least 1 times as fast as torch-expandable. Measured: nothing.",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        let pairs = table(&single("hit/4KiB"));
        assert!(pairs.contains("| millpond paged | 100.0 |") && pairs.contains("| cudaMalloc | 200.0 |"), "{pairs}");
        let widths: Vec<_> =
            page.lines().filter(|line| line.starts_with('|')).map(|l| l.matches('|').count()).collect();
        assert_eq!(widths, [16; 6], "{page}");
    }

    #[test]
    fn threads_are_compared_by_their_throughput() {
        let race = |wall_ns, cpu| Race { wall_ns, cpu_ns: cpu };
        let own = row("millpond paged", vec![vec![race(40.0, Some(40.0)), race(4.0, Some(50.0))]]);
        let torch = row("torch", vec![vec![race(200.0, None), race(400.0, None)]]);
        let rows = vec![own, torch, row("silent", Vec::new())];
        let case = case("threads/hit/1MiB");
        let outcome = Outcome::Threaded(Threaded { case, threads: vec![1, 16], rows });
        let page = table(&outcome);
        for line in [
            "| millpond paged | 16 | 250.000 | 0 % | 1.00 | 10.00 | 50.0 | 1 |",
            "| torch | 16 | 2.500 | 0 % | 100.00 | 0.50 |  | 1 |",
            "| silent | | | | | | | 0 |",
            "Goal: 16 threads, at least 50 times the throughput of torch. Measured: 100.00 times.",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        assert!(csv(&outcome).contains("threads/hit/1MiB,16,torch,,1,400.000,100.000,,,,,,,,,\n"), "{}", csv(&outcome));
    }
}
