//! What a step or a page call is about.

use millpond_core::{PageCall, PageId, Place, Step};

pub(crate) fn is_pages(step: &Step) -> bool {
    matches!(step, Step::Pages(_))
}

pub(crate) fn is_reserve(step: &Step) -> bool {
    matches!(step, Step::Reserve { .. } | Step::ReserveRange { .. })
}

pub(crate) fn is_release(step: &Step) -> bool {
    matches!(step, Step::Release { .. })
}

pub(crate) fn is_poll(step: &Step) -> bool {
    matches!(step, Step::Poll(_))
}

pub(crate) fn is_wait(step: &Step) -> bool {
    matches!(step, Step::Wait(_))
}

pub(crate) fn is_stream_wait(step: &Step) -> bool {
    matches!(step, Step::StreamWait { .. })
}

pub(crate) fn is_pause(step: &Step) -> bool {
    matches!(step, Step::Pause { .. })
}

/// Returns whether a step maps a page.
pub(crate) fn maps(step: &Step, page: PageId) -> bool {
    matches!(step, Step::Pages(calls) if mapped(calls).contains(&page))
}

/// Returns the pages that calls map.
pub(crate) fn mapped(calls: &[PageCall]) -> Vec<PageId> {
    calls.iter().filter_map(|call| if let PageCall::Map { page, .. } = *call { Some(page) } else { None }).collect()
}

/// Returns the pages that calls unmap, with the places.
pub(crate) fn unmapped(calls: &[PageCall]) -> Vec<(PageId, Place)> {
    let unmapped = |call: &PageCall| match *call {
        PageCall::Unmap { page, at } => Some((page, at)),
        _ => None,
    };
    calls.iter().filter_map(unmapped).collect()
}

/// Returns the pages that calls release.
pub(crate) fn released(calls: &[PageCall]) -> Vec<PageId> {
    calls.iter().filter_map(|call| if let PageCall::Release { page } = *call { Some(page) } else { None }).collect()
}
