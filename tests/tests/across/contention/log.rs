//! The log of a run, and the refusals that were wrong according to it.

use std::time::Duration;

/// One request of one thread. Times are since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) bytes: u64,
    pub(crate) asked: Duration,
    /// The time when the request returned.
    pub(crate) answered: Duration,
    /// The time when the block was freed; `None` if the request was refused.
    pub(crate) freed: Option<Duration>,
}

impl Entry {
    /// Returns whether the block may have been live at some moment of that time.
    fn overlaps(&self, from: Duration, to: Duration) -> bool {
        self.freed.is_some_and(|freed| self.asked <= to && freed >= from)
    }
}

/// Returns the refusals during which the live and the requested bytes never added up to more than `limit`: a wait would
/// have avoided them. `pins` returns how many bytes of the limit a block of a size takes.
///
/// A block counts as live from its request until its free has returned: longer than it was, so that a refusal counts as
/// wrong only if it surely was.
pub(crate) fn wrong(entries: &[Entry], limit: u64, pins: impl Fn(u64) -> u64) -> Vec<Entry> {
    let refused = entries.iter().filter(|entry| entry.freed.is_none());
    refused
        .filter(|refused| {
            let (from, to) = (refused.asked, refused.answered);
            let live: Vec<_> = entries.iter().filter(|entry| entry.overlaps(from, to)).collect();
            // The sum of what is live rises only when a block begins, so only those moments are looked at.
            let moments = live.iter().map(|entry| entry.asked.max(from));
            let at = |moment| live.iter().filter(|e| e.overlaps(moment, moment)).map(|e| pins(e.bytes)).sum::<u64>();
            moments.map(at).max().unwrap_or(0) + pins(refused.bytes) <= limit
        })
        .copied()
        .collect()
}

#[test]
fn a_refusal_is_wrong_where_there_was_room_all_the_time() {
    let ms = Duration::from_millis;
    let entry = |bytes, asked, answered, freed: Option<u64>| Entry {
        bytes,
        asked: ms(asked),
        answered: ms(answered),
        freed: freed.map(ms),
    };
    let first = entry(6, 0, 1, Some(10));
    let second = entry(3, 12, 13, Some(20));
    for (asked, answered, is_wrong) in [(2, 5, false), (2, 15, false), (11, 18, true), (21, 22, true)] {
        let refused = entry(5, asked, answered, None);
        let found = wrong(&[first, second, refused], 10, |bytes| bytes);
        assert_eq!(!found.is_empty(), is_wrong, "refused from {asked} to {answered}: {found:?}");
    }
}
