//! Checks of the contract, verb by verb: each requirement of `millpond-backend` is tested on the bare backend without
//! an allocator in between. Scenarios call most verbs too, but an allocator rounds, caches and retries, and so hides
//! mistakes in a single verb.
//!
//! A failure names the verb, what was found with its values, and the rule.

mod bench;
mod budget;
mod facts;
mod host;
mod mapping;
mod released;
mod space;
mod time;
mod transfers;
mod waits;

use millpond_backend::Caps;

use crate::device::DeviceUnderTest;
use crate::session::{Stop, device_is_content};
use bench::Bench;

/// The power that a check needs of a device. Where the power is announced, the check must not be skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Power {
    /// Nothing beyond what every device has.
    None,
    Pages,
    StreamWait,
    HostMemory,
    Transfer,
    Budget,
}

impl Power {
    /// Returns whether the device announces the power.
    pub(crate) fn is_announced(self, caps: &Caps) -> bool {
        match self {
            Power::None => true,
            Power::Pages => caps.pages.is_some(),
            Power::StreamWait => caps.stream_wait,
            Power::HostMemory => caps.host_memory,
            Power::Transfer => caps.transfer,
            Power::Budget => caps.budget,
        }
    }

    /// Returns the reason why a check that needs the power is skipped.
    fn missing(self) -> &'static str {
        match self {
            Power::None => "the device has nothing",
            Power::Pages => "the device announces no virtual memory",
            Power::StreamWait => "the device announces no streams that wait for each other",
            Power::HostMemory => "the device announces no host addresses",
            Power::Transfer => "the device announces no fills and copies",
            Power::Budget => "the device announces no budget",
        }
    }
}

/// A check of one requirement of the contract.
pub(crate) struct Check<D: DeviceUnderTest> {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) power: Power,
    run: fn(&Bench<'_, D>) -> Result<(), Stop>,
}

/// The groups of checks, each of which has at least one.
pub(crate) const GROUPS: [&str; 7] = ["facts", "space", "time", "mapping", "transfers", "host", "budget"];

/// Returns all checks.
pub(crate) fn all<D: DeviceUnderTest>() -> Vec<Check<D>> {
    let check = |power, group, name, run| Check { group, name, power, run };
    use Power::{Budget, HostMemory, None, Pages, StreamWait, Transfer};
    vec![
        check(None, "facts", "make-sense", facts::make_sense),
        check(None, "facts", "powers-answer-as-announced", facts::powers_answer),
        check(None, "space", "segments-are-aligned-and-apart", space::aligned_and_apart),
        check(Transfer, "space", "segments-hold-what-was-asked", space::hold_what_was_asked),
        check(None, "space", "too-much-is-out-of-memory", space::too_much),
        check(None, "space", "what-is-released-can-be-had-again", released::segments),
        check(None, "time", "streams-are-dense-numbers", time::dense_numbers),
        check(None, "time", "streams-are-known", time::streams_are_known),
        check(None, "time", "marks-rise-above-what-is-reached", time::marks_rise),
        check(None, "time", "reached-does-not-run-ahead", time::reached_behind),
        check(Transfer, "time", "what-is-reached-can-be-read", waits::can_be_read),
        check(None, "time", "a-wait-answers-what-is-reached", time::wait_is_true),
        check(None, "time", "a-wait-without-a-submit-ends", time::wait_ends),
        check(StreamWait, "time", "a-stream-waits-for-a-point", waits::stream_waits),
        check(Pages, "mapping", "a-page-is-where-it-was-mapped", mapping::where_mapped),
        check(Pages, "mapping", "a-page-moves-with-its-bytes", mapping::moves),
        check(Pages, "mapping", "two-places-show-one-page", mapping::two_places),
        check(Pages, "mapping", "too-much-is-out-of-memory", mapping::too_much),
        check(Pages, "mapping", "released-pages-can-be-had-again", released::pages),
        check(Pages, "mapping", "released-ranges-can-be-had-again", released::ranges),
        check(Transfer, "transfers", "upload-and-download", transfers::upload_and_download),
        check(Transfer, "transfers", "fill", transfers::fill),
        check(Transfer, "transfers", "copy", transfers::copy),
        check(Transfer, "transfers", "ranges-are-checked", transfers::ranges_are_checked),
        check(Transfer, "transfers", "run-in-stream-order", transfers::in_order),
        check(Transfer, "transfers", "large-ones-are-whole", transfers::large),
        check(HostMemory, "host", "addresses-are-the-segments-own", host::own_addresses),
        check(HostMemory, "host", "the-host-sees-what-was-waited-for", host::sees_what_was_waited_for),
        check(Budget, "budget", "is-plausible", budget::is_plausible),
        check(Budget, "budget", "follows-reserve-and-release", budget::follows),
    ]
}

impl<D: DeviceUnderTest> Check<D> {
    /// Runs the check on a device that is opened for it.
    pub(crate) fn run(&self, device: &D) -> Result<(), Stop> {
        let bench = Bench::open(device)?;
        if !self.power.is_announced(bench.caps()) {
            return Err(Stop::Skip(self.power.missing().to_owned()));
        }
        // Everything else names streams by these numbers.
        time::dense_numbers(&bench)?;
        (self.run)(&bench)?;
        Ok(device_is_content(device, bench.backend())?)
    }
}

/// Creates a failure from the verb, what was found, and the rule of the contract.
fn breach(verb: &str, found: impl std::fmt::Display, rule: &str) -> Stop {
    Stop::Fail(format!("{verb}: {found}. The rule (crates/backend, {verb}): {rule}"))
}

/// Adds to a failure what its author can do, where the rule alone does not say it.
fn advised(stop: Stop, advice: impl std::fmt::Display) -> Stop {
    match stop {
        Stop::Fail(text) => Stop::Fail(format!("{text}. What to do: {advice}")),
        skip => skip,
    }
}

/// Returns where bytes first differ from what they must be, or `None` where they do not.
fn wrong_byte(seen: &[u8], expected: &[u8]) -> Option<String> {
    let at = seen.iter().zip(expected).position(|(seen, expected)| seen != expected)?;
    Some(format!("byte {at} of these is {:#04x} and must be {:#04x}", seen[at], expected[at]))
}
