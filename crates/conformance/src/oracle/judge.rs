//! Judges whether a grant is sound, and whether what it says of its memory is true.

use millpond::Readiness as Says;
use millpond::settings::{RecordStream, Settings};
use millpond_backend::{Caps, ClassId, Point, Reuse, Tick};

use super::footprint::Footprint;
use super::{Clock, Granted, Known, Oracle, Violation};

/// A device's promises about the order of one stream's work, with which grants are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// The condition under which memory that was freed on a stream may be used again there.
    pub reuse: Reuse,
    /// The same condition where a page has moved, so that the bytes are reached at another address.
    pub alias_reuse: Reuse,
    /// Whether the order on a stream holds only behind a barrier.
    pub needs_barrier: bool,
    /// Whether memory that other streams have used is granted to nobody before they are done: a promise of the
    /// allocator, by its settings.
    pub holds: bool,
}

impl Promises {
    /// Returns what a device states about its own memory.
    pub fn of(caps: &Caps) -> Self {
        let reuse = caps.reuse_of(ClassId::DEVICE);
        let alias_reuse = caps.pages.map_or(reuse, |pages| pages.alias_reuse);
        Self { reuse, alias_reuse, needs_barrier: caps.needs_barrier, holds: false }
    }

    /// Creates the promises of a device whose streams keep that order at all addresses, without barriers.
    pub const fn new(reuse: Reuse) -> Self {
        Self { reuse, alias_reuse: reuse, needs_barrier: false, holds: false }
    }

    /// Adds what an allocator with these settings promises.
    pub fn under(self, settings: &Settings) -> Self {
        let waits = settings.policy.moves_pages() && settings.record_stream == RecordStream::Wait;
        Self { holds: !waits, ..self }
    }
}

/// The reason why a point does not forbid a grant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// It is reached.
    Reached,
    /// The stream waits for it on the device, or the grant requires its user to wait.
    Waited,
    /// It belongs to the stream itself, whose later work comes after it.
    OwnOrder,
}

/// Checks that the memory of a grant that calls it fresh was part of no earlier block.
pub(super) fn fresh(grant: &Granted, tenants: &[(Footprint, Known)]) -> Result<(), Violation> {
    let Granted { place, bytes, stream, .. } = *grant;
    match tenants.first() {
        Some((footprint, _)) if grant.says == Says::Fresh => {
            Err(Violation::NotFresh { place, bytes, stream, freed: footprint.home })
        }
        _ => Ok(()),
    }
}

impl Oracle {
    /// Checks that a former tenant's footprint permits the grant's stream to use the bytes in the way that the grant
    /// states.
    pub(super) fn judge(
        &mut self,
        grant: &Granted,
        left: &Footprint,
        known: Known,
        clock: &dyn Clock,
    ) -> Result<(), Violation> {
        for point in left.points() {
            let over = self.over(grant, point, known, clock)?;
            let Granted { place, bytes, stream, .. } = *grant;
            let reached = self.reached.get(&point.stream).copied().unwrap_or(Tick::ZERO);
            match (grant.says, over) {
                (_, Over::Reached) => {}
                (Says::Complete | Says::Fresh, _) => {
                    return Err(Violation::NotComplete { place, bytes, stream, waits_for: point, reached });
                }
                (Says::Ordered, Over::OwnOrder) if self.promises.needs_barrier => {
                    return Err(Violation::NoBarrier { place, bytes, last_use: point, reached });
                }
                _ => {}
            }
        }
        self.no_longer_held(grant, left, clock)
    }

    /// Checks that other streams than the former tenant's own are done with the bytes, where that is promised.
    fn no_longer_held(&mut self, grant: &Granted, left: &Footprint, clock: &dyn Clock) -> Result<(), Violation> {
        let of_others = left.others.iter().filter(|point| self.promises.holds && point.stream != left.home.stream);
        for &waits_for in of_others.collect::<Vec<_>>() {
            if !self.is_reached(waits_for, clock) {
                let Granted { place, bytes, stream, .. } = *grant;
                let reached = self.reached.get(&waits_for.stream).copied().unwrap_or(Tick::ZERO);
                return Err(Violation::Premature { place, bytes, stream, waits_for, reached });
            }
        }
        Ok(())
    }

    /// Returns the reason why a point of a former tenant does not forbid the grant.
    fn over(&mut self, grant: &Granted, point: Point, known: Known, clock: &dyn Clock) -> Result<Over, Violation> {
        let own = point.stream == grant.stream;
        let moved = known == Known::ByPage { moved: true };
        // Work of the stream below this tick is ordered before its later work.
        let ordered_below = |reuse| match reuse {
            Reuse::InOrder => Tick(u64::MAX),
            Reuse::AfterSubmit => clock.mark(point.stream),
            Reuse::AfterDone => Tick::ZERO,
        };
        let alias = if moved { self.promises.alias_reuse } else { Reuse::InOrder };
        let open = ordered_below(self.promises.reuse).min(ordered_below(alias));
        if self.is_reached(point, clock) {
            return Ok(Over::Reached);
        }
        if own && point.tick < open {
            return Ok(Over::OwnOrder);
        }
        let by_page = known != Known::ByAddress;
        if !own && clock.comes_after(grant.stream, point).unwrap_or(by_page) {
            return Ok(Over::Waited);
        }
        let Granted { place, bytes, stream, .. } = *grant;
        if own && open != Tick::ZERO {
            return Err(Violation::Unsubmitted { place, bytes, freed: point, open });
        }
        let reached = self.reached.get(&point.stream).copied().unwrap_or(Tick::ZERO);
        Err(Violation::Premature { place, bytes, stream, waits_for: point, reached })
    }
}
