//! What the policies without windows decide, as digests in `corpus/digests.txt`: every decision, layout and counter of
//! the recorded programs and of seeded ones. A change to one of them shows here, and is to be one that was meant.
//!
//! `MILLPOND_DIGESTS_RECORD=1` writes the file anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use millpond::settings::Policy;
use millpond_conformance::SimDevice;
use millpond_conformance::sameness::{Program, trail};
use millpond_trace::Trace;

const TRACES: [&str; 7] =
    ["bert_multistream", "gnn", "gpt2_train", "llm_generate", "prefetch", "resnet50_amp", "serving_kv"];
const SEEDS: u64 = 200;
/// Seeds have a limit of their own, which is far below it.
const DEVICE: SimDevice = SimDevice::immediate(64 << 30);

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

fn digest(policy: Policy, name: &str, program: &Program<'_>) -> u64 {
    let trail = trail(&DEVICE, policy, program);
    trail.unwrap_or_else(|outcome| panic!("{name}, {}: {outcome}", policy.variant_name())).digest_of_blocks()
}

#[test]
fn policies_without_windows_decide_as_they_did() {
    let traces = TRACES.map(|name| {
        let path = corpus("traces").join(format!("{name}.trace.gz"));
        (name, Trace::read(&path).unwrap_or_else(|error| panic!("{name}: {error}")))
    });
    let mut lines = String::new();
    for policy in Policy::VARIANTS.into_iter().filter(|policy| !policy.moves_pages()) {
        for (name, trace) in &traces {
            let digest = digest(policy, name, &Program::Trace(trace));
            let _ = writeln!(lines, "{} {name} {digest:016x}", policy.variant_name());
        }
        // One line for all seeds of a policy: those that differ are found with the program that failed.
        let digests = (0..SEEDS).map(|seed| digest(policy, &format!("seed {seed}"), &Program::Seed(seed)));
        let all = digests.fold(0_u64, |all, digest| all.rotate_left(5) ^ digest);
        let _ = writeln!(lines, "{} seeds {all:016x}", policy.variant_name());
    }
    let file = corpus("digests.txt");
    if std::env::var_os("MILLPOND_DIGESTS_RECORD").is_some() {
        std::fs::write(&file, &lines).expect("the corpus can be written");
    }
    let known = std::fs::read_to_string(&file).expect("the corpus has digests");
    let differ: Vec<_> = lines.lines().zip(known.lines()).filter(|(now, then)| now != then).collect();
    assert!(differ.is_empty() && lines == known, "now and before: {differ:#?}");
}
