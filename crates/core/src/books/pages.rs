//! The pages of an allocator: which exist, where each has its home, and in which windows it is mapped.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ids::{PageId, Place, Side};

/// One driver call about a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageCall {
    /// The creation of physical memory.
    Create {
        /// The number of the page, under which the shell keeps the handle.
        page: PageId,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The mapping of a page at a place, ordered on the stream of the place's shard.
    Map {
        /// The page to map.
        page: PageId,
        /// The place where it is to be mapped.
        at: Place,
    },
    /// The unmapping of a page at a place. It cannot fail.
    Unmap {
        /// The page to unmap.
        page: PageId,
        /// The place where it is mapped.
        at: Place,
    },
    /// The return of the page's memory to the driver. It cannot fail.
    Release {
        /// The page to release.
        page: PageId,
    },
}

/// A handle of physical memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) bytes: u64,
    /// A number that counts up from page to page, because page ids are used again.
    pub(crate) birth: u64,
    /// The side on which its bytes were counted when it was created.
    pub(crate) side: Side,
    /// The place where it is mapped for its whole life, or `None` for a spare page.
    pub(crate) home: Option<Place>,
    /// The places in windows where it is mapped as well.
    pub(crate) windows: Vec<Place>,
    /// Whether its memory went back to the driver while its group is paused: it keeps its number and its places.
    pub(crate) paused: bool,
}

impl Page {
    /// Returns where it is mapped: in windows, then at home.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.windows.iter().copied().chain(self.home).collect()
    }
}

/// All pages, by number. Numbers of released pages are used again.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    table: Vec<Option<Page>>,
    vacant: Vec<PageId>,
    births: u64,
    /// Pages that have no home: created for a plan that then failed.
    spare: Vec<PageId>,
}

impl Pages {
    pub(crate) fn insert(&mut self, bytes: u64, side: Side) -> PageId {
        let page = Some(Page { bytes, birth: self.births, side, home: None, windows: Vec::new(), paused: false });
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

    /// Returns a page, if it exists.
    pub(crate) fn get(&self, id: PageId) -> Option<&Page> {
        self.table.get(id.0 as usize)?.as_ref()
    }

    /// Returns a number that is larger than that of any page.
    pub(crate) fn numbers(&self) -> usize {
        self.table.len()
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

    /// Notes that a page is no longer mapped at a place in a window.
    ///
    /// # Panics
    ///
    /// If it was not mapped there.
    pub(crate) fn leaves_window(&mut self, id: PageId, place: Place) {
        let windows = &mut self[id].windows;
        let at = windows.iter().position(|&window| window == place);
        let Some(at) = at else { panic!("page {} is not mapped in a window at {place:?}, but at {windows:?}", id.0) };
        windows.swap_remove(at);
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
            let windows = page.windows.iter().map(|&place| (place, false));
            for (place, is_home) in page.home.map(|home| (home, true)).into_iter().chain(windows) {
                let before = known.insert(place, (id, page.bytes, is_home));
                assert_eq!(before, None, "pages at one place: {place:?}, and page {}", id.0);
            }
            let is_mapped = page.home.is_some() || !page.windows.is_empty();
            assert!(!self.is_spare(id) || !is_mapped, "spare page {} is mapped: {page:?}", id.0);
        }
        known
    }
}

impl core::ops::Index<PageId> for Pages {
    type Output = Page;

    fn index(&self, id: PageId) -> &Page {
        self.table[id.0 as usize].as_ref().unwrap_or_else(|| panic!("page {} is gone", id.0))
    }
}

impl core::ops::IndexMut<PageId> for Pages {
    fn index_mut(&mut self, id: PageId) -> &mut Page {
        self.table[id.0 as usize].as_mut().unwrap_or_else(|| panic!("page {} is gone", id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_page_is_listed_once_until_it_is_used() {
        let mut book = Pages::default();
        let [first, second] = [2, 3].map(|bytes| book.insert(bytes, Side::Large));
        [first, second, first].into_iter().for_each(|page| book.put_aside(page));
        assert_eq!((book.spare().count(), book.spare_bytes_by_side()), (2, [0, 5]));
        book.use_spare(first);
        assert!(!book.is_spare(first) && book.is_spare(second));
        assert_eq!(book.take_spare(), [second]);
        assert_eq!(book.spare_bytes(), 0);
    }

    #[test]
    fn the_number_of_a_page_that_is_gone_is_used_again() {
        let mut book = Pages::default();
        let [first, second] = [2, 3].map(|bytes| book.insert(bytes, Side::Large));
        book.remove(first);
        assert_eq!(book.insert(4, Side::Small), first);
        assert!(book[first].birth > book[second].birth, "it is another page");
    }
}
