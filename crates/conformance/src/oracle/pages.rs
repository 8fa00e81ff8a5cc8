//! The account by page: which bytes of physical memory are in whose hands, wherever they are mapped.
//!
//! Addresses alone say too little where pages move: a page that a stream's work still uses at one address may be handed
//! out at another. The account learns from the allocator's layout which pages lie behind a block at the moment of its
//! grant, and holds later layouts against that. What became of a page in between, it works out itself.

use std::collections::{BTreeMap, BTreeSet};

use millpond::SegmentView;
use millpond_core::PageId;

use super::footprint::{Footprint, Ground};
use super::{Known, Place, Violation};

/// A page for its whole life: its number, and what tells it apart from others that have had the number.
pub(super) type Sheet = (PageId, u64);

/// Bytes of a page, from `begin` to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) page: Sheet,
    /// Where the page begins in the address range.
    pub(super) at: Place,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The bytes of pages behind a part of a segment, in order of addresses; none behind a plain segment.
///
/// # Errors
///
/// The part is not backed in full by pages that are in use there.
pub(super) fn behind(view: &SegmentView, place: Place, bytes: u64) -> Result<Vec<Span>, Violation> {
    let mut spans = Vec::new();
    if view.page_bytes == 0 {
        return Ok(spans);
    }
    let (mut at, end) = (place.offset, place.offset + bytes);
    for page in view.pages.iter().filter(|page| page.offset < end && page.offset + page.bytes > place.offset) {
        if !page.is_home {
            return Err(Violation::Retired { place, bytes, page: page.page, at: page.offset });
        }
        if page.offset > at {
            break;
        }
        let stop = end.min(page.offset + page.bytes);
        let start = Place { offset: page.offset, ..place };
        let (begin, end) = (at - page.offset, stop - page.offset);
        spans.push(Span { page: (page.page, page.birth), at: start, begin, end });
        at = stop;
    }
    if at < end { Err(Violation::Unbacked { place, bytes, at }) } else { Ok(spans) }
}

/// The spans of a segment that pages are mapped at, in use or retired, as begin and end, joined where they touch.
pub(super) fn mapped(view: &SegmentView) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for page in &view.pages {
        match spans.last_mut() {
            Some(last) if last.1 == page.offset => last.1 += page.bytes,
            _ => spans.push((page.offset, page.offset + page.bytes)),
        }
    }
    spans
}

/// Who has, and had, the bytes of pages.
#[derive(Default)]
pub(super) struct PageAccount {
    /// By page and beginning, where a live block's bytes end, and where the block lies.
    live: BTreeMap<(Sheet, u64), (u64, Place)>,
    grounds: BTreeMap<Sheet, Ground>,
}

impl PageAccount {
    /// A block comes to hold these bytes. Answers what former tenants have left on them, and whether they reached them
    /// at other addresses.
    ///
    /// # Errors
    ///
    /// A live block holds some of them.
    pub(super) fn enter(&mut self, spans: &[Span], place: Place) -> Result<Vec<(Footprint, Known)>, Violation> {
        let mut past = Vec::new();
        for &Span { page, at, begin, end } in spans {
            let before = self.live.range((page, 0)..(page, end)).next_back();
            if let Some((_, &(stop, other))) = before.filter(|(_, (stop, _))| *stop > begin) {
                return Err(Violation::SharedPage { page: page.0, begin, end: end.min(stop), place, other });
            }
            if let Some(ground) = self.grounds.get_mut(&page) {
                let left = ground.cut(begin, end).into_iter();
                past.extend(left.map(|footprint| {
                    let moved = footprint.at != Some(at);
                    (footprint, Known::ByPage { moved })
                }));
            }
            self.live.insert((page, begin), (end, place));
        }
        Ok(past)
    }

    /// A block gives these bytes up, and leaves its footprint on them.
    pub(super) fn leave(&mut self, spans: &[Span], left: &Footprint) {
        for &Span { page, at, begin, end } in spans {
            self.live.remove(&(page, begin));
            self.grounds.entry(page).or_default().put(begin, Footprint { end, at: Some(at), ..left.clone() });
        }
    }

    /// Forgets the pages that no segment has any more, and answers what was left on them, with where it began.
    pub(super) fn forget_gone(&mut self, layout: &[SegmentView]) -> Vec<(PageId, u64, Footprint)> {
        let pages = layout.iter().flat_map(|view| &view.pages);
        let here: BTreeSet<Sheet> = pages.map(|page| (page.page, page.birth)).collect();
        let gone: Vec<Sheet> = self.grounds.keys().copied().filter(|page| !here.contains(page)).collect();
        let grounds = gone.into_iter().filter_map(|page| Some((page, self.grounds.remove(&page)?)));
        grounds
            .flat_map(|(page, mut ground)| ground.keep_only(&[]).into_iter().map(move |(at, f)| (page.0, at, f)))
            .collect()
    }
}
