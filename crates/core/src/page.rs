//! The pages of an allocator: which exist, where each is at home, and where else it is still mapped.

use alloc::vec::Vec;

use millpond_backend::Point;

use crate::ids::{PageId, Place, Side};

/// A handle of physical memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) bytes: u64,
    /// Counts up from page to page, where numbers are used again.
    pub(crate) birth: u64,
    /// The side that its bytes are counted on: that of its home, or of its last one.
    pub(crate) side: Side,
    /// Where its memory is in use; `None` on a spare page.
    pub(crate) home: Option<Place>,
    /// Where it was at home before and is still mapped.
    pub(crate) shadows: Vec<Shadow>,
}

/// A mapping that a page has left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shadow {
    pub(crate) place: Place,
    /// Work up to here may still use the page through these addresses.
    pub(crate) until: Point,
}

/// All pages, by number. Numbers of released pages are used again.
#[derive(Default)]
pub(crate) struct Pages {
    table: Vec<Option<Page>>,
    vacant: Vec<PageId>,
    births: u64,
    /// Pages that are mapped nowhere as their home: got from the driver, or unmapped, for a plan that then failed.
    pub(crate) spare: Vec<PageId>,
}

impl Pages {
    pub(crate) fn insert(&mut self, bytes: u64, side: Side) -> PageId {
        let page = Some(Page { bytes, birth: self.births, side, home: None, shadows: Vec::new() });
        self.births += 1;
        match self.vacant.pop() {
            Some(id) => {
                self.table[id.0 as usize] = page;
                id
            }
            None => {
                self.table.push(page);
                PageId((self.table.len() - 1) as u32)
            }
        }
    }

    /// Forgets a page, which is released or was never created.
    pub(crate) fn remove(&mut self, id: PageId) {
        assert!(self.table[id.0 as usize].take().is_some(), "page {} is forgotten twice", id.0);
        self.vacant.push(id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PageId, &Page)> {
        let numbered = self.table.iter().enumerate();
        numbered.filter_map(|(at, page)| page.as_ref().map(|page| (PageId(at as u32), page)))
    }

    /// The shadow of a page at a place, taken from its list.
    pub(crate) fn take_shadow(&mut self, id: PageId, place: Place) -> Shadow {
        let shadows = &mut self[id].shadows;
        match shadows.iter().position(|shadow| shadow.place == place) {
            Some(at) => shadows.swap_remove(at),
            None => panic!("page {} has no shadow at {place:?}, but {shadows:?}", id.0),
        }
    }

    /// Bytes of spare pages.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare.iter().map(|&id| self[id].bytes).sum()
    }
}

impl core::ops::Index<PageId> for Pages {
    type Output = Page;

    fn index(&self, id: PageId) -> &Page {
        match &self.table[id.0 as usize] {
            Some(page) => page,
            None => panic!("page {} is gone", id.0),
        }
    }
}

impl core::ops::IndexMut<PageId> for Pages {
    fn index_mut(&mut self, id: PageId) -> &mut Page {
        match &mut self.table[id.0 as usize] {
            Some(page) => page,
            None => panic!("page {} is gone", id.0),
        }
    }
}
