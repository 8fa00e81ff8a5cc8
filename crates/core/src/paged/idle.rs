//! The free memory as pages see it: how much of each page is free at its beginning and at its end.

use alloc::vec::Vec;

use super::Pager;
use super::taker::{self, Stretch, Tiles};
use crate::books::{Window, Windows};
use crate::ids::{PageId, Place, ShardId, WindowId};
use crate::looks;
use crate::memory::Ends;

/// The free bytes at both ends of each page, by the number of the page.
#[derive(Debug)]
pub(crate) struct IdlePages {
    ends: Vec<Ends>,
    /// Which ends are free, and whether the page is: a search looks at the pages of hundreds of windows, of which most
    /// have none. They take a byte each, where the ends take many.
    marks: Vec<u8>,
}

/// The beginning of a page is free.
const HEAD: u8 = 1;
/// The end of a page is free.
const TAIL: u8 = 2;
/// All of a page is free.
const WHOLE: u8 = 4;

/// Where a part of a window whose memory is free is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) window: WindowId,
    /// Where it begins in the window's range.
    pub(crate) offset: u64,
    /// The birth of the last page in it.
    birth: u64,
}

/// Free bytes in front of a part of a window, and the number of the part where they begin.
#[derive(Clone, Copy)]
struct FreeRun {
    bytes: u64,
    first: usize,
}

impl Pager<'_> {
    /// Returns how much of each page of a home is free.
    pub(crate) fn idle_pages(&mut self, home: ShardId, tiles: &Tiles) -> IdlePages {
        let mut all = IdlePages::new(self.core.pages.numbers());
        self.shards.with(home, |shard| {
            tiles.iter().for_each(|tile| shard.memory.ends_in(tile, |page, ends| all.add(page, ends)))
        });
        all
    }
}

impl IdlePages {
    /// Returns that of this number of pages nothing is free.
    fn new(pages: usize) -> Self {
        looks::note(pages);
        Self { ends: alloc::vec![Ends::default(); pages], marks: alloc::vec![0; pages] }
    }

    /// Adds what a free block has of a page.
    fn add(&mut self, page: PageId, ends: Ends) {
        looks::note(1);
        let number = page.0 as usize;
        self.ends[number].add(ends);
        let mark = |is_so: bool, mark: u8| if is_so { mark } else { 0 };
        self.marks[number] |= mark(ends.head > 0, HEAD) | mark(ends.tail > 0, TAIL) | mark(ends.is_whole, WHOLE);
    }

    fn of(&self, page: PageId) -> Ends {
        self.ends.get(page.0 as usize).copied().unwrap_or_default()
    }

    fn has(&self, page: PageId, mark: u8) -> bool {
        self.marks.get(page.0 as usize).is_some_and(|marks| marks & mark != 0)
    }

    /// Returns whether the end of a page is free.
    pub(crate) fn is_free_at_end(&self, page: PageId) -> bool {
        self.has(page, TAIL)
    }

    /// Returns the part of `bytes` free bytes, of the windows of a shard, whose youngest page is the oldest. A window
    /// that was lengthened is as old there as its pages.
    ///
    /// The oldest one, so that a program that repeats itself makes no new windows: a request that comes again in the
    /// same state of the memory finds all windows that there were the last time, and takes the same part, or the one
    /// that was made for it. Windows that were made later in the last round do not change that.
    pub(crate) fn oldest_run(&self, windows: &Windows, shard: ShardId, bytes: u64) -> Option<Found> {
        let mut best: Option<Found> = None;
        for (listed, pages) in windows.of(shard).iter() {
            looks::note(1);
            let before = best.as_ref().map_or(u64::MAX, |best| best.birth);
            if listed.birth >= before {
                break;
            }
            if listed.bytes >= bytes
                && let Some(from) = self.first_page(pages, 0, listed.longest, bytes)
                && let Some(found) = self.run(listed.id, &windows[listed.id], pages, from, bytes, before)
            {
                best = Some(found);
            }
        }
        best
    }

    /// Returns the first part of a window with `bytes` bytes that are free. Looks only at pages that are older than
    /// `before`, and at none in front of `from`, with which the part may begin.
    fn run(
        &self,
        id: WindowId,
        window: &Window,
        pages: &[PageId],
        mut from: usize,
        bytes: u64,
        before: u64,
    ) -> Option<Found> {
        // What was added to a window is younger than what was there.
        let pages = &pages[..window.parts.partition_point(|part| part.birth < before)];
        // The free bytes that end where the page looked at begins, and the number of the part where they begin.
        let mut run = FreeRun { bytes: 0, first: from };
        let mut number = from;
        while let Some(&page) = pages.get(number) {
            looks::note(1);
            let Ends { head, tail, is_whole } = self.of(page);
            if window.repeats && run.bytes > 0 {
                run = run.without_repeats(window, number, head, bytes);
            }
            let part = &window.parts[number];
            let found = |offset: u64| Some(Found { window: id, offset, birth: part.birth });
            if run.bytes + head >= bytes {
                return found(part.at.offset - run.bytes);
            }
            if is_whole {
                if run.bytes == 0 {
                    run.first = number;
                }
                run.bytes += tail;
            } else {
                if tail >= bytes {
                    return found(part.end() - tail);
                }
                if number != from {
                    from = self.next_page(pages, number, window.longest, bytes)?;
                    if from > number {
                        (run.bytes, number) = (0, from);
                        continue;
                    }
                }
                run = FreeRun { bytes: tail, first: number };
            }
            number += 1;
        }
        None
    }

    /// Returns the number of the first of some pages, from one on, with which a free part of a window with these pages
    /// may begin, after a look at few of them. Of any part that is longer than two pages all pages but the first and
    /// the last are entirely free. A shorter one has the end of a page and the beginning of the next one, which
    /// suffice, unless it lies in one page.
    #[inline(always)]
    fn first_page(&self, pages: &[PageId], from: usize, longest: u64, bytes: u64) -> Option<usize> {
        let needed = ((bytes + 1) / longest).saturating_sub(1) as usize;
        if needed > 0 {
            let row = self.row(pages, from, needed)?;
            return Some(if row > from { row - 1 } else { row });
        }
        let suffices = |pair: &[PageId]| self.of(pair[0]).tail + self.of(pair[1]).head >= bytes;
        let goes_on = |pair: &[PageId]| {
            self.has(pair[0], TAIL) && self.has(pair[1], HEAD) && (self.has(pair[1], WHOLE) || suffices(pair))
        };
        let two = pages[from..].windows(2).position(goes_on).map(|at| from + at);
        looks::note(two.unwrap_or(pages.len()) - from);
        if bytes > longest {
            return two;
        }
        let most = |page: PageId| self.of(page).head.max(self.of(page).tail);
        let has_all = |page: &PageId| self.has(*page, HEAD | TAIL) && most(*page) >= bytes;
        let before = two.map_or(pages.len(), |two| two + 1);
        pages[from..before].iter().position(has_all).map(|at| from + at).or(two)
    }

    /// Searches apart from its callers: a search of hundreds of windows has only the first look at each of them in
    /// its loop.
    #[inline(never)]
    fn next_page(&self, pages: &[PageId], from: usize, longest: u64, bytes: u64) -> Option<usize> {
        self.first_page(pages, from, longest, bytes)
    }

    /// Returns the number of the first of this many pages in a row, from one on, that are entirely free.
    fn row(&self, pages: &[PageId], from: usize, needed: usize) -> Option<usize> {
        let is_whole = |page: &PageId| self.has(*page, WHOLE);
        // Of that many pages in a row, one is at a multiple of their number.
        let mut number = from + needed - 1;
        while let Some(page) = pages.get(number) {
            looks::note(1);
            if !is_whole(page) {
                number += needed;
                continue;
            }
            let before = pages[from..number].iter().rev().take(needed).take_while(|page| is_whole(page)).count();
            let behind = 1 + pages[number + 1..].iter().take(needed).take_while(|page| is_whole(page)).count();
            if before + behind >= needed {
                return Some(number - before);
            }
            number += behind.next_multiple_of(needed);
        }
        None
    }

    /// Returns the number of free bytes at the end of a window, if its last page suffices to know it: not all of that
    /// page is free.
    pub(crate) fn rear_of(&self, last: PageId) -> Option<u64> {
        (!self.has(last, WHOLE)).then(|| self.of(last).tail)
    }

    /// Returns the number of free bytes at the end of a window, no byte counted twice.
    pub(crate) fn rear(&self, window: &Window) -> u64 {
        let (mut rear, mut again) = (0, None);
        for (number, part) in window.parts.iter().enumerate().rev() {
            if again == Some(number as u32) {
                break;
            }
            let Ends { tail, is_whole, .. } = self.of(part.page);
            rear += tail;
            if !is_whole {
                break;
            }
            again = again.max(part.again);
        }
        rear
    }
}

impl FreeRun {
    /// Returns the free bytes in front of a part that are in no byte the same as those of the part. The tail of a page
    /// and its head may be in one run: that depends on how many bytes are needed.
    fn without_repeats(self, window: &Window, number: usize, head: u64, bytes: u64) -> Self {
        let part = &window.parts[number];
        let Some(again) = part.again.map(|again| again as usize).filter(|&again| again >= self.first) else {
            return self;
        };
        let of_first = window.parts[self.first].end() + self.bytes - part.at.offset;
        let is_apart = again == self.first && self.bytes + head >= bytes && bytes - self.bytes + of_first <= part.bytes;
        if is_apart {
            return self;
        }
        let first = again + 1;
        Self { bytes: part.at.offset - window.parts[first].at.offset, first }
    }
}

/// Returns the memory behind a part of a window, in order of addresses.
pub(crate) fn memory_of(window: &Window, offset: u64, bytes: u64) -> Vec<Stretch> {
    let (mut at, mut left) = (offset, bytes);
    let mut stretches = Vec::new();
    let first = window.parts.partition_point(|part| part.end() <= offset);
    for part in &window.parts[first..] {
        let inside = at - part.at.offset;
        let bytes = (part.bytes - inside).min(left);
        let home = Place { offset: part.home.offset + inside, ..part.home };
        taker::add(&mut stretches, Stretch { home, bytes });
        (at, left) = (at + bytes, left - bytes);
        if left == 0 {
            break;
        }
    }
    debug_assert_eq!(left, 0, "{bytes} bytes at {offset} of a window");
    stretches
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;
    use crate::books::Part;
    use crate::ids::{BlockId, Slot};

    fn place(offset: u64) -> Place {
        Place { shard: ShardId(0), slot: Slot(0), offset }
    }

    /// Returns a window of pages of 10 bytes, the first at 100, and a state of the memory: for each page the free bytes
    /// at its beginning and at its end.
    fn scene(pages: &[u32], free: &[(u64, u64)]) -> (Window, IdlePages) {
        let part = |(at, &page): (usize, &u32)| {
            let home = place(1000 + 20 * u64::from(page));
            Part::new(PageId(page), home, 10, place(100 + 10 * at as u64))
        };
        let ends = |&(head, tail): &(u64, u64)| Ends { head, tail, is_whole: head == 10 };
        let mut book = Windows::default();
        let id = book.insert(ShardId(0), BlockId(0), pages.iter().enumerate().map(part).collect());
        (book.remove(id), of_pages(free.iter().map(ends)))
    }

    /// Returns a state of the memory in which pages have these free ends, the first of which is page 0.
    fn of_pages(ends: impl ExactSizeIterator<Item = Ends>) -> IdlePages {
        let mut idle = IdlePages::new(ends.len());
        (0..).zip(ends).for_each(|(number, ends)| idle.add(PageId(number), ends));
        idle
    }

    fn run(pages: &[u32], free: &[(u64, u64)], bytes: u64) -> Option<u64> {
        let (window, idle) = scene(pages, free);
        let pages: Vec<_> = pages.iter().map(|&page| PageId(page)).collect();
        let from = idle.first_page(&pages, 0, window.longest, bytes);
        let run = |from, before| idle.run(WindowId(0), &window, &pages, from, bytes, before).map(|found| found.offset);
        assert_eq!((run(0, 1), from.and_then(|from| run(from, 2))), (None, run(0, 2)), "it is of birth 1");
        run(0, 2)
    }

    #[test]
    fn a_run_begins_with_a_tail_and_ends_with_a_head() {
        let free = [(2, 3), (10, 10), (10, 10), (4, 0)];
        let found = |bytes| run(&[0, 1, 2, 3], &free, bytes);
        assert_eq!([1, 2, 3, 5, 27, 28].map(found), [Some(100), Some(100), Some(107), Some(107), Some(107), None]);
        assert_eq!(run(&[0, 1, 2, 3], &[(2, 3), (10, 10), (10, 10), (10, 10)], 33), Some(107));
        assert_eq!(run(&[0, 1, 2], &[(10, 10), (0, 0), (10, 10)], 11), None, "something is in the way");
    }

    #[test]
    fn no_byte_is_in_a_run_twice() {
        let free = [(10, 10), (10, 10), (4, 5)];
        assert_eq!(run(&[0, 1, 0], &free, 20), Some(100));
        assert_eq!(run(&[0, 1, 0], &free, 21), None);
        assert_eq!(run(&[0, 1, 0, 2], &free, 21), Some(110), "without the first page it is long enough");
        assert_eq!(run(&[2, 0, 2], &free, 19), Some(105), "the tail of a page comes first and its head last");
        assert_eq!(run(&[2, 0, 2], &free, 20), None);
        assert_eq!(run(&[0, 0, 0, 1], &free, 21), None);
        let split = [(10, 10), (7, 7)];
        assert_eq!((run(&[1, 0, 1], &split, 20), run(&[1, 0, 1], &split, 21)), (Some(103), None), "they overlap");
    }

    /// A window is as old where it was lengthened as what was added.
    #[test]
    fn the_oldest_part_is_found() {
        let mut book = Windows::default();
        let parts = |offset, pages: &[u32]| {
            let part = |(at, &page): (u64, &u32)| Part::new(PageId(page), place(0), 10, place(offset + 10 * at));
            (0..).zip(pages).map(part).collect::<Vec<_>>()
        };
        let shard = ShardId(0);
        let first = book.insert(shard, BlockId(0), parts(0, &[0, 1]));
        let second = book.insert(shard, BlockId(1), parts(100, &[2, 3]));
        book.lengthen(first, parts(20, &[4, 5]));
        let third = book.insert(shard, BlockId(2), parts(200, &[4, 3]));
        let found = |free: &[u32], bytes| {
            let whole = |page: u32| if free.contains(&page) { 10 } else { 0 };
            let ends = |page| Ends { head: whole(page), tail: whole(page), is_whole: whole(page) > 0 };
            of_pages((0..6).map(ends)).oldest_run(&book, shard, bytes).map(|found| (found.window, found.offset))
        };
        assert_eq!(found(&[0, 1, 2, 3, 4, 5], 20), Some((first, 0)));
        assert_eq!(found(&[1, 2, 3, 4, 5], 20), Some((second, 100)), "the first window was lengthened later");
        assert_eq!(found(&[1, 3, 4, 5], 20), Some((first, 10)), "but before the third was made");
        assert_eq!(found(&[3, 4], 20), Some((third, 200)));
        assert_eq!((found(&[0, 1, 2, 3, 4, 5], 40), found(&[0, 2, 4], 20)), (Some((first, 0)), None));
    }

    /// What is found is what a look at every byte finds.
    #[test]
    fn random_windows_are_searched_like_bytes() {
        let mut random = millpond_trace::Random::new(7);
        let mut found = 0;
        for _ in 0..20_000 {
            let free: Vec<_> = (0..6)
                .map(|_| match random.below(3) {
                    0 => (random.below(5), random.below(5)),
                    _ => (10, 10),
                })
                .collect();
            let length = 1 + random.below(8);
            let pages: Vec<_> = (0..length).map(|_| random.below(6) as u32).collect();
            let bytes = 1 + random.below(60);
            let of_byte = |at: u64| (pages[(at / 10) as usize], at % 10);
            let is_free = |(page, byte): (u32, u64)| {
                let (head, tail) = free[page as usize];
                byte < head || byte >= 10 - tail
            };
            let fits = |from: &u64| {
                let run: Vec<_> = (*from..*from + bytes).map(of_byte).collect();
                let mut distinct = run.clone();
                distinct.sort_unstable();
                distinct.dedup();
                distinct.len() == run.len() && run.into_iter().all(is_free)
            };
            let expected = (0..(10 * length + 1).saturating_sub(bytes)).find(fits).map(|from| 100 + from);
            let run = run(&pages, &free, bytes);
            assert_eq!(run, expected, "{bytes} bytes in {pages:?} with {free:?} free");
            found += usize::from(run.is_some());
        }
        assert!((5_000..15_000).contains(&found), "{found} of 20,000 were found");
    }

    #[test]
    fn the_rear_of_a_window_has_no_byte_twice() {
        let rear = |pages: &[u32], free: &[(u64, u64)]| {
            let (window, idle) = scene(pages, free);
            idle.rear(&window)
        };
        let free = [(10, 10), (10, 10), (4, 5)];
        assert_eq!((rear(&[2, 0, 1], &free), rear(&[0, 1, 2], &free)), (25, 5));
        assert_eq!((rear(&[1, 0, 1], &free), rear(&[0, 1, 0, 1], &free)), (20, 20));
    }

    #[test]
    fn the_memory_of_a_run_is_joined_where_it_goes_on() {
        let (window, _) = scene(&[0, 1, 3], &[]);
        let stretch = |offset, bytes| Stretch { home: place(offset), bytes };
        assert_eq!(memory_of(&window, 103, 20), [stretch(1003, 7), stretch(1020, 10), stretch(1060, 3)]);
        assert_eq!(memory_of(&window, 111, 2), [stretch(1021, 2)]);
        let (mut window, _) = scene(&[0, 1], &[]);
        window.parts[1].home = place(1010);
        assert_eq!(memory_of(&window, 103, 10), vec![stretch(1003, 10)]);
    }
}
