//! Threads near a limit, with driver calls that take time: no request is refused where a wait would have served it.
//!
//! Each thread has streams of its own and at most one block alive. In most cases the limit holds the largest block of
//! every thread at once, so that no refusal is ever right. In the others it holds fewer, and each refusal is judged by
//! the log of the run: at some moment of the attempt what was live and what was asked for must have exceeded the limit.
//!
//! With `MILLPOND_CONTENTION_SECONDS` set, `the_table` runs each case for that number of seconds and prints the results
//! as a table; `scripts/contention.sh` keeps it under `benches/record`.

mod cases;
mod log;
mod panics;
mod run;

use std::time::Duration;

use cases::{Case, Kind};
use run::{Effort, Outcome};

/// The number of rounds of each thread in the tests.
const ROUNDS: u64 = 16;

/// Runs all cases of one kind, and judges them.
fn holds(kind: Kind) {
    for case in Case::all().into_iter().filter(|case| case.kind == kind) {
        let outcome = run::run(&case, Effort::Rounds(ROUNDS));
        judge(&case, &outcome);
    }
}

fn judge(case: &Case, outcome: &Outcome) {
    assert!(
        outcome.wrong.is_empty(),
        "{case}: {} refusals that a wait would have spared: {outcome:?}",
        outcome.refused
    );
    assert!(outcome.served > 0, "{case}: nothing was served: {outcome:?}");
    assert!(outcome.peak_reserved <= case.limit(), "{case}: more was reserved than {}: {outcome:?}", case.limit());
    // A request waits for the requests before it, each of which ends after a bounded number of driver calls: far less
    // than this, also where other programs have the processor.
    assert!(outcome.longest < Duration::from_secs(20), "{case}: {outcome:?}");
}

#[test]
fn classic() {
    holds(Kind::Classic);
}

#[test]
fn classic_with_expandable_segments() {
    holds(Kind::Expandable);
}

#[test]
fn classic_with_large_blocks_kept_whole() {
    holds(Kind::Oversize);
}

#[test]
fn direct() {
    holds(Kind::Direct);
}

#[test]
fn paged_balanced() {
    holds(Kind::Balanced);
}

#[test]
fn paged_tight() {
    holds(Kind::Tight);
}

#[test]
fn pinned() {
    holds(Kind::Pinned);
}

/// The long version runs on request only.
#[test]
fn the_table() {
    let Ok(seconds) = std::env::var("MILLPOND_CONTENTION_SECONDS") else { return };
    let seconds = seconds.parse().unwrap_or_else(|error| panic!("MILLPOND_CONTENTION_SECONDS={seconds}: {error}"));
    println!("| case | served | refused | of them wrongly | longest wait, ms | driver calls for each served |");
    println!("|---|---|---|---|---|---|");
    for case in Case::all() {
        let outcome = run::run(&case, Effort::Time(Duration::from_secs_f64(seconds)));
        let calls = outcome.calls as f64 / outcome.served.max(1) as f64;
        println!(
            "| {case} | {} | {} | {} | {:.1} | {calls:.2} |",
            outcome.served,
            outcome.refused,
            outcome.wrong.len(),
            outcome.longest.as_secs_f64() * 1e3,
        );
    }
}
