//! Scenarios that are programs, because steps cannot express their loops, branches or threads.

mod decisions;
mod drops;
mod faults;
mod integrity;
mod scrubbing;
mod threads;
mod unknown;

use crate::device::DeviceUnderTest;
use crate::reserved;
use crate::sameness::DECIDED_ALIKE;
use crate::scenario::POLICIES;
use crate::session::Stop;
use millpond::settings::{Growth, Policy};

/// A program that the suite runs on a device under some policies.
pub(crate) struct Program<D: DeviceUnderTest> {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) policies: &'static [Policy],
    pub(crate) run: fn(&D, Policy) -> Result<(), Stop>,
}

/// The policies that may let one stream wait for another on the device.
const PAGED: [Policy; 2] = [Policy::paged(Growth::Balanced), Policy::paged(Growth::Tight)];

/// The groups of the programs, each of which has at least one.
pub(crate) const GROUPS: [&str; 8] =
    ["faults", "drop_order", "threads", "integrity", "swarm", "scrubbing", "reserved", "decisions"];

/// Returns all programs.
pub(crate) fn all<D: DeviceUnderTest>() -> Vec<Program<D>> {
    let program = |group, name, run| Program { group, name, policies: &POLICIES[..], run };
    vec![
        program("faults", "each-call-out-of-memory", faults::out_of_memory),
        program("faults", "each-call-fails", faults::other),
        program("faults", "each-call-loses-the-device", faults::lost),
        program("faults", "unknown-streams-are-refused", unknown::refused),
        program("drop_order", "allocator-before-its-buffers", drops::allocator_first),
        program("drop_order", "buffers-dropped-on-another-thread", drops::elsewhere),
        program("drop_order", "clones-are-one-allocator", drops::clones),
        program("drop_order", "work-in-flight-at-the-end", drops::in_flight),
        program("drop_order", "work-not-submitted-at-the-end", drops::not_submitted),
        program("threads", "streams-of-their-own", threads::own_streams),
        program("threads", "one-stream-for-all", threads::one_stream),
        program("threads", "buffers-change-hands", threads::change_hands),
        program("integrity", "patterns", integrity::patterns),
        program("integrity", "whole-blocks", integrity::whole_blocks),
        program("swarm", "seeds", integrity::swarm),
        Program { policies: &PAGED, ..program("swarm", "what-others-use-is-held", integrity::held) },
        program("scrubbing", "other-streams-find-nothing", scrubbing::other_streams),
        program("scrubbing", "nobody-finds-anything", scrubbing::always),
        program("reserved", reserved::NAMES[0], reserved::within_bounds::<0, D>),
        program("reserved", reserved::NAMES[1], reserved::within_bounds::<1, D>),
        program("reserved", reserved::NAMES[2], reserved::within_bounds::<2, D>),
        program("reserved", reserved::NAMES[3], reserved::within_bounds::<3, D>),
        program("reserved", reserved::NAMES[4], reserved::within_bounds::<4, D>),
        program("reserved", reserved::NAMES[5], reserved::within_bounds::<5, D>),
        program("reserved", reserved::NAMES[6], reserved::within_bounds::<6, D>),
        Program {
            policies: &DECIDED_ALIKE,
            ..program("decisions", "same-as-on-the-simulated-device", decisions::same_as_simulated)
        },
    ]
}
