//! The replacement of `pages.rs` where wgpu has no virtual memory.

use millpond_backend::LeftPage;

use super::Wgpu;
use crate::memory::Segment;
use crate::open::Page;

impl Wgpu {
    pub(super) fn leave_pages(&self, ranges: &[Segment], pages: Vec<LeftPage<Page>>) {
        panic!("{} pages were left in {} ranges of a device that has none", pages.len(), ranges.len());
    }
}
