//! The windows of one shard, as a search goes through them.
//!
//! A search looks at nearly all pages of all windows that are long enough, so these pages stand in one list: to follow
//! a window to a list of its own takes longer than to look at its few pages.

use alloc::vec::Vec;

use crate::ids::PageId;
use crate::ids::WindowId;
use crate::looks;

/// A window among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Listed {
    pub(crate) id: WindowId,
    /// The birth of its first part.
    pub(crate) birth: u64,
    /// The sum of the lengths of its parts.
    pub(crate) bytes: u64,
    /// The length of its longest part.
    pub(crate) longest: u64,
    /// The number of pages in front of its first one.
    first: usize,
}

impl Listed {
    pub(super) fn new(id: WindowId, birth: u64, bytes: u64, longest: u64) -> Self {
        Self { id, birth, bytes, longest, first: 0 }
    }
}

/// Windows in order of the birth of their first part, with the pages of each in order of addresses.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    windows: Vec<Listed>,
    /// The pages of all windows, one window behind the other.
    pages: Vec<PageId>,
    /// The last page of each window: a search for one to lengthen looks at these alone.
    last: Vec<PageId>,
}

impl Shelf {
    /// A shelf without windows.
    pub(super) const EMPTY: &Self = &Self { windows: Vec::new(), pages: Vec::new(), last: Vec::new() };

    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.windows.len()
    }

    /// Returns the windows, each with its pages.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Listed, &[PageId])> {
        (0..self.windows.len()).map(|at| {
            let end = self.windows.get(at + 1).map_or(self.pages.len(), |next| next.first);
            (&self.windows[at], &self.pages[self.windows[at].first..end])
        })
    }

    /// Returns the windows whose last page is as asked for, with that page. Costs a look at each last page.
    pub(crate) fn ending_with(
        &self,
        is_asked_for: impl Fn(PageId) -> bool,
    ) -> impl Iterator<Item = (WindowId, PageId)> {
        let asked_for = self.last.iter().enumerate().filter(move |&(_, &last)| is_asked_for(last));
        asked_for.map(|(at, &last)| (self.windows[at].id, last))
    }

    /// Adds a window behind those that are as old.
    pub(super) fn add(&mut self, listed: Listed, pages: impl Iterator<Item = PageId>) {
        let at = self.windows.partition_point(|other| other.birth <= listed.birth);
        let first = self.windows.get(at).map_or(self.pages.len(), |next| next.first);
        self.windows.insert(at, Listed { first, ..listed });
        let before = self.pages.len();
        self.pages.splice(first..first, pages);
        let added = self.pages.len() - before;
        self.last.insert(at, self.pages[first + added - 1]);
        self.move_behind(at, added);
    }

    /// Adds pages behind the others of a window, which has the lengths of `listed` then.
    pub(super) fn lengthen(&mut self, listed: Listed, pages: impl Iterator<Item = PageId>) {
        let at = self.number(listed.id);
        let end = self.windows.get(at + 1).map_or(self.pages.len(), |next| next.first);
        self.windows[at] = Listed { first: self.windows[at].first, ..listed };
        let before = self.pages.len();
        self.pages.splice(end..end, pages);
        let added = self.pages.len() - before;
        self.last[at] = self.pages[end + added - 1];
        self.move_behind(at, added);
    }

    /// Takes a window out.
    pub(super) fn remove(&mut self, id: WindowId) {
        looks::note(self.windows.len());
        let number = self.number(id);
        let gone = self.windows.remove(number);
        self.last.remove(number);
        let end = self.windows.iter().map(|other| other.first).find(|&first| first > gone.first);
        let end = end.unwrap_or(self.pages.len());
        self.pages.drain(gone.first..end);
        let behind = self.windows.iter_mut().filter(|other| other.first > gone.first);
        behind.for_each(|other| other.first -= end - gone.first);
    }

    /// Returns the number of a window among the others.
    ///
    /// # Panics
    ///
    /// If it is not there.
    fn number(&self, id: WindowId) -> usize {
        let number = self.windows.iter().position(|listed| listed.id == id);
        number.unwrap_or_else(|| panic!("window {} is not listed", id.0))
    }

    /// Notes that the pages of the windows behind one lie this much farther behind.
    fn move_behind(&mut self, at: usize, pages: usize) {
        looks::note(self.windows.len() - at);
        self.windows[at + 1..].iter_mut().for_each(|behind| behind.first += pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: u32, birth: u64, pages: u64) -> Listed {
        Listed::new(WindowId(id), birth, 10 * pages, 10)
    }

    fn pages(numbers: &[u32]) -> impl Iterator<Item = PageId> {
        numbers.iter().map(|&number| PageId(number))
    }

    fn seen(shelf: &Shelf) -> Vec<(u32, u64, Vec<u32>)> {
        let all = shelf.iter().map(|(listed, pages)| (listed.id.0, listed.bytes, pages.iter().map(|page| page.0)));
        all.map(|(id, bytes, pages)| (id, bytes, pages.collect())).collect()
    }

    #[test]
    fn windows_stand_in_order_of_birth_with_their_pages() {
        let mut shelf = Shelf::default();
        shelf.add(listed(4, 1, 2), pages(&[7, 8]));
        shelf.add(listed(9, 6, 1), pages(&[5]));
        shelf.add(listed(2, 3, 2), pages(&[8, 6]));
        shelf.add(listed(3, 3, 1), pages(&[1]));
        let [four, two, three] = [(4, 20, [7, 8].into()), (2, 20, [8, 6].into()), (3, 10, [1].into())];
        assert_eq!(seen(&shelf), [four.clone(), two, three.clone(), (9, 10, [5].into())]);
        shelf.lengthen(listed(2, 3, 4), pages(&[2, 7]));
        let longer = (2, 40, [8, 6, 2, 7].into());
        shelf.lengthen(listed(9, 6, 2), pages(&[4]));
        assert_eq!(seen(&shelf), [four.clone(), longer, three.clone(), (9, 20, [5, 4].into())]);
        shelf.remove(WindowId(2));
        assert_eq!(seen(&shelf), [four, three.clone(), (9, 20, [5, 4].into())]);
        shelf.remove(WindowId(9));
        shelf.remove(WindowId(4));
        assert_eq!((seen(&shelf), shelf.len()), ([three].into(), 1));
        shelf.remove(WindowId(3));
        assert!(shelf.is_empty() && shelf.pages.is_empty());
    }
}
