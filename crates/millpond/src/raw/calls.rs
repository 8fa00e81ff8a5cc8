//! Driver calls whose contract the core's decisions fulfil.

use millpond_backend::{Backend, Left, StreamId, VirtualMemory};
use millpond_core::Slot;

use super::pointers::SegmentRef;
use crate::lane::Lane;

/// Returns an expandable segment's range, for mapping and unmapping pages in it.
pub(crate) fn range_of<B: Backend, O>(lane: &Lane<B, O>, slot: Slot) -> &B::Segment {
    let place = SegmentRef::<B>::new(lane.lock().segment(slot));
    // SAFETY: ranges are behind an `Arc` in their lane's table. The caller performs a plan's step on this range: at
    // addresses that the plan has claimed, or on a mapping that stays in the core's table until this step's outcome is
    // reported. The core releases a range only when all of it is unmapped and no mapping is left.
    unsafe { place.get() }
}

/// Returns the range of a closed group's memory, for copies of its contents.
#[cfg(not(loom))]
pub(crate) fn range_of_group<B: Backend, O>(lane: &Lane<B, O>, slot: Slot) -> &B::Segment {
    let place = SegmentRef::<B>::new(lane.lock().segment(slot));
    // SAFETY: ranges are behind an `Arc` in their lane's table. The group of this one is closed and stays so while its
    // contents are copied, which the lock of the group guarantees: the core gives nothing of a closed group back.
    unsafe { place.get() }
}

/// Releases a segment to the driver.
pub(crate) fn release<B: Backend>(backend: &B, segment: B::Segment) {
    // SAFETY: the core emits a release only for a segment that is wholly one free block whose last use on its home
    // stream is reached, and whose uses on other streams were reached before it became free. No new work can be
    // recorded on it: no buffer refers to it, and the segment is moved in here by value.
    unsafe { backend.release(segment) }
}

/// Leaves with the device what a dropped allocator cannot release.
pub(crate) fn leave<B: Backend>(backend: &B, left: Left<B::Segment, B::Page>) {
    // SAFETY: the allocator is being dropped: no buffer refers to any of it, so no new work can be recorded on it. Its
    // last use on its home stream and the uses on other streams that were not reached are the points. The pages are
    // mapped where the core says, in ranges that are left with them.
    unsafe { backend.leave(left) }
}

/// Releases an address range to the driver.
pub(crate) fn release_range<B: Backend>(vm: &Vm<'_, B>, range: B::Segment) {
    // SAFETY: the core emits this only when all of the range is one unmapped block: nothing is mapped and no buffer is
    // in it.
    unsafe { vm.release_range(range) }
}

/// Maps a page.
pub(crate) fn map<B: Backend>(
    vm: &Vm<'_, B>,
    range: &B::Segment,
    offset: u64,
    page: &B::Page,
    stream: StreamId,
) -> Result<(), B::Error> {
    // SAFETY: the core claimed these addresses for this one plan, and nothing is mapped there: what was mapped has been
    // unmapped by an earlier call. Where the page is mapped elsewhere the device allows aliasing, which the core checks
    // before it plans this. The core has claimed the page's home, and grants the memory here only when the last use
    // there is complete, ordered before on the same stream, or waited for on the device.
    unsafe { vm.map(range, offset, page, stream) }
}

/// Unmaps a page.
pub(crate) fn unmap<B: Backend>(vm: &Vm<'_, B>, range: &B::Segment, offset: u64, page: &B::Page, stream: StreamId) {
    // SAFETY: the core's table says that the page is mapped there, and only this plan uses the page. The core emits an
    // unmap only for a page inside one free block whose last use was seen to be reached, for an old mapping whose point
    // was reached, and for a page that was mapped in vain and that no buffer has used.
    unsafe { vm.unmap(range, offset, page, stream) }
}

/// Releases a page.
pub(crate) fn release_page<B: Backend>(vm: &Vm<'_, B>, page: B::Page) {
    // SAFETY: earlier calls have unmapped it everywhere, which is done only when nothing touches it any more. The
    // handle is moved in here by value.
    unsafe { vm.release_page(page) }
}

/// A backend's virtual memory.
pub(crate) type Vm<'a, B> = dyn VirtualMemory<Segment = SegmentOf<B>, Page = PageOf<B>, Error = ErrorOf<B>> + 'a;

type SegmentOf<B> = <B as Backend>::Segment;
type PageOf<B> = <B as Backend>::Page;
type ErrorOf<B> = <B as Backend>::Error;
