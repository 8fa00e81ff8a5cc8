//! Whether a grant is sound, and whether what it says of its memory is true.

use millpond::Reuse as Says;
use millpond_backend::{Caps, ClassId, Point, Reuse, Tick};

use super::footprint::Footprint;
use super::{Clock, Granted, Known, Oracle, Violation};

/// What a device promises about the order of one stream's work: what grants are held against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// When memory that was freed on a stream may be used there again.
    pub reuse: Reuse,
    /// The same where a page has moved, so that the bytes are reached at another address.
    pub alias_reuse: Reuse,
    /// Order on a stream holds only behind a barrier.
    pub needs_barrier: bool,
}

impl Promises {
    /// What a device says of its own memory.
    pub fn of(caps: &Caps) -> Self {
        let reuse = caps.reuse_of(ClassId::DEVICE);
        let alias_reuse = caps.pages.map_or(reuse, |pages| pages.alias_reuse);
        Self { reuse, alias_reuse, needs_barrier: caps.needs_barrier }
    }

    /// A device whose streams keep that order at all addresses, without barriers.
    pub const fn new(reuse: Reuse) -> Self {
        Self { reuse, alias_reuse: reuse, needs_barrier: false }
    }
}

/// Why a point does not stand in the way of a grant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// It is reached.
    Reached,
    /// The stream waits for it on the device, or the grant tells its user to wait.
    Waited,
    /// It is the stream's own, whose later work comes after it.
    OwnOrder,
}

/// A grant that calls its memory fresh has bytes that no block had before.
pub(super) fn fresh(grant: &Granted, tenants: &[(Footprint, Known)]) -> Result<(), Violation> {
    let Granted { place, bytes, stream, .. } = *grant;
    match tenants.first() {
        Some((footprint, _)) if grant.reuse == Says::Fresh => {
            Err(Violation::NotFresh { place, bytes, stream, freed: footprint.home })
        }
        _ => Ok(()),
    }
}

impl Oracle {
    /// What a former tenant left permits that the grant's stream uses the bytes, in the way in which the grant says.
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
            match (grant.reuse, over) {
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
        Ok(())
    }

    /// Why a point of a former tenant does not stand in the way.
    fn over(&mut self, grant: &Granted, point: Point, known: Known, clock: &dyn Clock) -> Result<Over, Violation> {
        let own = point.stream == grant.stream;
        let moved = known == Known::ByPage { moved: true };
        // The tick below which the stream's own work is ordered before what it will do.
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
        if matches!(grant.reuse, Says::After(wait) if wait.stream == point.stream && wait.tick >= point.tick) {
            return Ok(Over::Waited);
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
