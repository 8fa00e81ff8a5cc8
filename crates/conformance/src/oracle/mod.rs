//! The shadow oracle: an independent account of which block had which bytes, and of the device work that may still use
//! them.
//!
//! It sees every grant and every free, and asks the device for the progress of its streams. It knows nothing of pools,
//! splits or fit, and shares no code with the allocator, because a structure may be consistent while memory is reused
//! too early.
//!
//! For each byte that was ever handed out it keeps the points after which no work touches it any more: the home
//! stream's tick at the free, the ticks at the free of the streams that were recorded on it, and the points that it was
//! used up to. A grant is sound if each of these is either reached, or ordered before all later work of the stream that
//! gets the bytes. Where pages are mapped in windows, a byte has several addresses and one place in a page, and the
//! account is kept by both. What a grant says of its memory ([`Buffer::readiness`](millpond::Buffer::readiness)) is
//! compared with the same account.

mod footprint;
mod judge;
mod pages;
mod violation;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use millpond::{BlockState, Readiness, SegmentId, SegmentView};
use millpond_backend::{Point, StreamId, Tick};

use footprint::{Footprint, Ground};
pub use judge::Promises;
use pages::{PageAccount, Span};
pub use violation::Violation;

/// The questions of the oracle to the device. The answers must be the device's own.
pub trait Clock {
    /// Returns the tick that covers everything recorded on the stream so far.
    fn mark(&self, stream: StreamId) -> Tick;

    /// Returns the newest tick known to be complete; `None` if the device cannot tell any more.
    fn reached(&self, stream: StreamId) -> Option<Tick>;

    /// Returns whether device-side waits let all later work of the stream begin only after the point; `None` if the
    /// device cannot tell. In that case the oracle assumes the waits where a page has moved.
    fn comes_after(&self, stream: StreamId, point: Point) -> Option<bool>;
}

/// The place of a block, which identifies it in the oracle while it is handed out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The segment.
    pub segment: SegmentId,
    /// The offset in the segment, in bytes.
    pub offset: u64,
}

/// A grant as the program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The place of the block.
    pub place: Place,
    /// The size in bytes, after rounding.
    pub bytes: u64,
    /// The size of the request in bytes.
    pub requested: u64,
    /// The stream on which the memory will be used.
    pub stream: StreamId,
    /// The device address, where the device has addresses.
    pub address: Option<u64>,
    /// How the memory is safe to use, as the grant says.
    pub says: Readiness,
}

/// Blocks start at multiples of this number of bytes on every device.
pub const ALIGNMENT: u64 = 512;

/// A block that the program holds.
struct Live {
    bytes: u64,
    stream: StreamId,
    address: Option<u64>,
    streams: Vec<StreamId>,
    points: Vec<Point>,
    /// The parts of pages that back it.
    spans: Vec<Span>,
}

/// The name by which a former tenant used some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    ByAddress,
    /// By its page. `moved` says that the page was at another address then.
    ByPage {
        moved: bool,
    },
}

/// The account of one allocator's grants and frees.
pub struct Oracle {
    promises: Promises,
    live: BTreeMap<Place, Live>,
    /// For each live block with an address: the address, its end, and its place.
    addresses: BTreeMap<u64, (u64, Place)>,
    grounds: BTreeMap<SegmentId, Ground>,
    pages: PageAccount,
    /// The ticks known to be reached, which saves calls to the device.
    reached: BTreeMap<StreamId, Tick>,
    grants: u64,
}

impl Oracle {
    /// Creates the account of an allocator that has handed out nothing yet, on a device with these promises.
    pub fn new(promises: Promises) -> Self {
        Self {
            promises,
            live: BTreeMap::new(),
            addresses: BTreeMap::new(),
            grounds: BTreeMap::new(),
            pages: PageAccount::default(),
            reached: BTreeMap::new(),
            grants: 0,
        }
    }

    /// Returns the number of grants judged so far.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    /// Returns the number of blocks that the program holds.
    pub fn live_blocks(&self) -> usize {
        self.live.len()
    }

    /// Judges a grant and adds it to the account. Call this after the grant and before any work is queued on it. `view`
    /// is the segment as the allocator shows it after the grant; it is needed where the segment may have pages.
    ///
    /// # Errors
    ///
    /// If the grant is wrong: the violation. The account cannot be used any more then.
    pub fn granted(&mut self, grant: &Granted, view: Option<&SegmentView>, clock: &dyn Clock) -> Result<(), Violation> {
        self.grants += 1;
        in_shape(grant)?;
        self.apart(grant)?;
        let Granted { place, bytes, stream, address, .. } = *grant;
        let ground = self.grounds.get_mut(&place.segment);
        let left = ground.map_or_else(Vec::new, |ground| ground.cut(place.offset, place.offset + bytes));
        let spans = view.map_or_else(|| Ok(Vec::new()), |view| pages::behind(view, place, bytes))?;
        // Where there are pages, a stream may also wait for another one that has used the same addresses.
        let known = if spans.is_empty() { Known::ByAddress } else { Known::ByPage { moved: false } };
        let by_address: Vec<_> = left.into_iter().map(|(_, footprint)| (footprint, known)).collect();
        let by_page = self.pages.enter(&spans, place)?;
        // Where there are pages, earlier blocks may have had the addresses with other memory behind them.
        let tenants = if spans.is_empty() { &by_address } else { &by_page };
        judge::fresh(grant, tenants)?;
        for (footprint, known) in by_address.iter().chain(&by_page) {
            self.judge(grant, footprint, *known, clock)?;
        }
        if let Some(address) = address {
            self.addresses.insert(address, (address + bytes, place));
        }
        self.live.insert(place, Live { bytes, stream, address, streams: Vec::new(), points: Vec::new(), spans });
        Ok(())
    }

    /// Records that a live block is used on another stream until its free.
    ///
    /// # Panics
    ///
    /// If no live block starts there.
    pub fn used(&mut self, place: Place, stream: StreamId) {
        self.live_at(place).streams.push(stream);
    }

    /// Records that a live block is used up to a point.
    ///
    /// # Panics
    ///
    /// If no live block starts there.
    pub fn used_until(&mut self, place: Place, point: Point) {
        self.live_at(place).points.push(point);
    }

    /// Records that a live block is about to be freed. Call this before the allocator's free, so that no other thread
    /// is granted the block first.
    ///
    /// # Panics
    ///
    /// If no live block starts there.
    pub fn freed(&mut self, place: Place, clock: &dyn Clock) {
        let Some(live) = self.live.remove(&place) else { panic!("no live block starts at {place:?}") };
        if let Some(address) = live.address {
            self.addresses.remove(&address);
        }
        let point = |stream| Point { stream, tick: clock.mark(stream) };
        let others = live.streams.iter().map(|&stream| point(stream)).chain(live.points.iter().copied());
        let footprint =
            Footprint { end: place.offset + live.bytes, home: point(live.stream), others: others.collect(), at: None };
        self.pages.leave(&live.spans, &footprint);
        self.grounds.entry(place.segment).or_default().put(place.offset, footprint);
    }

    /// Compares the account with the allocator's layout: live blocks have memory, and the same pages as at their grant.
    /// Work on memory that was returned to the driver, and on addresses that were unmapped, must be complete.
    ///
    /// # Errors
    ///
    /// If this does not hold for some memory: the first violation.
    pub fn check(&mut self, layout: &[SegmentView], clock: &dyn Clock) -> Result<(), Violation> {
        let views: BTreeMap<SegmentId, &SegmentView> = layout.iter().map(|view| (view.id, view)).collect();
        for (&place, live) in &self.live {
            let view = views.get(&place.segment).copied();
            let spans = view.map(memory_of).unwrap_or_default();
            if !spans.iter().any(|&(begin, end)| begin <= place.offset && place.offset + live.bytes <= end) {
                return Err(Violation::NoMemory { place, bytes: live.bytes, stream: live.stream });
            }
            if let (Some(view), false) = (view, live.spans.is_empty())
                && pages::behind(view, place, live.bytes)? != live.spans
            {
                return Err(Violation::Moved { place, bytes: live.bytes, stream: live.stream });
            }
        }
        let segments: Vec<SegmentId> = self.grounds.keys().copied().collect();
        for segment in segments {
            let kept = views.get(&segment).map(|view| addresses_of(view)).unwrap_or_default();
            let gone = self.grounds.get_mut(&segment).map_or_else(Vec::new, |ground| ground.keep_only(&kept));
            for (offset, footprint) in gone {
                if let Some((waits_for, reached)) = self.not_over(&footprint, clock) {
                    let place = Place { segment, offset };
                    return Err(Violation::Released { place, end: footprint.end, waits_for, reached });
                }
            }
        }
        for (page, begin, footprint) in self.pages.forget_gone(layout) {
            if let Some((waits_for, reached)) = self.not_over(&footprint, clock) {
                return Err(Violation::ReleasedPage { page, begin, end: footprint.end, waits_for, reached });
            }
        }
        Ok(())
    }

    /// Returns the first point of a footprint that is not reached, and the tick that its stream has reached.
    fn not_over(&mut self, footprint: &Footprint, clock: &dyn Clock) -> Option<(Point, Tick)> {
        let point = footprint.points().find(|&point| !self.is_reached(point, clock))?;
        Some((point, self.reached.get(&point.stream).copied().unwrap_or(Tick::ZERO)))
    }

    fn live_at(&mut self, place: Place) -> &mut Live {
        match self.live.get_mut(&place) {
            Some(live) => live,
            None => panic!("no live block starts at {place:?}"),
        }
    }

    /// Checks that no live block shares a byte with the grant, by place and by address.
    fn apart(&self, grant: &Granted) -> Result<(), Violation> {
        let Place { segment, offset } = grant.place;
        let end = offset + grant.bytes;
        let overlap = |other: Place, live: &Live| Violation::Overlap {
            place: grant.place,
            bytes: grant.bytes,
            stream: grant.stream,
            other,
            other_bytes: live.bytes,
            other_stream: live.stream,
        };
        let before = self.live.range(..Place { segment, offset: end }).next_back();
        if let Some((&other, live)) = before
            && other.segment == segment
            && other.offset + live.bytes > offset
        {
            return Err(overlap(other, live));
        }
        let Some(address) = grant.address else { return Ok(()) };
        match self.addresses.range(..address + grant.bytes).next_back() {
            Some((_, &(stop, other))) if stop > address => Err(overlap(other, &self.live[&other])),
            _ => Ok(()),
        }
    }

    /// Returns whether the point is reached. Where the device cannot tell, the point counts as reached.
    fn is_reached(&mut self, point: Point, clock: &dyn Clock) -> bool {
        let known = self.reached.entry(point.stream).or_insert(Tick::ZERO);
        if point.tick <= *known {
            return true;
        }
        match clock.reached(point.stream) {
            Some(tick) => {
                *known = tick.max(*known);
                point.tick <= *known
            }
            None => true,
        }
    }
}

/// Checks that the grant is large enough and starts where blocks may start.
fn in_shape(grant: &Granted) -> Result<(), Violation> {
    let Granted { place, bytes, requested, address, .. } = *grant;
    let aligned = place.offset.is_multiple_of(ALIGNMENT) && address.unwrap_or(0).is_multiple_of(ALIGNMENT);
    if bytes >= requested && bytes > 0 && aligned {
        Ok(())
    } else {
        Err(Violation::Misshapen { place, bytes, requested, address })
    }
}

/// Returns the spans of a segment whose addresses reach memory: all blocks with memory, or all mapped pages where the
/// segment has pages.
fn addresses_of(view: &SegmentView) -> Vec<(u64, u64)> {
    if view.page_bytes == 0 { memory_of(view) } else { pages::mapped(view) }
}

/// Returns the spans of a segment with memory behind them, as begin and end, joined where they touch.
fn memory_of(view: &SegmentView) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for block in view.blocks.iter().filter(|block| block.state != BlockState::Unmapped) {
        match spans.last_mut() {
            Some(last) if last.1 == block.offset => last.1 += block.size,
            _ => spans.push((block.offset, block.offset + block.size)),
        }
    }
    spans
}
