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
        FLAWS.iter().map(|&(flaw, check, verb)| refused(Toys { flaw: Some(flaw), told: true }, check, verb)).collect();
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
    let untold = |(flaw, check, verb)| refused(Toys { flaw: Some(flaw), told: false }, check, verb);
    let outcomes: Vec<_> = FLAWS.into_iter().filter(|(flaw, ..)| leaks.contains(flaw)).map(untold).collect();
    assert_eq!(outcomes.len(), leaks.len());
    let passed: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(passed.is_empty(), "{passed:#?}");
}

#[test]
fn without_a_flaw_everything_passes() {
    let results = run(&Toys { flaw: None, told: true }, &[], &mut |_| {});
    assert_eq!(failures(&results), []);
    let untold = Toys { flaw: None, told: false };
    let mut contract: Vec<_> = FLAWS.iter().filter_map(|(_, check, _)| check.split('/').next()).collect();
    contract.dedup();
    for group in contract {
        let alone = run_group(&untold, group, &[]);
        for result in alone.iter().chain(results.iter().filter(|result| result.name.split('/').next() == Some(group))) {
            assert_eq!(result.outcome, Outcome::Passed, "the toy can do everything: {}", result.name);
        }
    }
}
