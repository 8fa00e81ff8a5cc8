//! The configuration parser: PyTorch's grammar, strictly.
//!
//! A configuration is a list of pairs, `key:value,key:value`. A value is a word or a list of pairs in brackets,
//! `key:[a:b,c:d]`. White space around words and separators is ignored. An empty text sets nothing.
//!
//! The keys are those of `PYTORCH_CUDA_ALLOC_CONF`, plus Millpond's own: `policy`, `growth`, `slack`, `scrub`,
//! `record_stream`, `release_idle_after`, `keep_idle_mb` and `release_idle_in_background`. PyTorch skips separators
//! without a check and so accepts some malformed text; here every departure from the grammar is an error that says
//! where it is and what is accepted. Keys that control parts of PyTorch that Millpond does not have are accepted, their
//! values are checked, and they are reported in [`Parsed::ignored`].
//!
//! ```
//! use millpond::conf;
//!
//! let options = conf::parse("max_split_size_mb:64, roundup_power2_divisions:[256:1,512:2,>:8]").unwrap();
//! assert_eq!(options.rest.max_split_bytes, Some(64 << 20));
//!
//! let error = conf::parse("max_split_size_mb:64,expandable_segments:true").unwrap_err();
//! assert_eq!(error.position, 41);
//! ```

mod error;
mod grammar;
mod keys;

#[cfg(test)]
mod tests;

pub use error::{ConfError, ConfErrorKind};
pub use keys::names as keys;

use std::time::Duration;

use millpond_core::settings::{Choice, Divisions, Growth, Options, Settings};
use millpond_core::units::MIB;

/// The content of a configuration text.
#[derive(Clone, PartialEq, Debug)]
pub struct Parsed {
    /// The base options, with the text's values set over them.
    pub options: Options,
    /// All keys of the text, in its order, under their CUDA names.
    pub keys: Vec<&'static str>,
    /// Those of them that have no effect here. Their values were checked nevertheless.
    pub ignored: Vec<&'static str>,
    /// Those of these whose value asks for what Millpond does not do. The others are of parts that are PyTorch's alone,
    /// or ask for what Millpond does anyway.
    pub unserved: Vec<&'static str>,
}

impl Parsed {
    /// Returns the keys of the text that an allocator cannot take over while it lives, and that say something else than
    /// `base`, on a device with or without virtual memory: see [`Allocator::configure`](crate::Allocator::configure).
    pub(crate) fn kept(&self, base: &Options, has_virtual_memory: bool) -> Vec<&'static str> {
        let (to, from) = (&self.options.policy, &base.policy);
        let differs = |choice: Choice| choice.resolve(has_virtual_memory) != from.resolve(has_virtual_memory);
        let stays = |key: &&'static str| match *key {
            "policy" => differs(Choice { policy: to.policy, ..from.clone() }),
            "expandable_segments" => differs(Choice { expandable_segments: to.expandable_segments, ..from.clone() }),
            "growth" => differs(Choice { growth: to.growth, ..from.clone() }),
            "slack" => differs(Choice { slack: to.slack, ..from.clone() }),
            "scrub" => self.options.rest.scrub != base.rest.scrub,
            _ => false,
        };
        self.keys.iter().copied().filter(stays).collect()
    }
}

/// Parses a configuration text on top of the defaults.
///
/// Costs a few allocations, and time proportional to the text.
///
/// # Errors
///
/// Returns an error at the first departure from the grammar, or for the first value out of its range.
pub fn parse(text: &str) -> Result<Options, ConfError> {
    parse_over(Options::default(), text).map(|parsed| parsed.options)
}

/// Parses a configuration text on top of `base`. What the text does not name keeps its value there.
///
/// # Errors
///
/// Returns an error as [`parse`] does, and also for a large segment size above a limit that `base` sets, since such a
/// limit would then be out of its range.
pub fn parse_over(base: Options, text: &str) -> Result<Parsed, ConfError> {
    keys::apply(base, &grammar::pairs(text)?)
}

/// Returns the canonical text of `options`: the keys that differ from the defaults, in a fixed order, without white
/// space.
///
/// [`parse`] of the text returns the same options, if keys can express them: `search_after_wait`, `gc_without_limit`,
/// `shorter_pages`, `open_ranges` and `ties` have no key, values set in code may lie outside what the keys accept, and
/// a size that is not a whole number of MiB, or a time that is not one of milliseconds, is written with a fraction,
/// which the parser refuses.
pub fn write(options: &Options) -> String {
    let (default, Options { policy: choice, rest: settings }) = (Settings::default(), options);
    let unless = |is_default: bool, value: String| (!is_default).then_some(value);
    let pairs = [
        ("policy", choice.policy.map(|name| name.as_str().into())),
        ("growth", unless(choice.growth == Growth::default(), choice.growth.name().into())),
        ("expandable_segments", choice.expandable_segments.then(|| "True".into())),
        (
            "large_segment_size_mb",
            unless(settings.large_segment_bytes == default.large_segment_bytes, mib(settings.large_segment_bytes)),
        ),
        ("max_split_size_mb", settings.max_split_bytes.map(mib)),
        ("max_non_split_rounding_mb", settings.max_non_split_rounding_bytes.map(mib)),
        ("slack", choice.slack.map(|slack| format!("{slack}"))),
        (
            "garbage_collection_threshold",
            unless(settings.gc_threshold == default.gc_threshold, format!("{}", settings.gc_threshold)),
        ),
        ("roundup_power2_divisions", unless(settings.divisions == default.divisions, divisions(&settings.divisions))),
        (
            "per_process_memory_fraction",
            unless(settings.memory_fraction == default.memory_fraction, format!("{}", settings.memory_fraction)),
        ),
        (
            "record_stream",
            unless(settings.record_stream == default.record_stream, settings.record_stream.name().into()),
        ),
        ("release_idle_after", settings.idle.after.map(time)),
        ("keep_idle_mb", unless(settings.idle.keep_bytes == 0, mib(settings.idle.keep_bytes))),
        ("release_idle_in_background", settings.idle.in_background.then(|| "True".into())),
        ("scrub", unless(settings.scrub == default.scrub, settings.scrub.name().into())),
        ("throw_on_cudamalloc_oom", settings.throw_on_oom.then(|| "True".into())),
    ];
    let pairs = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}:{}", value?)));
    pairs.collect::<Vec<_>>().join(",")
}

fn time(time: Duration) -> String {
    let unit = |unit: u128| time.as_nanos().is_multiple_of(unit).then(|| time.as_nanos() / unit);
    match (unit(1_000_000_000), unit(1_000_000)) {
        (Some(seconds), _) => format!("{seconds}s"),
        (_, Some(milliseconds)) => format!("{milliseconds}ms"),
        _ => format!("{}ms", time.as_secs_f64() * 1000.0),
    }
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
