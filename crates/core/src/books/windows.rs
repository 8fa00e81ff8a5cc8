//! The windows of an allocator: addresses at which pages from several homes follow each other without gaps.
//!
//! A window is kept when the block that it was made for is freed, and serves later requests without any driver call,
//! whenever the memory behind it is free again. What is used through a window belongs to the homes of its pages: the
//! book says which parts those are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::ids::{BlockId, PageId, Place, ShardId};

/// A window, by the number of its entry. Numbers of windows that are gone are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WindowId(pub(crate) u32);

/// The part of a page that can be used through a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) page: PageId,
    /// The place in the home of the page where the part begins.
    pub(crate) home: Place,
    /// Its length: it goes on to the end of the page, or to the first part of the window if that is in the same page.
    pub(crate) bytes: u64,
    /// The place in the window's range where the page begins.
    pub(crate) at: Place,
}

/// Addresses with the parts of pages behind them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// The shard whose stream uses the window.
    pub(crate) shard: ShardId,
    /// The block of the window's addresses in the shard, which keeps its number as long as the window exists.
    pub(crate) block: BlockId,
    /// The parts in order of addresses.
    pub(crate) parts: Vec<Part>,
    /// The sum of the lengths of the parts.
    pub(crate) bytes: u64,
    /// The number of the part that was in use when the window could not be used last: it is looked at first.
    pub(crate) in_the_way: Cell<usize>,
    /// The count of uses of all windows when this one was used last.
    used: u64,
}

impl Window {
    /// Returns the number of bytes of the window in front of a part. Parts from the second on are whole pages.
    pub(crate) fn from(&self, part: usize) -> u64 {
        match (self.parts.get(1), self.parts.get(part)) {
            (Some(second), Some(other)) if part > 0 => self.parts[0].bytes + (other.at.offset - second.at.offset),
            _ => 0,
        }
    }
}

/// All windows.
#[derive(Default)]
pub(crate) struct Windows {
    table: Vec<Option<Window>>,
    vacant: Vec<WindowId>,
    /// By shard: the windows in order of birth, each with its length.
    by_birth: Vec<Vec<(u64, WindowId)>>,
    /// The window that has each part, by the place where the part's page is mapped in it.
    places: BTreeMap<Place, WindowId>,
    /// The count of uses.
    uses: u64,
}

impl Windows {
    /// Adds a window of a shard.
    pub(crate) fn insert(&mut self, shard: ShardId, block: BlockId, parts: Vec<Part>) -> WindowId {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        self.uses += 1;
        let window = Window { shard, block, parts, bytes, in_the_way: Cell::new(0), used: self.uses };
        let id = match self.vacant.pop() {
            Some(id) => id,
            None => {
                self.table.push(None);
                WindowId((self.table.len() - 1) as u32)
            }
        };
        self.places.extend(window.parts.iter().map(|part| (part.at, id)));
        self.table[id.0 as usize] = Some(window);
        let at = shard.0 as usize;
        if self.by_birth.len() <= at {
            self.by_birth.resize_with(at + 1, Vec::new);
        }
        self.by_birth[at].push((bytes, id));
        id
    }

    /// Returns the windows of a shard that are at least so long, the oldest first.
    pub(crate) fn at_least(&self, shard: ShardId, bytes: u64) -> impl Iterator<Item = (WindowId, &Window)> {
        let windows = self.by_birth.get(shard.0 as usize).map_or(&[][..], Vec::as_slice).iter();
        windows.filter(move |(length, _)| *length >= bytes).map(|&(_, id)| (id, &self[id]))
    }

    /// Returns the entry of a window in the list of its shard.
    fn entry(&self, shard: ShardId, id: WindowId) -> usize {
        let listed = self.by_birth[shard.0 as usize].iter().position(|&(_, other)| other == id);
        listed.unwrap_or_else(|| panic!("window {} is not listed", id.0))
    }

    /// Notes that a window is used.
    pub(crate) fn note_use(&mut self, id: WindowId) {
        self.uses += 1;
        let uses = self.uses;
        if let Some(Some(window)) = self.table.get_mut(id.0 as usize) {
            window.used = uses;
        }
    }

    /// Returns all windows, the one that was not used for longest first.
    pub(crate) fn by_age(&self) -> Vec<WindowId> {
        let mut all: Vec<_> = self.iter().map(|(id, window)| (window.used, id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the number of pages mapped in windows, each counted once for each window.
    pub(crate) fn mappings(&self) -> usize {
        self.places.len()
    }

    /// Returns the window in which a page is mapped at a place, with the number of the part, if there is one.
    pub(crate) fn at(&self, at: Place) -> Option<(WindowId, usize)> {
        let id = *self.places.get(&at)?;
        let part = self[id].parts.iter().position(|part| part.at == at)?;
        Some((id, part))
    }

    /// Takes a window out of the book.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub(crate) fn remove(&mut self, id: WindowId) -> Window {
        let Some(window) = self.table[id.0 as usize].take() else { panic!("window {} is gone", id.0) };
        let entry = self.entry(window.shard, id);
        self.by_birth[window.shard.0 as usize].remove(entry);
        self.forget_places(&window.parts);
        self.vacant.push(id);
        window
    }

    fn forget_places(&mut self, parts: &[Part]) {
        for part in parts {
            self.places.remove(&part.at);
        }
    }

    /// Cuts a window down to its first `keep` parts, at least one. Returns the others.
    ///
    /// # Panics
    ///
    /// If the window is not there, or nothing of it would be left.
    pub(crate) fn cut(&mut self, id: WindowId, keep: usize) -> Vec<Part> {
        assert!(keep > 0, "nothing is left of window {}", id.0);
        let Some(window) = &mut self.table[id.0 as usize] else { panic!("window {} is gone", id.0) };
        let gone = window.parts.split_off(keep);
        window.in_the_way.set(0);
        window.bytes -= gone.iter().map(|part| part.bytes).sum::<u64>();
        let (shard, bytes) = (window.shard, window.bytes);
        let entry = self.entry(shard, id);
        self.by_birth[shard.0 as usize][entry].0 = bytes;
        self.forget_places(&gone);
        gone
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WindowId, &Window)> {
        let numbered = self.table.iter().enumerate();
        numbered.filter_map(|(at, window)| window.as_ref().map(|window| (WindowId(at as u32), window)))
    }

    /// Verifies that the lists and counts agree with the windows.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub(crate) fn check(&self) {
        let mut mappings = 0;
        let mut listed = 0;
        for (id, window) in self.iter() {
            let sum: u64 = window.parts.iter().map(|part| part.bytes).sum();
            assert_eq!(window.bytes, sum, "window {}: its length against its parts", id.0);
            let entry = self.by_birth[window.shard.0 as usize][self.entry(window.shard, id)];
            assert_eq!(entry, (sum, id), "window {} and its entry in the list", id.0);
            mappings += window.parts.len();
            listed += 1;
        }
        assert_eq!(self.places.len(), mappings, "mappings counted against those of windows");
        assert_eq!(self.by_birth.iter().map(Vec::len).sum::<usize>(), listed, "windows listed against windows");
    }
}

impl core::ops::Index<WindowId> for Windows {
    type Output = Window;

    fn index(&self, id: WindowId) -> &Window {
        match &self.table[id.0 as usize] {
            Some(window) => window,
            None => panic!("window {} is gone", id.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;

    fn parts(lengths: &[u64]) -> Vec<Part> {
        let place = Place { shard: ShardId(0), slot: Slot(0), offset: 0 };
        let part = |(at, &bytes): (usize, &u64)| Part {
            page: PageId(at as u32),
            home: place,
            bytes,
            at: Place { offset: (lengths.iter().sum::<u64>() * 10 + at as u64) * 100, ..place },
        };
        lengths.iter().enumerate().map(part).collect()
    }

    #[test]
    fn the_oldest_window_that_is_long_enough_comes_first() {
        let mut book = Windows::default();
        let [long, short, other] = [(0, [5, 5]), (0, [3, 3]), (1, [4, 4])]
            .map(|(shard, lengths)| book.insert(ShardId(shard), BlockId(0), parts(&lengths)));
        let found = |book: &Windows, bytes| book.at_least(ShardId(0), bytes).map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!((found(&book, 6), found(&book, 7)), ([long, short].to_vec(), [long].to_vec()));
        assert_eq!(found(&book, 11), []);
        assert_eq!(book.mappings(), 6);
        book.check();
        assert_eq!(book.remove(long).bytes, 10);
        assert_eq!((found(&book, 7), book.mappings()), (Vec::new(), 4));
        assert_eq!((book.cut(short, 1).len(), book[short].bytes, book.mappings()), (1, 3, 3));
        assert_eq!(book.insert(ShardId(1), BlockId(1), parts(&[1])), long, "its number is used again");
        assert_eq!(book.by_age(), [short, other, long]);
        book.note_use(short);
        assert_eq!(book.by_age(), [other, long, short]);
        book.check();
    }
}
