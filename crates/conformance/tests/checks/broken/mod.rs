//! Tests of the suite itself: backends with one flaw each are refused by a named check whose message names the verb,
//! and the same backend without a flaw passes.

#![allow(unsafe_code)] // The contract's unsafe trait and methods, for the toys.
#![allow(unreachable_pub)] // A test is no library.

mod error;
mod flaw;
mod toy;

use millpond_conformance::suite::{run, run_group};
use millpond_conformance::{DeviceUnderTest, Outcome, ScenarioResult};

use flaw::{FLAWS, Flaw};
use toy::Toys;

/// A toy with all controls and no flaw.
const SOUND: Toys = Toys { flaw: None, told: true, holds: true };

/// Returns the failures of a group, by name.
fn failures(results: &[ScenarioResult]) -> Vec<(&str, &str)> {
    let failed = |result: &'_ ScenarioResult| matches!(result.outcome, Outcome::Failed(_));
    let failed = results.iter().filter(|result| failed(result));
    failed.map(|result| (result.name.as_str(), text(&result.outcome))).collect()
}

fn text(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(text) => text,
        _ => "",
    }
}

/// Runs the group of the check that must refuse the toy. Returns an error if the check passes, or if its message does
/// not name the verb and the rule.
fn refused(toys: Toys, check: &str, verb: &str) -> Result<String, String> {
    let group = check.split('/').next().expect("a check's name begins with its group");
    let results = run_group(&toys, group, &[]);
    let failed = failures(&results);
    let Some((_, text)) = failed.iter().find(|(name, _)| *name == check) else {
        return Err(format!("{} passes {check}; of {group} fail {failed:?}", toys.name()));
    };
    if !text.starts_with(verb) || !text.contains("The rule (crates/backend, ") {
        return Err(format!("{}: {check} does not name {verb} and its rule: {text}", toys.name()));
    }
    Ok(format!("{:?}: {check}: {text}", toys.flaw))
}

#[test]
fn every_flaw_is_refused_by_its_check() {
    let outcomes: Vec<_> =
        FLAWS.iter().map(|&(flaw, check, verb)| refused(Toys { flaw: Some(flaw), ..SOUND }, check, verb)).collect();
    for refused in outcomes.iter().flatten() {
        println!("{refused}");
    }
    let passed: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(passed.is_empty(), "{} of {}:\n{passed:#?}", passed.len(), FLAWS.len());
}

#[test]
fn the_page_lists_every_flaw() {
    let page = include_str!("../../../../../docs/reference/conformance-checks.md");
    let missing: Vec<_> = FLAWS.iter().filter(|(_, check, _)| !page.contains(&format!("| `{check}` |"))).collect();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("` | `")).count();
    assert_eq!((missing, rows), (Vec::new(), FLAWS.len()));
}

/// Leaks are found even where the author counts nothing, because memory that is taken and released repeatedly runs out.
#[test]
fn leaks_are_found_without_counts() {
    let leaks = [Flaw::ReleaseLeaks, Flaw::ReleasePageLeaks, Flaw::ReleaseRangeLeaks];
    let untold = |(flaw, check, verb)| refused(Toys { flaw: Some(flaw), told: false, ..SOUND }, check, verb);
    let outcomes: Vec<_> = FLAWS.into_iter().filter(|(flaw, ..)| leaks.contains(flaw)).map(untold).collect();
    assert_eq!(outcomes.len(), leaks.len());
    let passed: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(passed.is_empty(), "{passed:#?}");
}

/// Time that is told too early is found even where the author can hold no work, because old bytes are read.
#[test]
fn early_ticks_are_found_without_a_hold() {
    for (flaw, verb) in [(Flaw::ReachedRunsAhead, "Backend::reached"), (Flaw::WaitClaimsThePoint, "Backend::wait")] {
        let toys = Toys { flaw: Some(flaw), holds: false, ..SOUND };
        let text = refused(toys, "time/what-is-reached-can-be-read", verb).unwrap_or_else(|why| panic!("{why}"));
        assert!(text.contains("What to do: return a tick only when"), "{text}");
    }
}

/// A message also says what to do, where the rule alone does not.
#[test]
fn messages_say_what_to_do() {
    let advice = [
        (Flaw::AlignmentIsALie, "space/segments-are-aligned-and-apart", "announce the driver's alignment"),
        (Flaw::WrongFault, "space/too-much-is-out-of-memory", "return Fault::OutOfMemory from BackendError::fault"),
        (
            Flaw::ReleaseLeaks,
            "space/what-is-released-can-be-had-again",
            "and is 3 segments, 0 pages and 0 ranges with 3145728 bytes",
        ),
        (Flaw::StreamsShareANumber, "budget/is-plausible", "Backend::create_stream: a freshly opened device"),
        (Flaw::MarkStands, "time/marks-rise-above-what-is-reached", "close the open tick in reached"),
        (Flaw::UnmapDoesNothing, "mapping/a-page-moves-with-its-bytes", "a page was unmapped at offset 0"),
        (Flaw::BudgetStands, "budget/follows-reserve-and-release", "ask the driver at each call"),
        (Flaw::BudgetIsInKib, "budget/follows-reserve-and-release", "return bytes: the driver's numbers may be in KiB"),
        (Flaw::BudgetIsWhatIsUsed, "budget/follows-reserve-and-release", "return what is free, not what is in use"),
        (Flaw::BudgetIsSwapped, "budget/follows-reserve-and-release", "total_bytes, which never change"),
        (Flaw::ReleaseLeaks, "budget/follows-reserve-and-release", "see why the release gives nothing back"),
    ];
    for (flaw, check, text) in advice {
        let said = refused(Toys { flaw: Some(flaw), ..SOUND }, check, "B").unwrap_or_else(|why| why);
        assert!(said.contains(text), "{flaw:?}: {said}");
    }
}

#[test]
fn without_a_flaw_everything_passes() {
    let results = run(&SOUND, &[], &mut |_| {});
    assert_eq!(failures(&results), []);
    let untold = Toys { told: false, ..SOUND };
    let mut contract: Vec<_> = FLAWS.iter().filter_map(|(_, check, _)| check.split('/').next()).collect();
    contract.dedup();
    for group in contract {
        let alone = run_group(&untold, group, &[]);
        for result in alone.iter().chain(results.iter().filter(|result| result.name.split('/').next() == Some(group))) {
            assert_eq!(result.outcome, Outcome::Passed, "the toy can do everything: {}", result.name);
        }
    }
}
