//! The way from options back to text.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::settings::{Divisions, Options};
use crate::units::MIB;

/// Returns the canonical text of `options`: the keys that differ from the defaults, in a fixed order, without white
/// space.
///
/// [`parse`](super::parse) of the text gives the same options, as far as keys can express them: `search_after_wait`,
/// `gc_without_limit`, `shorter_pages`, `open_ranges` and `ties` have no key, values set in code may lie outside what
/// the keys accept, and a size that is not a whole number of MiB is written with a fraction, which the parser refuses.
pub fn write(options: &Options) -> String {
    let (default, choice) = (Options::default(), &options.policy);
    let unless = |is_default: bool, value: String| (!is_default).then_some(value);
    let pairs = [
        ("policy", choice.policy.map(|name| name.as_str().into())),
        ("growth", unless(choice.growth == default.policy.growth, choice.growth.name().into())),
        ("expandable_segments", choice.expandable_segments.then(|| "True".into())),
        (
            "large_segment_size_mb",
            unless(options.large_segment_bytes == default.large_segment_bytes, mib(options.large_segment_bytes)),
        ),
        ("max_split_size_mb", options.max_split_bytes.map(mib)),
        ("max_non_split_rounding_mb", options.max_non_split_rounding_bytes.map(mib)),
        ("slack", choice.slack.map(|slack| format!("{slack}"))),
        (
            "garbage_collection_threshold",
            unless(options.gc_threshold == default.gc_threshold, format!("{}", options.gc_threshold)),
        ),
        ("roundup_power2_divisions", unless(options.divisions == default.divisions, divisions(&options.divisions))),
        (
            "per_process_memory_fraction",
            unless(options.memory_fraction == default.memory_fraction, format!("{}", options.memory_fraction)),
        ),
        ("scrub", unless(options.scrub == default.scrub, options.scrub.name().into())),
        ("throw_on_cudamalloc_oom", options.throw_on_oom.then(|| "True".into())),
    ];
    let pairs = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}:{}", value?)));
    pairs.collect::<Vec<_>>().join(",")
}

fn mib(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{}", bytes / MIB) } else { format!("{}", bytes as f64 / MIB as f64) }
}

/// Returns a plain number where all slots agree, and otherwise the shortest list: the first run in one entry, the last
/// in `>`, and one entry for each slot between them. A slot at 0 needs no entry, unless `>` would then include it.
fn divisions(Divisions(slots): &Divisions) -> String {
    let first_run = slots.iter().take_while(|number| **number == slots[0]).count();
    if first_run == slots.len() {
        return format!("{}", slots[0]);
    }
    let last = slots[slots.len() - 1];
    let last_run = slots.iter().rev().take_while(|number| **number == last).count();
    let tail = slots.len() - last_run;
    let mut entries = vec![format!("{}:{}", 1_u64 << (first_run - 1), slots[0])];
    for (slot, number) in slots.iter().enumerate().take(tail).skip(first_run) {
        if *number != 0 || (slot + 1 == tail && last != 0) {
            entries.push(format!("{}:{number}", 1_u64 << slot));
        }
    }
    if last != 0 {
        entries.push(format!(">:{last}"));
    }
    format!("[{}]", entries.join(","))
}
