//! Tables in Markdown: what is printed is what is recorded.

use std::fmt::Write;

use super::{CaseResult, Run, ThreadResult};
use crate::case::{Goal, THREADS, Unit};
use crate::measure::{Measured, Spread, WARM_PASSES};
use crate::subject::Kind;

/// Returns an explanation of the tables.
fn legend() -> String {
    format!(
        "\
Times are nanoseconds: *median* over the rounds, in each of which every subject had its turn; *noise* is the width of
the middle half of the rounds as a share of the median; *best* is the best round; *ratio* is the median over the
rounds of the subject's time to the first subject's in the same round; *cold* is the first pass. Every subject made
{WARM_PASSES} passes before the first round, the cold one included, or fewer if those took 10 s; *calls* are driver
calls in one of the passes that count, the mean. *p50* to *max* are single operations (an allocation or a free), timed
one by one, with the clock's own cost taken off. *Processor ns* is the processor time of an operation, of all threads
together: it rises where threads stand in each other's way, and says little about other programs.
"
    )
}

/// Returns one case as a table with its goal.
pub fn case_table(result: &CaseResult) -> String {
    let unit = match result.case.unit {
        Unit::Pair => "pair of an allocation and its free",
        Unit::Operation => "operation",
    };
    let mut out = format!("### {} (ns per {unit})\n\n", result.case.name);
    out.push_str("| subject | median | noise | best | ratio | cold | calls | p50 | p99 | p99.9 | max |\n");
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (kind, measured) in &result.subjects {
        let spread = measured.spread();
        let ratio = measured.times(&result.subjects[0].1);
        // Writing to a string cannot fail.
        let _ = write!(out, "| {} | {:.1} | {:.0} % ", kind.name(), spread.median, spread.noise_percent());
        let calls = measured.driver_calls.map_or_else(String::new, |calls| format!("{calls:.1} "));
        let _ = write!(out, "| {:.1} | {ratio:.2} | {:.1} | {calls}", spread.min, measured.cold_ns);
        let _ = match measured.latency {
            Some(l) => writeln!(out, "| {:.0} | {:.0} | {:.0} | {:.0} |", l.p50, l.p99, l.p999, l.max),
            None => writeln!(out, "| | | | |"),
        };
    }
    out.push('\n');
    out.push_str(&goal_line(result));
    out
}

fn goal_line(result: &CaseResult) -> String {
    let own = &result.subjects[0].1;
    let times = |peer: Kind, f: &dyn Fn(&Measured) -> f64| match result.of(peer) {
        Some(peer) => format!("{:.2} times", f(peer)),
        None => "not in this build".to_owned(),
    };
    match result.case.goal {
        Goal::Within(most, peer) => {
            let measured = times(peer, &|peer| own.times(peer));
            format!("Goal: at most {most} times {}. Measured: {measured}.\n", peer.name())
        }
        Goal::Faster(least, peer) => {
            let measured = times(peer, &|peer| peer.times(own));
            format!("Goal: {least} times faster than {}. Measured: {measured}.\n", peer.name())
        }
        Goal::Below(ns) => format!("Goal: at most {ns} ns. Measured: {:.1} ns.\n", own.spread().median),
    }
}

/// Returns a case on several threads as a table.
pub fn thread_table(result: &ThreadResult) -> String {
    let mut out = format!("### {} (operations of all threads)\n\n", result.case.name);
    out.push_str("| subject | threads | million per second | noise | times one thread | processor ns |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for (kind, races) in &result.subjects {
        let walls: Vec<_> = races.iter().map(|races| Spread::of(races.wall_ns.clone())).collect();
        for ((threads, wall), races) in THREADS.iter().zip(&walls).zip(races) {
            let (rate, noise, gain) = (1e3 / wall.median, wall.noise_percent(), walls[0].median / wall.median);
            let cpu = races.cpu_median().map_or_else(String::new, |cpu| format!("{cpu:.1}"));
            let _ = writeln!(out, "| {} | {threads} | {rate:.2} | {noise:.0} % | {gain:.2} | {cpu} |", kind.name());
        }
    }
    out
}

/// Returns a run as a page.
pub fn summary(run: &Run) -> String {
    let machine = &run.machine;
    let mut out = format!("# {}, {}\n\n", machine.name, run.date);
    let mhz = machine.mhz.as_deref().map_or_else(String::new, |mhz| format!(" at {mhz} MHz"));
    let _ = write!(out, "{}{mhz}, {} cores, {} rounds per case. ", machine.processor, machine.cores, run.rounds);
    let _ = write!(out, "Reading the clock twice costs {:.1} ns here. ", run.clock_ns);
    if let [Some(before), Some(after)] = &run.load {
        let _ = write!(out, "System load (1, 5 and 15 minutes, runnable) before: {before}; after: {after}.");
    }
    let _ = write!(out, "\n\n{}", legend());
    let cases = run.cases.iter().map(case_table);
    for table in cases.chain(run.threads.iter().map(thread_table)) {
        let _ = write!(out, "\n{table}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{case_table, summary, thread_table};
    use crate::case::{CASES, Case, Goal, THREAD_CASES};
    use crate::measure::{Latency, Measured, Races};
    use crate::report::{CaseResult, Machine, Run, ThreadResult, csv};
    use crate::subject::{self, Kind};

    const PAGED: Kind = Kind::Millpond(subject::PAGED);

    fn run() -> Run {
        let measured = |ns: f64, latency, driver_calls| {
            let turns_ns = vec![ns, ns, 2.0 * ns];
            Measured { cold_ns: 9.0, turns_ns, latency, driver_calls }
        };
        let latency = Some(Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4.0 });
        let subjects = vec![(PAGED, measured(30.0, latency, Some(0.25))), (Kind::Offset, measured(20.0, None, None))];
        let case = Case { goal: Goal::Within(1.5, Kind::Offset), ..CASES[0] };
        let wall = |ns: f64| Races { wall_ns: vec![ns], cpu_ns: vec![2.0 * ns] };
        let walls = vec![wall(50.0), wall(25.0), wall(26.0), wall(25.0), wall(25.0)];
        Run {
            machine: Machine { name: "m".to_owned(), processor: "p".to_owned(), cores: 2, mhz: None },
            date: "2026-01-31".to_owned(),
            rounds: 3,
            clock_ns: 10.0,
            load: [None, None],
            cases: vec![CaseResult { case, ops: 10, subjects }],
            threads: vec![ThreadResult { case: THREAD_CASES[0], subjects: vec![(PAGED, walls)] }],
        }
    }

    #[test]
    fn a_case_shows_its_ratio_and_its_goal() {
        let table = case_table(&run().cases[0]);
        assert!(
            table.contains("| millpond paged | 30.0 | 50 % | 30.0 | 1.00 | 9.0 | 0.2 | 1 | 2 | 3 | 4 |\n"),
            "{table}"
        );
        assert!(table.contains("| offset-allocator | 20.0 | 50 % | 20.0 | 0.67 | 9.0 | | | | | |\n"), "{table}");
        assert!(table.ends_with("Goal: at most 1.5 times offset-allocator. Measured: 1.50 times.\n"), "{table}");
        let mut faster = run().cases.remove(0);
        faster.case.goal = Goal::Faster(500.0, Kind::Cubecl);
        assert!(case_table(&faster).ends_with("than cubecl. Measured: not in this build.\n"));
    }

    #[test]
    fn threads_show_throughput_and_gain() {
        let table = thread_table(&run().threads[0]);
        assert!(table.contains("| millpond paged | 2 | 40.00 | 0 % | 2.00 | 50.0 |\n"), "{table}");
        assert!(table.contains("| millpond paged | 16 | 40.00 |"), "{table}");
    }

    #[test]
    fn the_page_has_all_tables_and_the_csv_as_many_fields_as_its_head() {
        let run = run();
        let page = summary(&run);
        assert!(page.starts_with("# m, 2026-01-31\n") && page.matches("\n### ").count() == 2, "{page}");
        let text = csv(&run);
        let fields: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [19; 8], "{text}");
        assert!(
            text.contains("hit/4KiB,1,offset-allocator,pair,3,20.00,20.00,20.00,30.00,9.00,0.667,,,,,,\n"),
            "{text}"
        );
        assert!(
            text.contains("threads/hit/1MiB,2,millpond paged,operation,1,25.00,25.00,25.00,25.00,,,50.00,,,,,\n"),
            "{text}"
        );
    }
}
