//! The pages of an allocator: which exist, where each has its home, and where else it is still mapped.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use millpond_backend::Point;

use crate::ids::{PageId, Place, Side};

/// A handle of physical memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) bytes: u64,
    /// A number that counts up from page to page, because page ids are used again.
    pub(crate) birth: u64,
    /// The side on which its bytes are counted: that of its home, or of its last home.
    pub(crate) side: Side,
    /// The place through which its memory is used, or `None` for a spare page.
    pub(crate) home: Option<Place>,
    /// Former homes where it is still mapped.
    pub(crate) shadows: Vec<Shadow>,
}

/// A mapping of a page at a former home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shadow {
    pub(crate) place: Place,
    /// The point up to which work may still use the page through these addresses.
    pub(crate) until: Point,
}

/// All pages, by number. Numbers of released pages are used again.
#[derive(Default)]
pub(crate) struct Pages {
    table: Vec<Option<Page>>,
    vacant: Vec<PageId>,
    births: u64,
    /// Pages that have no home: got from the driver, or unmapped, for a plan that then failed.
    spare: Vec<PageId>,
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

    /// Removes a page that is released or was never created.
    pub(crate) fn remove(&mut self, id: PageId) {
        assert!(self.table[id.0 as usize].take().is_some(), "page {} is forgotten twice", id.0);
        self.vacant.push(id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PageId, &Page)> {
        let numbered = self.table.iter().enumerate();
        numbered.filter_map(|(at, page)| page.as_ref().map(|page| (PageId(at as u32), page)))
    }

    /// Removes the shadow of a page at a place from its list and returns it.
    pub(crate) fn take_shadow(&mut self, id: PageId, place: Place) -> Shadow {
        let shadows = &mut self[id].shadows;
        match shadows.iter().position(|shadow| shadow.place == place) {
            Some(at) => shadows.swap_remove(at),
            None => panic!("page {} has no shadow at {place:?}, but {shadows:?}", id.0),
        }
    }

    /// Makes a page spare: it exists, and has no home.
    pub(crate) fn put_aside(&mut self, id: PageId) {
        if !self.is_spare(id) {
            self.spare.push(id);
        }
    }

    /// Takes a page that has found a use out of the spare ones.
    pub(crate) fn use_spare(&mut self, id: PageId) {
        self.spare.retain(|&spare| spare != id);
    }

    /// Takes all spare pages, for a plan that releases some of them.
    pub(crate) fn take_spare(&mut self) -> Vec<PageId> {
        core::mem::take(&mut self.spare)
    }

    /// Returns whether a page is spare.
    pub(crate) fn is_spare(&self, id: PageId) -> bool {
        self.spare.contains(&id)
    }

    /// Returns the spare pages.
    pub(crate) fn spare(&self) -> impl Iterator<Item = (PageId, &Page)> {
        self.spare.iter().map(|&id| (id, &self[id]))
    }

    /// Returns the bytes of spare pages.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes_by_side().iter().sum()
    }

    /// Returns the bytes of spare pages of the small and of the large side.
    pub(crate) fn spare_bytes_by_side(&self) -> [u64; 2] {
        let mut bytes = [0; 2];
        self.spare().for_each(|(_, page)| bytes[page.side.index()] += page.bytes);
        bytes
    }

    /// Verifies that no two mappings are at one place and that spare pages have no home. Returns every mapping: the
    /// page, its bytes, and whether it is its home.
    ///
    /// # Panics
    ///
    /// If that does not hold.
    pub(crate) fn check(&self) -> BTreeMap<Place, (PageId, u64, bool)> {
        let mut known = BTreeMap::new();
        for (id, page) in self.iter() {
            let shadows = page.shadows.iter().map(|shadow| (shadow.place, false));
            for (place, is_home) in page.home.map(|home| (home, true)).into_iter().chain(shadows) {
                let before = known.insert(place, (id, page.bytes, is_home));
                assert_eq!(before, None, "pages at one place: {place:?}, and page {}", id.0);
            }
            assert!(!self.is_spare(id) || page.home.is_none(), "spare page {} is at home at {:?}", id.0, page.home);
        }
        known
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
