//! An account of memory, kept beside the allocator: what the driver gave, who has which bytes, and who had them before.
//!
//! It observes grants, frees and driver calls, and shares nothing with the allocator but names. A byte is identified by
//! its physical place, in a segment or in a page, so that the account stays correct when pages are mapped twice.

use std::collections::BTreeMap;

use millpond_backend::{Point, StreamId};
use millpond_core::{Grant, PageCall, PageId, Place, ShardId, Slot};

use super::clock::Clock;

/// Physical memory, numbered in order of birth.
type Ground = u64;

/// A part of physical memory.
#[derive(Clone, Copy, Debug)]
struct Span {
    ground: Ground,
    begin: u64,
    end: u64,
}

impl Span {
    fn meets(&self, other: &Span) -> bool {
        self.ground == other.ground && self.begin < other.end && other.begin < self.end
    }
}

struct Segment {
    ground: Ground,
    bytes: u64,
    is_range: bool,
    /// The pages mapped in a range, by offset.
    mapped: BTreeMap<u64, PageId>,
}

struct Page {
    ground: Ground,
    bytes: u64,
    /// The places where it is mapped, with the points up to which it was used through each.
    places: BTreeMap<Place, Vec<Point>>,
}

/// What came before on some bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// The points up to which they were used.
    pub(crate) points: Vec<Point>,
    /// The points among them of other streams than the one that had the block.
    pub(crate) of_others: Vec<Point>,
}

/// The account.
#[derive(Default)]
pub(crate) struct Account {
    /// Whether nobody gets memory before other streams that have used it are done.
    pub(crate) holds: bool,
    births: u64,
    segments: BTreeMap<(ShardId, Slot), Segment>,
    pages: BTreeMap<PageId, Page>,
    live: BTreeMap<u64, Vec<Span>>,
    used: Vec<(Span, Uses)>,
}

impl Account {
    fn birth(&mut self) -> Ground {
        self.births += 1;
        self.births
    }

    /// Returns the number of bytes that the driver has given and not got back.
    pub(crate) fn reserved(&self) -> u64 {
        let segments = self.segments.values().filter(|segment| !segment.is_range).map(|segment| segment.bytes);
        segments.chain(self.pages.values().map(|page| page.bytes)).sum()
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Records that the driver gives a segment or a range.
    pub(crate) fn reserve(&mut self, at: (ShardId, Slot), bytes: u64, is_range: bool) {
        let segment = Segment { ground: self.birth(), bytes, is_range, mapped: BTreeMap::new() };
        assert!(self.segments.insert(at, segment).is_none(), "two segments at {at:?}");
    }

    /// Records that the driver takes a segment or a range back.
    pub(crate) fn release(&mut self, at: (ShardId, Slot), is_range: bool, clock: &Clock) {
        let segment = self.segments.remove(&at).unwrap_or_else(|| panic!("no segment at {at:?} to release"));
        assert_eq!(segment.is_range, is_range, "what is released at {at:?}");
        assert!(segment.mapped.is_empty(), "a range is released with pages mapped: {:?}", segment.mapped);
        self.goes(segment.ground, clock);
    }

    /// Records that memory is released. No block may have it, and all work with it must be over.
    fn goes(&mut self, ground: Ground, clock: &Clock) {
        let is_live = self.live.values().flatten().any(|span| span.ground == ground);
        assert!(!is_live, "memory is released while a block has it");
        let used = self.used.iter().filter(|(span, _)| span.ground == ground);
        for point in used.flat_map(|(_, uses)| &uses.points) {
            assert!(clock.is_done(*point), "memory is released before {point:?} is over");
        }
        self.used.retain(|(span, _)| span.ground != ground);
    }

    /// Records that the driver makes a page call.
    pub(crate) fn call(&mut self, call: &PageCall, clock: &Clock) {
        match *call {
            PageCall::Create { page, bytes } => {
                let made = Page { ground: self.birth(), bytes, places: BTreeMap::new() };
                assert!(self.pages.insert(page, made).is_none(), "page {page:?} is created twice");
            }
            PageCall::Map { page, at } => self.map(page, at),
            PageCall::Unmap { page, at } => self.unmap(page, at, clock),
            PageCall::Release { page } => {
                let gone = self.pages.remove(&page).unwrap_or_else(|| panic!("no page {page:?} to release"));
                assert!(gone.places.is_empty(), "page {page:?} is released while mapped: {:?}", gone.places);
                self.goes(gone.ground, clock);
            }
        }
    }

    fn map(&mut self, page: PageId, at: Place) {
        let bytes = self.pages[&page].bytes;
        let range = self.segments.get_mut(&(at.shard, at.slot)).unwrap_or_else(|| panic!("no range at {at:?}"));
        assert!(range.is_range && at.offset + bytes <= range.bytes, "{page:?} is mapped outside at {at:?}");
        for (offset, other) in &range.mapped {
            let end = offset + self.pages[other].bytes;
            assert!(end <= at.offset || at.offset + bytes <= *offset, "{page:?} is mapped over {other:?} at {at:?}");
        }
        range.mapped.insert(at.offset, page);
        let known = self.pages.get_mut(&page).and_then(|page| page.places.insert(at, Vec::new()));
        assert!(known.is_none(), "{page:?} is mapped at {at:?} twice");
    }

    fn unmap(&mut self, page: PageId, at: Place, clock: &Clock) {
        let known = self.pages.get_mut(&page).unwrap_or_else(|| panic!("no page {page:?} to unmap"));
        let (ground, bytes) = (known.ground, known.bytes);
        let used = known.places.remove(&at).unwrap_or_else(|| panic!("page {page:?} is not mapped at {at:?}"));
        for point in used {
            assert!(clock.is_done(point), "{page:?} is unmapped at {at:?} before {point:?} is over");
        }
        let through = Span { ground, begin: 0, end: bytes };
        let is_live = self.live.values().flatten().any(|span| span.meets(&through));
        // A page in use may be unmapped only at a place that is not its home.
        assert!(!is_live || !known.places.is_empty(), "{page:?} is unmapped at {at:?} while a block has it");
        let range = self.segments.get_mut(&(at.shard, at.slot)).unwrap_or_else(|| panic!("no range at {at:?}"));
        assert_eq!(range.mapped.remove(&at.offset), Some(page), "what is mapped at {at:?}");
    }

    /// Returns the physical bytes behind a block, all of them.
    fn spans(&self, shard: ShardId, grant: &Grant) -> Vec<(Span, Option<(PageId, Place)>)> {
        let (begin, end) = (grant.offset, grant.offset + grant.size);
        let slot = grant.slot;
        let segment = self.segments.get(&(shard, slot)).unwrap_or_else(|| panic!("{grant:?} lies in no segment"));
        assert!(end <= segment.bytes, "{grant:?} reaches beyond its segment of {} bytes", segment.bytes);
        if !segment.is_range {
            return vec![(Span { ground: segment.ground, begin, end }, None)];
        }
        let mut spans = Vec::new();
        for (&offset, id) in &segment.mapped {
            let page = &self.pages[id];
            let (low, high) = (begin.max(offset), end.min(offset + page.bytes));
            if low < high {
                let span = Span { ground: page.ground, begin: low - offset, end: high - offset };
                spans.push((span, Some((*id, Place { shard, slot, offset }))));
            }
        }
        let backed: u64 = spans.iter().map(|(span, _)| span.end - span.begin).sum();
        assert_eq!(backed, grant.size, "bytes with memory behind {grant:?}");
        spans
    }

    /// Records that a block is handed out under a number, for use on a stream. `may_follow` says whether the use of the
    /// block may come after work up to a point.
    pub(crate) fn grant(
        &mut self,
        id: u64,
        shard: ShardId,
        grant: &Grant,
        home: StreamId,
        may_follow: impl Fn(Point) -> bool,
        clock: &Clock,
    ) {
        let spans: Vec<Span> = self.spans(shard, grant).into_iter().map(|(span, _)| span).collect();
        for (other, held) in &self.live {
            let shared = held.iter().any(|one| spans.iter().any(|span| span.meets(one)));
            assert!(!shared, "{grant:?} shares bytes with block {other}");
        }
        for (span, Uses { points, of_others }) in &self.used {
            if spans.iter().any(|new| new.meets(span)) {
                assert!(!grant.last_use.is_never(), "{grant:?} is said to be fresh and was used up to {points:?}");
                for &point in points {
                    assert!(may_follow(point), "{grant:?} is granted before {point:?} is over");
                    let covered = clock.comes_after(home, grant.last_use.tick(), point);
                    assert!(covered, "{grant:?}: its last use does not cover {point:?}");
                }
                let is_over = !self.holds || of_others.iter().all(|&point| clock.is_done(point));
                assert!(is_over, "{grant:?} is granted before all of {of_others:?} are over");
            }
        }
        for span in &spans {
            self.forget(span);
        }
        self.live.insert(id, spans);
    }

    /// Removes what was known of the former use of a part: the use by its present owner comes after that.
    fn forget(&mut self, gone: &Span) {
        let mut kept = Vec::new();
        for (span, uses) in self.used.drain(..) {
            if !span.meets(gone) {
                kept.push((span, uses));
                continue;
            }
            for (begin, end) in [(span.begin, gone.begin.min(span.end)), (gone.end.max(span.begin), span.end)] {
                if begin < end {
                    kept.push((Span { begin, end, ..span }, uses.clone()));
                }
            }
        }
        self.used = kept;
    }

    /// Records that a block is freed, which was used so.
    pub(crate) fn free(&mut self, id: u64, shard: ShardId, grant: &Grant, uses: &Uses) {
        let spans = self.live.remove(&id).unwrap_or_else(|| panic!("block {id} is not live"));
        for (_, page) in self.spans(shard, grant) {
            if let Some((page, place)) = page
                && let Some(used) = self.pages.get_mut(&page).and_then(|page| page.places.get_mut(&place))
            {
                used.extend(&uses.points);
            }
        }
        self.used.extend(spans.into_iter().map(|span| (span, uses.clone())));
    }
}
