//! The peaks of parts of a program, which begin when they like and end in any order.
//!
//! The counters keep one set of peaks that run. It belongs to the scope that was opened last: when the next one opens,
//! the earlier scope keeps a copy, and the running peaks begin anew. So the peak since any opening is the highest of
//! what that scope and those after it have kept, and of the running peaks. A scope that ends leaves what it has kept to
//! the one before it. The device's own peaks are a scope as well: a reset ends it and opens it again.

use alloc::collections::BTreeMap;

use crate::ids::ScopeId;
use crate::meter::{COUNTERS, Peaks, ROWS};
use crate::stats::{MemoryStats, Stat, StatByPool};

use super::Headroom;

/// The highest values of all counters in some stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Highs {
    counters: Peaks,
    reserved: [u64; ROWS],
    segments: [u64; ROWS],
    oversize_segments: u64,
}

impl Highs {
    /// Returns what the running peaks of the shards and of the driver's memory are.
    pub(crate) fn new(counters: Peaks, headroom: &Headroom) -> Self {
        let of = |family: &StatByPool| [family.all.peak, family.small_pool.peak, family.large_pool.peak];
        Self {
            counters,
            reserved: of(&headroom.reserved),
            segments: of(&headroom.segments),
            oversize_segments: headroom.oversize_segments.peak,
        }
    }

    /// Takes in the highs of another stretch of time.
    fn raise(&mut self, other: &Highs) {
        self.counters.raise(&other.counters);
        for row in 0..ROWS {
            self.reserved[row] = self.reserved[row].max(other.reserved[row]);
            self.segments[row] = self.segments[row].max(other.segments[row]);
        }
        self.oversize_segments = self.oversize_segments.max(other.oversize_segments);
    }

    /// Sets the peaks of some statistics to these.
    pub(crate) fn put_into(&self, stats: &mut MemoryStats) {
        let set = |family: &mut StatByPool, [all, small, large]: [u64; ROWS]| {
            (family.all.peak, family.small_pool.peak, family.large_pool.peak) = (all, small, large);
        };
        let families: [&mut StatByPool; COUNTERS - 1] = [
            &mut stats.allocation,
            &mut stats.allocated_bytes,
            &mut stats.active,
            &mut stats.active_bytes,
            &mut stats.requested_bytes,
            &mut stats.inactive_split,
            &mut stats.inactive_split_bytes,
        ];
        for (counter, family) in families.into_iter().enumerate() {
            set(family, self.counters.of(counter));
        }
        let peak_of = |stat: &mut Stat, peak: u64| stat.peak = peak;
        peak_of(&mut stats.oversize_allocations, self.counters.of(COUNTERS - 1)[0]);
        peak_of(&mut stats.oversize_segments, self.oversize_segments);
        set(&mut stats.reserved_bytes, self.reserved);
        set(&mut stats.segment, self.segments);
    }
}

/// The scopes that are open, of which the device's own is always one.
#[derive(Clone)]
pub(crate) struct Scopes {
    /// What each has kept, in the order in which they were opened: the highs until the next one was. What the last one
    /// of them has kept is what others left to it.
    kept: BTreeMap<ScopeId, Highs>,
    device: ScopeId,
    next: u64,
}

impl Default for Scopes {
    fn default() -> Self {
        let device = ScopeId(0);
        Self { kept: BTreeMap::from([(device, Highs::default())]), device, next: 1 }
    }
}

impl Scopes {
    /// Returns the scope of the device's own peaks.
    pub(crate) fn device(&self) -> ScopeId {
        self.device
    }

    /// Returns whether a scope is open.
    pub(crate) fn has(&self, scope: ScopeId) -> bool {
        self.kept.contains_key(&scope)
    }

    /// Opens a scope. `running` are the running peaks, which the caller lets begin anew.
    pub(crate) fn open(&mut self, running: &Highs) -> ScopeId {
        if let Some(mut last) = self.kept.last_entry() {
            last.get_mut().raise(running);
        }
        let scope = ScopeId(self.next);
        self.next += 1;
        self.kept.insert(scope, Highs::default());
        scope
    }

    /// Returns the highs since a scope was opened. Costs a look at each scope that was opened later and is open.
    ///
    /// # Panics
    ///
    /// If the scope is not open.
    pub(crate) fn since(&self, scope: ScopeId, running: &Highs) -> Highs {
        assert!(self.has(scope), "{scope:?} is not open");
        let mut highs = *running;
        self.kept.range(scope..).for_each(|(_, kept)| highs.raise(kept));
        highs
    }

    /// Ends a scope.
    ///
    /// # Panics
    ///
    /// If the scope is not open.
    pub(crate) fn close(&mut self, scope: ScopeId) {
        let Some(highs) = self.kept.remove(&scope) else { panic!("{scope:?} is not open") };
        if let Some((_, before)) = self.kept.range_mut(..scope).next_back() {
            before.raise(&highs);
        }
    }

    /// Has the device's peaks begin anew, as the caller lets the running peaks do.
    pub(crate) fn reset(&mut self, running: &Highs) {
        let before = self.device;
        self.device = self.open(running);
        self.close(before);
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use millpond_trace::Random;

    use super::*;

    extern crate std;

    fn reserved(bytes: u64) -> Highs {
        Highs { reserved: [bytes; ROWS], ..Highs::default() }
    }

    /// Scopes open and end in any order; each is compared with the highest value since its opening.
    #[test]
    fn a_scope_has_the_highest_value_since_it_was_opened() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut scopes, mut open, mut value) = (Scopes::default(), Vec::new(), 0);
            let (mut running, mut since_reset) = (0, 0);
            for _ in 0..200 {
                match random.below(8) {
                    0 => {
                        open.push((scopes.open(&reserved(running)), value));
                        running = value;
                    }
                    1 if !open.is_empty() => scopes.close(open.swap_remove(random.index(open.len())).0),
                    2 => {
                        scopes.reset(&reserved(running));
                        (running, since_reset) = (value, value);
                    }
                    _ => {
                        value = random.below(1000);
                        running = running.max(value);
                        since_reset = since_reset.max(value);
                        open.iter_mut().for_each(|(_, high)| *high = value.max(*high));
                    }
                }
                for &(scope, high) in &open {
                    assert_eq!(scopes.since(scope, &reserved(running)), reserved(high), "{scope:?} of seed {seed}");
                }
                assert_eq!(scopes.since(scopes.device(), &reserved(running)), reserved(since_reset), "seed {seed}");
                assert_eq!(scopes.kept.len(), open.len() + 1, "nothing is kept of scopes that have ended");
            }
        }
    }

    #[test]
    #[should_panic(expected = "is not open")]
    fn a_scope_ends_once() {
        let mut scopes = Scopes::default();
        let scope = scopes.open(&Highs::default());
        scopes.close(scope);
        scopes.close(scope);
    }
}
