//! What a dropped allocator leaves with its device.

use alloc::vec::Vec;

use crate::{Point, StreamId};

/// The memory that an allocator could not give back when it was dropped, because work that was not submitted may still
/// touch it. [`Backend::leave`](crate::Backend::leave) takes it.
///
/// A backend takes it apart with a pattern that ends with `..`. A backend around another one passes it on with
/// [`map`](Left::map).
#[derive(Debug)]
#[non_exhaustive]
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

impl<Segment, Page> Left<Segment, Page> {
    /// Creates an empty one. The caller was told no address of it.
    pub const fn new(points: Vec<Point>) -> Self {
        Self { points, is_addressed: false, segments: Vec::new(), ranges: Vec::new(), pages: Vec::new() }
    }

    /// Replaces each segment, each range and each page, in this order, and keeps everything else. It is for a backend
    /// around another one, which unwraps what its own handles hold.
    pub fn map<S, P>(self, mut segment: impl FnMut(Segment) -> S, mut page: impl FnMut(Page) -> P) -> Left<S, P> {
        let Self { points, is_addressed, segments, ranges, pages } = self;
        Left {
            points,
            is_addressed,
            segments: segments.into_iter().map(&mut segment).collect(),
            ranges: ranges.into_iter().map(segment).collect(),
            pages: pages.into_iter().map(|left| LeftPage { page: page(left.page), mapped: left.mapped }).collect(),
        }
    }
}

/// A page of [`Left`].
#[derive(Debug)]
#[non_exhaustive]
pub struct LeftPage<Page> {
    /// The page.
    pub page: Page,
    /// Where it is mapped.
    pub mapped: Vec<LeftMapping>,
}

impl<Page> LeftPage<Page> {
    /// Creates it.
    pub const fn new(page: Page, mapped: Vec<LeftMapping>) -> Self {
        Self { page, mapped }
    }
}

/// A place where a page of [`Left`] is mapped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeftMapping {
    /// The index of the range in [`Left::ranges`].
    pub range: usize,
    /// The offset in the range, in bytes.
    pub offset: u64,
    /// The stream that the range was for.
    pub stream: StreamId,
}

impl LeftMapping {
    /// Creates it. `range` is an index into [`Left::ranges`], and `offset` is in bytes.
    pub const fn new(range: usize, offset: u64, stream: StreamId) -> Self {
        Self { range, offset, stream }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec;

    use super::*;
    use crate::Tick;

    #[test]
    fn a_backend_around_another_passes_everything_on() {
        let mut left: Left<u32, u8> = Left::new(vec![Point { stream: StreamId(3), tick: Tick(7) }]);
        (left.is_addressed, left.segments, left.ranges) = (true, vec![1, 2], vec![5]);
        left.pages = vec![LeftPage::new(9, vec![LeftMapping::new(0, 4096, StreamId(3))])];
        let before = alloc::format!("{left:?}").replace("[1, 2]", "[\"1\", \"2\"]").replace("[5]", "[\"5\"]");
        let after: Left<String, String> = left.map(|segment| segment.to_string(), |page| page.to_string());
        assert_eq!(alloc::format!("{after:?}"), before.replace("page: 9", "page: \"9\""));
    }
}
