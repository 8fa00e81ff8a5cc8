//! The pieces of a block that a check marks, and the marks.

use millpond_trace::Random;

/// The bytes marked at each end of a block.
pub(crate) const EDGE_BYTES: u64 = 64;
/// The bytes marked at the start of every page inside a block.
const STAMP_BYTES: u64 = 16;
/// The size of the table from which marks are copied, in bytes.
pub(crate) const TABLE_BYTES: u64 = 1 << 20;
const WORD_BYTES: u64 = 8;

/// Returns the pieces to mark of a block of `capacity` bytes, which starts at `start` of its segment: (offset in the
/// block, bytes). They are its ends, and the start of every page that begins between them, so that every page with a
/// part of the block in it has a mark.
pub(crate) fn pieces(start: u64, capacity: u64, page_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let edge = EDGE_BYTES.min(capacity);
    let first_page = start.next_multiple_of(page_bytes) - start;
    let last = capacity - edge;
    let pages = (first_page..last).step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX));
    let inside = pages.filter(move |&offset| offset >= edge && offset + STAMP_BYTES <= last);
    let end = (last > 0).then_some((last, edge));
    std::iter::once((0, edge)).chain(inside.map(|offset| (offset, STAMP_BYTES))).chain(end)
}

/// Returns the table of marks. It is uploaded once, and every mark is a copy of some of its bytes, so that marking a
/// block moves nothing between host and device.
pub(crate) fn table() -> Vec<u8> {
    (0..TABLE_BYTES / WORD_BYTES).flat_map(|word| scattered(word).to_le_bytes()).collect()
}

/// Returns the place in the table of the marks of a piece. Two pieces of any blocks, threads and passes share a place
/// only by chance, once in 131,000 pairs.
pub(crate) fn place(thread: usize, pass: usize, id: u32, offset: u64) -> u64 {
    let block = scattered((thread as u64) << 48 | (pass as u64) << 32 | u64::from(id));
    scattered(block ^ offset) % ((TABLE_BYTES - EDGE_BYTES) / WORD_BYTES + 1) * WORD_BYTES
}

/// Spreads a number over 64 bits, one to one.
fn scattered(number: u64) -> u64 {
    Random::new(number).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    fn all(start: u64, capacity: u64) -> Vec<(u64, u64)> {
        pieces(start, capacity, PAGE).collect()
    }

    #[test]
    fn both_ends_and_every_page_are_marked() {
        assert_eq!(all(0, 64), [(0, 64)]);
        assert_eq!(all(512, 512), [(0, 64), (448, 64)]);
        // From the last KiB of one page to the first of the third: three pages.
        assert_eq!(all(PAGE - 1024, PAGE + 2048), [(0, 64), (1024, 16), (1024 + PAGE, 16), (PAGE + 1984, 64)]);
        assert_eq!(all(4 * PAGE, 3 * PAGE), [(0, 64), (PAGE, 16), (2 * PAGE, 16), (3 * PAGE - 64, 64)]);
    }

    #[test]
    fn pieces_stay_inside_apart_and_leave_out_no_page() {
        for start in [0, 512, PAGE - 512, PAGE, 3 * PAGE + 1024] {
            for capacity in [512, 1024, PAGE - 512, PAGE, PAGE + 512, 5 * PAGE, 7 * PAGE + 1536] {
                let pieces = all(start, capacity);
                let ends: Vec<u64> = pieces.iter().map(|(offset, bytes)| offset + bytes).collect();
                assert!(pieces[1..].iter().zip(&ends).all(|((begin, _), end)| end <= begin), "{pieces:?}");
                assert_eq!(ends.last(), Some(&capacity), "{pieces:?}");
                let first = start / PAGE;
                let touched = (start + capacity - 1) / PAGE - first + 1;
                let mut marked: Vec<u64> = pieces.iter().map(|(offset, _)| (start + offset) / PAGE - first).collect();
                marked.dedup();
                assert_eq!(marked, (0..touched).collect::<Vec<_>>(), "{start} {capacity}: {pieces:?}");
            }
        }
    }

    #[test]
    fn marks_differ_by_thread_pass_block_and_place() {
        let table = table();
        assert_eq!(table.len() as u64, TABLE_BYTES);
        let marks = |place: u64| &table[place as usize..(place + EDGE_BYTES) as usize];
        let base = place(0, 0, 1, 512);
        assert_eq!(place(0, 0, 1, 512), base);
        for other in [place(1, 0, 1, 512), place(0, 1, 1, 512), place(0, 0, 2, 512), place(0, 0, 1, 1024)] {
            assert_ne!(marks(other)[..16], marks(base)[..16]);
        }
    }

    #[test]
    fn marks_come_from_everywhere_in_the_table() {
        let places: Vec<u64> = (0..100_000).map(|id| place(0, 0, id, 0)).collect();
        let (first, last) = (places.iter().min(), places.iter().max());
        assert!(first < Some(&(TABLE_BYTES / 1000)), "{first:?}");
        assert!(last > Some(&(TABLE_BYTES / 1000 * 999)) && last <= Some(&(TABLE_BYTES - EDGE_BYTES)), "{last:?}");
        assert!(places.iter().all(|place| place % WORD_BYTES == 0));
    }
}
