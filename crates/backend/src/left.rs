//! What a dropped allocator leaves with its device.

use alloc::vec::Vec;

use crate::{Point, StreamId};

/// The memory that an allocator could not give back when it was dropped, because work that was not submitted may still
/// touch it. [`Backend::leave`](crate::Backend::leave) takes it.
#[derive(Debug)]
pub struct Left<Segment, Page> {
    /// The points behind all work that may touch any of it: at most one for each stream.
    pub points: Vec<Point>,
    /// Whether the allocator's caller was told an address of it, so that work which names no segment may touch it.
    pub is_addressed: bool,
    /// The segments.
    pub segments: Vec<Segment>,
    /// The ranges of addresses.
    pub ranges: Vec<Segment>,
    /// The pages, which are mapped in these ranges alone.
    pub pages: Vec<LeftPage<Page>>,
}

/// A page of [`Left`].
#[derive(Debug)]
pub struct LeftPage<Page> {
    /// The page.
    pub page: Page,
    /// Where it is mapped.
    pub mapped: Vec<LeftMapping>,
}

/// A place where a page of [`Left`] is mapped.
#[derive(Clone, Copy, Debug)]
pub struct LeftMapping {
    /// The index of the range in [`Left::ranges`].
    pub range: usize,
    /// The offset in the range, in bytes.
    pub offset: u64,
    /// The stream that the range was for.
    pub stream: StreamId,
}
