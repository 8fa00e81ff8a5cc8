//! The windows of an allocator: addresses at which pages from several places of a home follow each other without gaps.
//!
//! A window is kept when the block that it was made for is freed, and serves later requests without a mapping, whenever
//! its memory is free again. What is used through a window belongs to the home of its pages: the book says which parts
//! those are.
//!
//! A search looks at nearly all pages of all windows that are long enough, so these pages stand in one list: to follow
//! a window to a list of its own takes longer than to look at its few pages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use crate::ids::{BlockId, PageId, Place, ShardId, WindowId};
use crate::looks;

/// A page in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) page: PageId,
    /// The place of the page in its home.
    pub(crate) home: Place,
    pub(crate) bytes: u64,
    /// The place in the window's range where the page is mapped.
    pub(crate) at: Place,
    /// The number of times that a window was made or lengthened before this part was added, over all windows.
    pub(crate) birth: u64,
    /// The part in front of this one that has the same page, if there is one: the last of them.
    pub(crate) again: Option<u32>,
}

impl Part {
    /// Returns a part that is in no window yet.
    pub(crate) fn new(page: PageId, home: Place, bytes: u64, at: Place) -> Self {
        Self { page, home, bytes, at, birth: 0, again: None }
    }

    /// Returns the offset of the first byte behind it in the window's range.
    pub(crate) fn end(&self) -> u64 {
        self.at.offset + self.bytes
    }
}

/// Addresses with pages behind them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// The shard that has the window.
    pub(crate) shard: ShardId,
    /// The first block of the window's addresses in the shard. It keeps its number as long as the window exists.
    pub(crate) head: BlockId,
    /// The parts in order of addresses, without gaps.
    pub(crate) parts: Vec<Part>,
    /// Whether a page is there more than once.
    pub(crate) repeats: bool,
    /// The sum of the lengths of the parts.
    pub(crate) bytes: u64,
    /// The length of its longest part.
    pub(crate) longest: u64,
    /// The count of uses of all windows when this one was used last.
    used: u64,
}

impl Window {
    fn empty(shard: ShardId, head: BlockId, used: u64) -> Self {
        let parts = Vec::new();
        Self { shard, head, parts, repeats: false, bytes: 0, longest: 0, used }
    }

    /// Returns the place of its first byte.
    pub(crate) fn begin(&self) -> Place {
        self.parts[0].at
    }

    /// Returns the offset of the first byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.parts[0].at.offset + self.bytes
    }

    /// Returns the window as its shelf lists it, which knows where its pages begin.
    fn listed(&self, id: WindowId) -> Listed {
        Listed { id, birth: self.parts[0].birth, bytes: self.bytes, longest: self.longest, first: 0 }
    }

    /// Adds parts behind the others.
    fn append(&mut self, parts: Vec<Part>, birth: u64) {
        for part in parts {
            let again = self.parts.iter().rposition(|other| other.page == part.page).map(|at| at as u32);
            self.repeats |= again.is_some();
            self.bytes += part.bytes;
            self.longest = self.longest.max(part.bytes);
            self.parts.push(Part { birth, again, ..part });
        }
    }

    /// Brings what depends on the list of parts up to date.
    fn renumber(&mut self) {
        let parts = core::mem::take(&mut self.parts);
        *self = Self::empty(self.shard, self.head, self.used);
        for part in parts {
            self.append([part].into(), part.birth);
        }
    }
}

/// All windows.
#[derive(Clone, Default)]
pub(crate) struct Windows {
    table: Vec<Option<Window>>,
    vacant: Vec<WindowId>,
    /// The windows of each shard.
    shelves: Vec<Shelf>,
    /// All windows with the count of uses when each was used last, so that the one that was not used for longest is the
    /// first.
    by_use: BTreeSet<(u64, WindowId)>,
    /// The window that has each part, by the place where the part's page is mapped in it.
    places: BTreeMap<Place, WindowId>,
    /// The number of times that a window was made or lengthened.
    births: u64,
    /// The count of uses.
    uses: u64,
}

/// A place in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowPart {
    pub(crate) window: WindowId,
    /// The number of the part.
    pub(crate) part: usize,
}

impl Windows {
    /// Adds a window of a shard.
    pub(crate) fn insert(&mut self, shard: ShardId, head: BlockId, parts: Vec<Part>) -> WindowId {
        self.uses += 1;
        self.births += 1;
        let mut window = Window::empty(shard, head, self.uses);
        window.append(parts, self.births);
        self.enter(window)
    }

    /// Adds parts behind the others of a window.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub(crate) fn lengthen(&mut self, id: WindowId, parts: Vec<Part>) {
        self.births += 1;
        let births = self.births;
        self.places.extend(parts.iter().map(|part| (part.at, id)));
        let added: Vec<_> = parts.iter().map(|part| part.page).collect();
        let Some(window) = &mut self.table[id.0 as usize] else { panic!("window {} is gone", id.0) };
        window.append(parts, births);
        self.shelves[window.shard.0 as usize].lengthen(window.listed(id), added.into_iter());
    }

    fn enter(&mut self, window: Window) -> WindowId {
        let id = match self.vacant.pop() {
            Some(id) => id,
            None => {
                self.table.push(None);
                WindowId((self.table.len() - 1) as u32)
            }
        };
        self.places.extend(window.parts.iter().map(|part| (part.at, id)));
        self.by_use.insert((window.used, id));
        let shard = window.shard.0 as usize;
        if self.shelves.len() <= shard {
            self.shelves.resize_with(shard + 1, Shelf::default);
        }
        self.shelves[shard].add(window.listed(id), window.parts.iter().map(|part| part.page));
        self.table[id.0 as usize] = Some(window);
        id
    }

    /// Returns the windows of a shard, in order of the birth of their first part.
    pub(crate) fn of(&self, shard: ShardId) -> &Shelf {
        self.shelves.get(shard.0 as usize).unwrap_or(Shelf::EMPTY)
    }

    /// Notes that a window is used.
    pub(crate) fn note_use(&mut self, id: WindowId) {
        self.uses += 1;
        let uses = self.uses;
        if let Some(Some(window)) = self.table.get_mut(id.0 as usize) {
            self.by_use.remove(&(window.used, id));
            self.by_use.insert((uses, id));
            window.used = uses;
        }
    }

    /// Returns the window that was not used for longest, or of those that were used behind `before`, if that is given,
    /// with what distinguishes them: the count of uses and the window.
    pub(crate) fn least_used(&self, before: Option<(u64, WindowId)>) -> Option<(u64, WindowId)> {
        let from = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_use.range((from, Bound::Unbounded)).next().copied()
    }

    /// Returns the number of pages mapped in windows, each counted once for each window.
    pub(crate) fn mappings(&self) -> usize {
        self.places.len()
    }

    /// Returns the window in which a page is mapped at a place, with the number of the part, if there is one.
    pub(crate) fn at(&self, at: Place) -> Option<WindowPart> {
        let id = *self.places.get(&at)?;
        let part = self[id].parts.iter().position(|part| part.at == at)?;
        Some(WindowPart { window: id, part })
    }

    /// Takes a window out of the book.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub(crate) fn remove(&mut self, id: WindowId) -> Window {
        let Some(window) = self.table[id.0 as usize].take() else { panic!("window {} is gone", id.0) };
        self.shelves[window.shard.0 as usize].remove(id);
        self.by_use.remove(&(window.used, id));
        for part in &window.parts {
            self.places.remove(&part.at);
        }
        self.vacant.push(id);
        window
    }

    /// Takes one part out of a window. What is in front of it and what is behind it are windows of their own then; the
    /// one behind begins with the block `behind`. Returns the part.
    ///
    /// # Panics
    ///
    /// If the window or the part is not there.
    pub(crate) fn take_out(&mut self, id: WindowId, part: usize, behind: Option<BlockId>) -> Part {
        let mut front = self.remove(id);
        let rear = front.parts.split_off(part + 1);
        let Some(gone) = front.parts.pop() else { panic!("window {} has no part {part}", id.0) };
        if let Some(head) = behind.filter(|_| !rear.is_empty()) {
            let mut rear = Window { head, parts: rear, ..front.clone() };
            rear.renumber();
            self.enter(rear);
        }
        if !front.parts.is_empty() {
            front.renumber();
            self.enter(front);
        }
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
        let mut windows = 0;
        for (id, window) in self.iter() {
            let sum: u64 = window.parts.iter().map(|part| part.bytes).sum();
            assert_eq!(window.bytes, sum, "window {}: its length against its parts", id.0);
            let listed = self.of(window.shard).iter().find(|(listed, _)| listed.id == id);
            let Some((listed, pages)) = listed else { panic!("window {} is not listed", id.0) };
            let parts = window.parts.iter().map(|part| part.page);
            assert!(pages.iter().copied().eq(parts), "window {}: its pages in the list, {pages:?}", id.0);
            let own = window.listed(id);
            assert!(
                (listed.birth, listed.bytes, listed.longest) == (own.birth, sum, own.longest),
                "{listed:?}, {own:?}"
            );
            assert!(self.by_use.contains(&(window.used, id)), "window {}: its last use is not listed", id.0);
            let mut renumbered = window.clone();
            renumbered.renumber();
            assert_eq!(*window, renumbered, "window {}: pages that are in it more than once", id.0);
            for pair in window.parts.windows(2) {
                assert_eq!(pair[0].end(), pair[1].at.offset, "window {}: a gap between {pair:?}", id.0);
                assert!(pair[0].birth <= pair[1].birth, "window {}: older parts behind {pair:?}", id.0);
            }
            mappings += window.parts.len();
            windows += 1;
        }
        assert_eq!(self.places.len(), mappings, "mappings counted against those of windows");
        let lists = (self.shelves.iter().map(Shelf::len).sum::<usize>(), self.by_use.len());
        assert_eq!(lists, (windows, windows), "windows listed by birth and by use against windows");
        let in_order = |shelf: &Shelf| shelf.iter().is_sorted_by_key(|(listed, _)| listed.birth);
        assert!(self.shelves.iter().all(in_order), "windows out of order");
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

/// Windows in order of the birth of their first part, with the pages of each in order of addresses.
#[derive(Clone, Debug, Default)]
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
        (0..self.windows.len()).map(|at| (&self.windows[at], &self.pages[self.first_page(at)..self.first_page(at + 1)]))
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
        let first = self.first_page(at);
        self.windows.insert(at, Listed { first, ..listed });
        let last = self.add_pages(at, first, pages);
        self.last.insert(at, last);
    }

    /// Adds pages behind the others of a window, which has the lengths of `listed` then.
    pub(super) fn lengthen(&mut self, listed: Listed, pages: impl Iterator<Item = PageId>) {
        let at = self.number(listed.id);
        self.windows[at] = Listed { first: self.windows[at].first, ..listed };
        self.last[at] = self.add_pages(at, self.first_page(at + 1), pages);
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

    /// Returns where the pages of a window begin, or where all pages end.
    fn first_page(&self, at: usize) -> usize {
        self.windows.get(at).map_or(self.pages.len(), |window| window.first)
    }

    /// Adds the last pages of a window, from a place on. The pages of the windows behind it follow. Returns the last
    /// page of the window.
    fn add_pages(&mut self, at: usize, place: usize, pages: impl Iterator<Item = PageId>) -> PageId {
        looks::note(self.windows.len() - at);
        let before = self.pages.len();
        self.pages.splice(place..place, pages);
        let pages = self.pages.len() - before;
        self.windows[at + 1..].iter_mut().for_each(|behind| behind.first += pages);
        self.pages[place + pages - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;

    const SHARD: ShardId = ShardId(0);

    fn place(offset: u64) -> Place {
        Place { shard: SHARD, slot: Slot(0), offset }
    }

    /// Returns pages of 10 bytes one behind the other, the first at `offset`.
    fn parts(offset: u64, pages: &[u32]) -> Vec<Part> {
        let part = |(at, &page): (usize, &u32)| {
            Part::new(PageId(page), place(1000 + 10 * u64::from(page)), 10, place(offset + 10 * at as u64))
        };
        pages.iter().enumerate().map(part).collect()
    }

    fn pages(book: &Windows, id: WindowId) -> Vec<(u32, Option<u32>)> {
        book[id].parts.iter().map(|part| (part.page.0, part.again)).collect()
    }

    fn found(book: &Windows, bytes: u64) -> Vec<WindowId> {
        book.of(SHARD).iter().filter(|(listed, _)| listed.bytes >= bytes).map(|(listed, _)| listed.id).collect()
    }

    fn by_use(book: &Windows) -> Vec<WindowId> {
        core::iter::successors(book.least_used(None), |&last| book.least_used(Some(last))).map(|(_, id)| id).collect()
    }

    #[test]
    fn windows_that_are_long_enough_are_listed_by_birth() {
        let mut book = Windows::default();
        let long = book.insert(SHARD, BlockId(0), parts(0, &[1, 2, 3]));
        let short = book.insert(SHARD, BlockId(1), parts(100, &[1, 4]));
        let other = book.insert(ShardId(1), BlockId(2), parts(200, &[1, 4]));
        assert_eq!(
            (found(&book, 20), found(&book, 21), found(&book, 31)),
            ([long, short].into(), [long].into(), [].into())
        );
        book.lengthen(short, parts(120, &[5]));
        assert_eq!((found(&book, 30), book.mappings()), ([long, short].to_vec(), 8), "as old as its first part");
        assert_eq!(book[short].parts.iter().map(|part| part.birth).collect::<Vec<_>>(), [2, 2, 4]);
        book.check();
        assert_eq!(book.remove(long).bytes, 30);
        assert_eq!((found(&book, 20), book.mappings(), book.at(place(0))), ([short].to_vec(), 5, None));
        assert_eq!(book.insert(ShardId(1), BlockId(3), parts(300, &[1])), long, "its number is used again");
        assert_eq!(by_use(&book), [short, other, long]);
        book.note_use(short);
        assert_eq!(by_use(&book), [other, long, short]);
        book.check();
    }

    /// A search goes by the longest page, wherever it is in the window.
    #[test]
    fn a_window_knows_its_longest_page() {
        let part =
            |offset, bytes| Part { bytes, ..Part::new(PageId(offset as u32), place(1000), bytes, place(offset)) };
        let mut book = Windows::default();
        let window = book.insert(SHARD, BlockId(0), [part(0, 10), part(10, 30), part(40, 20)].into());
        assert_eq!((book[window].longest, book[window].bytes), (30, 60));
        book.lengthen(window, [part(60, 40), part(100, 10)].into());
        assert_eq!((book[window].longest, book[window].end()), (40, 110));
        book.take_out(window, 3, Some(BlockId(1)));
        let lengths: Vec<_> = book.of(SHARD).iter().map(|(listed, _)| (listed.bytes, listed.longest)).collect();
        assert_eq!(lengths, [(60, 30), (10, 10)]);
        book.check();
    }

    /// A page that is taken out of the middle leaves two windows, of which both are as old as their parts.
    #[test]
    fn a_page_is_taken_out_of_a_window() {
        let mut book = Windows::default();
        let whole = book.insert(SHARD, BlockId(0), parts(0, &[1, 2, 3]));
        let young = book.insert(SHARD, BlockId(1), parts(100, &[9]));
        book.lengthen(whole, parts(30, &[2, 1]));
        assert_eq!(pages(&book, whole), [(1, None), (2, None), (3, None), (2, Some(1)), (1, Some(0))]);
        let gone = book.take_out(whole, 2, Some(BlockId(7)));
        assert_eq!((gone.page, book.at(gone.at)), (PageId(3), None));
        book.check();
        let [front, rear] = [0, 30].map(|offset| book.at(place(offset)).expect("it is mapped").window);
        assert_eq!((pages(&book, front), book[front].head), ([(1, None), (2, None)].into(), BlockId(0)));
        assert_eq!((pages(&book, rear), book[rear].head), ([(2, None), (1, None)].into(), BlockId(7)));
        assert_eq!(found(&book, 10), [front, young, rear], "the lengthening is younger than the other window");
        for _ in 0..2 {
            let WindowPart { window: id, part } = book.at(place(0)).or(book.at(place(10))).expect("it is mapped");
            book.take_out(id, part, Some(BlockId(8)));
            book.check();
        }
        assert_eq!(found(&book, 10), [young, rear]);
    }

    fn listed(id: u32, birth: u64, pages: u64) -> Listed {
        Listed { id: WindowId(id), birth, bytes: 10 * pages, longest: 10, first: 0 }
    }

    fn numbered(numbers: &[u32]) -> impl Iterator<Item = PageId> {
        numbers.iter().map(|&number| PageId(number))
    }

    fn seen(shelf: &Shelf) -> Vec<(u32, u64, Vec<u32>)> {
        let all = shelf.iter().map(|(listed, pages)| (listed.id.0, listed.bytes, pages.iter().map(|page| page.0)));
        all.map(|(id, bytes, pages)| (id, bytes, pages.collect())).collect()
    }

    #[test]
    fn windows_stand_in_order_of_birth_with_their_pages() {
        let mut shelf = Shelf::default();
        shelf.add(listed(4, 1, 2), numbered(&[7, 8]));
        shelf.add(listed(9, 6, 1), numbered(&[5]));
        shelf.add(listed(2, 3, 2), numbered(&[8, 6]));
        shelf.add(listed(3, 3, 1), numbered(&[1]));
        let [four, two, three] = [(4, 20, [7, 8].into()), (2, 20, [8, 6].into()), (3, 10, [1].into())];
        assert_eq!(seen(&shelf), [four.clone(), two, three.clone(), (9, 10, [5].into())]);
        shelf.lengthen(listed(2, 3, 4), numbered(&[2, 7]));
        let longer = (2, 40, [8, 6, 2, 7].into());
        shelf.lengthen(listed(9, 6, 2), numbered(&[4]));
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
