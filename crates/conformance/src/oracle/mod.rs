//! The shadow oracle: an account of who had which bytes, and of what the device still does with them.
//!
//! It sees every grant and every free, and asks the device how far its streams are. It knows nothing of pools, splits
//! or fit, and shares no code with the allocator: a structure may be in perfect order while memory is reused too early.
//!
//! For each byte that was ever handed out it remembers the points after which nobody touches it any more: the home
//! stream's tick at the free, the ticks at the free of the streams that were recorded on it, and the points that it was
//! used up to. A grant is sound if each of these is either reached, or ordered before all later work of the stream that
//! gets the bytes. Where pages move, a byte has two names, its address and its place in a page, and the account is kept
//! by both. What a grant says of its memory ([`Buffer::reuse`](millpond::Buffer::reuse)) is held against the same
//! account.

mod footprint;
mod judge;
mod pages;
mod violation;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use millpond::{BlockState, Reuse, SegmentId, SegmentView};
use millpond_backend::{Point, StreamId, Tick};

use footprint::{Footprint, Ground};
pub use judge::Promises;
use pages::{PageAccount, Span};
pub use violation::Violation;

/// How the oracle asks the device. Answers must be the device's own.
pub trait Clock {
    /// The tick that covers everything recorded on the stream so far.
    fn mark(&self, stream: StreamId) -> Tick;

    /// The newest tick known to be complete; `None` if the device cannot tell any more.
    fn reached(&self, stream: StreamId) -> Option<Tick>;

    /// Whether device-side waits let all later work of the stream begin only after the point; `None` if the device
    /// cannot tell. The oracle trusts waits then, where a page has moved.
    fn comes_after(&self, stream: StreamId, point: Point) -> Option<bool>;
}

/// Where a block lies: its name in the oracle's account while it is handed out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// In which segment.
    pub segment: SegmentId,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// A grant as the program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Where.
    pub place: Place,
    /// How many bytes, after rounding.
    pub bytes: u64,
    /// How many bytes were asked for.
    pub requested: u64,
    /// For use on this stream.
    pub stream: StreamId,
    /// The device address, where there is one.
    pub address: Option<u64>,
    /// What the grant says of its memory.
    pub reuse: Reuse,
}

/// Blocks start at multiples of this many bytes, whatever the device.
pub const ALIGNMENT: u64 = 512;

/// A block in the program's hands.
struct Live {
    bytes: u64,
    stream: StreamId,
    address: Option<u64>,
    streams: Vec<StreamId>,
    points: Vec<Point>,
    /// The bytes of pages behind it.
    spans: Vec<Span>,
}

/// By which name some bytes were known to a former tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    ByAddress,
    /// `moved`: they were reached at other addresses then.
    ByPage {
        moved: bool,
    },
}

/// The account of one allocator.
pub struct Oracle {
    promises: Promises,
    live: BTreeMap<Place, Live>,
    /// By address, where a live block ends, and where it lies.
    addresses: BTreeMap<u64, (u64, Place)>,
    grounds: BTreeMap<SegmentId, Ground>,
    pages: PageAccount,
    /// Ticks known reached, which spares questions.
    reached: BTreeMap<StreamId, Tick>,
    grants: u64,
}

impl Oracle {
    /// The account of an allocator that has handed nothing out yet, on a device with these promises.
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

    /// How many grants were judged so far.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    /// How many blocks are in the program's hands.
    pub fn live_blocks(&self) -> usize {
        self.live.len()
    }

    /// Judges a grant and enters it. To be told after the grant, before any work is queued on it. `view` is the segment
    /// as the allocator shows it since the grant, where pages may lie behind it.
    ///
    /// # Errors
    ///
    /// What is wrong with the grant. The account is of no further use then.
    pub fn granted(&mut self, grant: &Granted, view: Option<&SegmentView>, clock: &dyn Clock) -> Result<(), Violation> {
        self.grants += 1;
        in_shape(grant)?;
        self.apart(grant)?;
        let Granted { place, bytes, stream, address, .. } = *grant;
        let ground = self.grounds.get_mut(&place.segment);
        let left = ground.map_or_else(Vec::new, |ground| ground.cut(place.offset, place.offset + bytes));
        let by_address: Vec<_> = left.into_iter().map(|footprint| (footprint, Known::ByAddress)).collect();
        let spans = view.map_or_else(|| Ok(Vec::new()), |view| pages::behind(view, place, bytes))?;
        let by_page = self.pages.enter(&spans, place)?;
        // Where there are pages, others may have had the addresses, with other memory behind them.
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

    /// A live block is used on another stream until its free.
    ///
    /// # Panics
    ///
    /// If no live block starts there.
    pub fn used(&mut self, place: Place, stream: StreamId) {
        self.live_at(place).streams.push(stream);
    }

    /// A live block is used up to a point.
    ///
    /// # Panics
    ///
    /// If no live block starts there.
    pub fn used_until(&mut self, place: Place, point: Point) {
        self.live_at(place).points.push(point);
    }

    /// A live block is about to be freed. To be told before the allocator is, so that nobody gets the block first.
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

    /// Holds the account against the allocator's layout: live blocks have memory, and the same pages as at their grant;
    /// memory that went back to the driver, and addresses that were unmapped, were done with.
    ///
    /// # Errors
    ///
    /// The first block of which that is not so.
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

    /// The first point of a footprint that is not reached, and how far its stream is.
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

    /// No live block shares a byte with the grant, by place and by address.
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

    /// The point is reached. A device that cannot tell gets the benefit of the doubt.
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

/// The grant is large enough and starts where blocks start.
fn in_shape(grant: &Granted) -> Result<(), Violation> {
    let Granted { place, bytes, requested, address, .. } = *grant;
    let aligned = place.offset.is_multiple_of(ALIGNMENT) && address.unwrap_or(0).is_multiple_of(ALIGNMENT);
    if bytes >= requested && bytes > 0 && aligned {
        Ok(())
    } else {
        Err(Violation::Misshapen { place, bytes, requested, address })
    }
}

/// The spans of a segment whose addresses reach memory: with blocks, or once with blocks and still mapped.
fn addresses_of(view: &SegmentView) -> Vec<(u64, u64)> {
    if view.page_bytes == 0 { memory_of(view) } else { pages::mapped(view) }
}

/// The spans of a segment with memory behind them, as begin and end, joined where they touch.
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
