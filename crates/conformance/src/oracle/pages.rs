//! The account by page: which block has which bytes of physical memory, wherever they are mapped.
//!
//! Addresses are not enough where pages are mapped in windows: bytes that a stream's work still uses at one address may
//! be handed out at another. The account learns from the allocator's layout which pages back a block at the moment of
//! its grant, and compares later layouts with that. It follows the uses of a page in between from the grants and frees
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use millpond::SegmentView;
use millpond_core::PageId;

use super::footprint::{Footprint, Ground};
use super::{Known, Place, Violation};

/// The identity of a page for its whole life: its number, and its birth, which distinguishes it from other pages that
/// have had the number.
pub(super) type Sheet = (PageId, u64);

/// A part of a page, from byte `begin` to byte `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) page: Sheet,
    /// The place in the address range where the page begins.
    pub(super) at: Place,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Returns the parts of pages behind a part of a segment, in the order of addresses; none for a segment without pages.
///
/// # Errors
///
/// If the part is not backed completely by pages that stay mapped there.
pub(super) fn behind(view: &SegmentView, place: Place, bytes: u64) -> Result<Vec<Span>, Violation> {
    let mut spans = Vec::new();
    if view.page_bytes == 0 {
        return Ok(spans);
    }
    let (mut at, end) = (place.offset, place.offset + bytes);
    for page in view.pages.iter().filter(|page| page.offset < end && page.offset + page.bytes > place.offset) {
        if page.is_leaving {
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

/// Returns the spans of a segment where pages are mapped, in use or retired, as begin and end, joined where they touch.
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

/// The current and former tenants of the bytes of pages.
#[derive(Default)]
pub(super) struct PageAccount {
    /// For each page and beginning: where a live block's bytes end, and the place of the block.
    live: BTreeMap<(Sheet, u64), (u64, Place)>,
    grounds: BTreeMap<Sheet, Ground>,
}

impl PageAccount {
    /// Records that a block holds these bytes. Returns the footprints of former tenants on them, and whether those used
    /// them at other addresses.
    ///
    /// # Errors
    ///
    /// If a live block holds some of them.
    pub(super) fn enter(&mut self, spans: &[Span], place: Place) -> Result<Vec<(Footprint, Known)>, Violation> {
        let mut past = Vec::new();
        for &Span { page, at, begin, end } in spans {
            let before = self.live.range((page, 0)..(page, end)).next_back();
            if let Some((_, &(stop, other))) = before.filter(|(_, (stop, _))| *stop > begin) {
                return Err(Violation::SharedPage { page: page.0, begin, end: end.min(stop), place, other });
            }
            if let Some(ground) = self.grounds.get_mut(&page) {
                let left = ground.cut(begin, end).into_iter();
                past.extend(left.map(|(_, footprint)| {
                    let moved = footprint.at != Some(at);
                    (footprint, Known::ByPage { moved })
                }));
            }
            self.live.insert((page, begin), (end, place));
        }
        Ok(past)
    }

    /// Records that a block releases these bytes, and leaves its footprint on them.
    pub(super) fn leave(&mut self, spans: &[Span], left: &Footprint) {
        for &Span { page, at, begin, end } in spans {
            self.live.remove(&(page, begin));
            self.grounds.entry(page).or_default().put(begin, Footprint { end, at: Some(at), ..left.clone() });
        }
    }

    /// Removes the pages that no segment has any more, and returns their footprints with the offsets in the page at
    /// which they begin.
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
