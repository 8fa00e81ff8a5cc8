//! The map of memory at one moment: cells of equal size, each with what covers most of it.
//!
//! Every reserved byte is in one cell of the rows of segments and homes. Blocks in windows, which are second addresses
//! of the same pages, have rows of their own.

use std::fmt::Write as _;

use millpond::{BlockState, BlockView, PoolId, SegmentView};
use millpond_backend::StreamId;
use serde::Serializer;

use crate::owners::{Block, Lifetime, Owners};

/// About how many cells the most reserved bytes have.
const CELLS: u64 = 6144;
/// The smallest cell, in bytes.
const CELL_MIN: u64 = 512;

/// How many bytes a cell has. It is the same in all maps that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// The bytes of a cell, a power of two.
    pub cell_bytes: u64,
}

impl Scale {
    /// Chooses a scale for what was reserved at most.
    pub fn new(reserved_peak: u64) -> Self {
        Self { cell_bytes: (reserved_peak / CELLS).next_power_of_two().max(CELL_MIN) }
    }
}

/// What a byte of memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    Live,
    Waiting,
    Guarded,
    /// Free, and could go back to the driver.
    Ready,
    /// Free, and kept by what is in use in the same segment or page.
    Stranded,
    /// At home, and in use through a window.
    Away,
}

/// What covers a cell: a use, and for blocks their size and lifetime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cover {
    usage: Use,
    /// The size class and the lifetime of the block: 4 * size + lifetime.
    tag: u8,
}

impl Cover {
    const fn free(usage: Use) -> Self {
        Self { usage, tag: 0 }
    }

    fn of_block(usage: Use, block: Option<&Block>, bytes: u64) -> Self {
        let size = match bytes {
            0..0x10_0000 => 0,
            0x10_0000..0xA0_0000 => 1,
            0xA0_0000..0x640_0000 => 2,
            _ => 3,
        };
        let lifetime = match block.map(|block| block.lifetime) {
            Some(Lifetime::ToTheEnd) => 0,
            Some(Lifetime::Long) => 1,
            Some(Lifetime::Middle) => 2,
            Some(Lifetime::Short) | None => 3,
        };
        Self { usage, tag: 4 * size + lifetime }
    }
}

/// A block of the program in a row of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where it begins in its segment.
    pub offset: u64,
    /// Its number in the trace.
    pub block: u32,
    /// The bytes that it covers.
    pub covers: u64,
}

/// One stretch of addresses with memory behind them.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Row {
    /// The number of the segment or range.
    pub segment: u64,
    /// The stream that it belongs to.
    pub stream: u32,
    /// The private pool that it belongs to; 0 is the default pool.
    pub pool: u64,
    /// Whether it is a block in a window: second addresses of pages that have their homes elsewhere.
    pub window: bool,
    /// Its bytes.
    pub bytes: u64,
    /// Where it begins in its segment.
    #[serde(skip_serializing_if = "is_zero")]
    pub begin: u64,
    /// The blocks in it that the page names, in order. They are written as pairs: the distance from the block before,
    /// and the difference of the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "pairs")]
    pub blocks: Vec<Placed>,
    /// Its cells: a small letter for the use, a capital for size and lifetime where it is of a block, and behind both
    /// the number of cells in a row, unless it is 1. Uses are `a` live, `b` waiting, `c` guarded, `d` ready,
    /// `e` stranded, `f` in use through a window. Capitals are 4 * size + lifetime behind `A`.
    pub cells: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Writes blocks as the differences of neighbours, because those are shorter.
fn pairs<S: Serializer>(blocks: &[Placed], serializer: S) -> Result<S::Ok, S::Error> {
    let before = std::iter::once((0, 0)).chain(blocks.iter().map(|placed| (placed.offset, i64::from(placed.block))));
    serializer.collect_seq(blocks.iter().zip(before).flat_map(|(placed, (offset, block))| {
        [(placed.offset - offset).cast_signed(), i64::from(placed.block) - block]
    }))
}

/// The layout at one moment, in cells.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Map {
    /// The stretches of addresses, by stream and then by birth of their segments.
    pub rows: Vec<Row>,
}

impl Map {
    /// Draws a layout, and names its largest blocks: at most `named`, and none that covers less than half a cell.
    pub(crate) fn of(layout: &[SegmentView], scale: Scale, blocks: &[Block], owners: &Owners, named: usize) -> Self {
        let mut rows: Vec<Row> = layout.iter().flat_map(|view| View { view, scale, blocks, owners }.rows()).collect();
        rows.sort_by_key(|row| (row.stream, row.pool, row.window, row.segment));
        keep_largest(&mut rows, named);
        Self { rows }
    }

    /// Returns the bytes of all rows but windows: what is reserved.
    pub fn bytes(&self) -> u64 {
        self.rows.iter().filter(|row| !row.window).map(|row| row.bytes).sum()
    }
}

/// Keeps the names of the largest blocks of all rows. Of equal ones the first are kept.
fn keep_largest(rows: &mut [Row], most: usize) {
    let sizes = rows.iter().flat_map(|row| row.blocks.iter().map(|placed| placed.covers));
    let mut sizes: Vec<(u64, usize)> = sizes.zip(0..).collect();
    let mut is_kept = vec![false; sizes.len()];
    sizes.sort_unstable_by_key(|(covers, place)| (u64::MAX - covers, *place));
    sizes.iter().take(most).for_each(|(_, place)| is_kept[*place] = true);
    let mut kept = is_kept.into_iter();
    for row in rows {
        row.blocks.retain(|_| kept.next() == Some(true));
    }
}

fn is_active(block: &BlockView) -> bool {
    matches!(block.state, BlockState::ActiveAllocated | BlockState::ActivePendingFree)
}

/// One segment or range, with what distinguishes its blocks.
struct View<'a> {
    view: &'a SegmentView,
    scale: Scale,
    blocks: &'a [Block],
    owners: &'a Owners,
}

impl View<'_> {
    fn rows(&self) -> Vec<Row> {
        if self.view.page_bytes == 0 {
            return vec![self.row((0, self.view.bytes), false)];
        }
        let mut parts: Vec<(u64, u64, bool)> = Vec::new();
        for page in &self.view.pages {
            let (end, window) = (page.offset + page.bytes, !page.is_home);
            match parts.last_mut() {
                Some((_, last, same)) if *last == page.offset && *same == window => *last = end,
                _ => parts.push((page.offset, end, window)),
            }
        }
        parts.into_iter().flat_map(|part| self.rows_of(part)).collect()
    }

    /// Returns the rows of neighbouring pages: one of a home, and one for each block in use of windows.
    fn rows_of(&self, (begin, end, window): (u64, u64, bool)) -> Vec<Row> {
        if !window {
            return vec![self.row((begin, end), false)];
        }
        let blocks = self.blocks_in((begin, end)).filter(|block| is_active(block));
        blocks.map(|block| self.row((block.offset.max(begin), (block.offset + block.size).min(end)), true)).collect()
    }

    /// Returns the blocks with a part in these addresses, in order.
    fn blocks_in(&self, (begin, end): (u64, u64)) -> impl Iterator<Item = &BlockView> {
        let first = self.view.blocks.partition_point(|block| block.offset + block.size <= begin);
        self.view.blocks[first..].iter().take_while(move |block| block.offset < end)
    }

    fn row(&self, (begin, end): (u64, u64), window: bool) -> Row {
        let SegmentView { id, stream: StreamId(stream), pool: PoolId(pool), .. } = *self.view;
        let is_pinned = self.view.blocks.iter().any(is_active);
        let mut cells = Cells::new(self.scale);
        let mut blocks = Vec::new();
        for block in self.blocks_in((begin, end)) {
            let covers = (block.offset + block.size).min(end) - block.offset.max(begin);
            if is_active(block) && covers.saturating_mul(2) >= self.scale.cell_bytes {
                let placed = |block_number| Placed { offset: block.offset, block: block_number, covers };
                blocks.extend(self.owners.at(self.view.id, block.offset).map(placed));
            }
            self.pieces(block, (begin, end), is_pinned, |cover, bytes| cells.add(cover, bytes));
        }
        Row { segment: id.0, stream, pool, window, bytes: end - begin, begin, blocks, cells: cells.finish() }
    }

    /// Calls `add` for each piece of a block that is in a stretch of addresses, in order.
    fn pieces(&self, block: &BlockView, (begin, end): (u64, u64), is_pinned: bool, mut add: impl FnMut(Cover, u64)) {
        let bytes = (block.offset + block.size).min(end) - block.offset.max(begin);
        let owner = || self.blocks.get(self.owners.at(self.view.id, block.offset)? as usize);
        match block.state {
            BlockState::ActiveAllocated => add(Cover::of_block(Use::Live, owner(), block.size), bytes),
            BlockState::ActivePendingFree => add(Cover::of_block(Use::Waiting, owner(), block.size), bytes),
            BlockState::Unmapped => add(Cover::free(Use::Away), bytes),
            BlockState::Inactive => {
                // Which of the bytes are guarded is not in the view: they are drawn first.
                let guarded = block.guarded.min(bytes);
                let free = bytes - guarded;
                let ready = self.releasable(block, is_pinned).min(free);
                add(Cover::free(Use::Guarded), guarded);
                add(Cover::free(Use::Ready), ready);
                add(Cover::free(Use::Stranded), free - ready);
            }
        }
    }

    /// Returns the bytes of a free block that could go back to the driver, as the ledger counts them.
    fn releasable(&self, block: &BlockView, is_pinned: bool) -> u64 {
        if self.view.page_bytes == 0 {
            return if is_pinned { 0 } else { block.size };
        }
        let end = block.offset + block.size;
        let first = self.view.pages.partition_point(|page| page.offset < block.offset);
        let inside = self.view.pages[first..].iter().take_while(|page| page.offset + page.bytes <= end);
        inside.map(|page| page.bytes).sum()
    }
}

/// Cells under way, run by run.
struct Cells {
    scale: Scale,
    text: String,
    run: Option<(Cover, u64)>,
    /// What covers the cell under way, and its bytes so far.
    covers: Vec<(Cover, u64)>,
    filled: u64,
}

impl Cells {
    fn new(scale: Scale) -> Self {
        Self { scale, text: String::new(), run: None, covers: Vec::new(), filled: 0 }
    }

    fn add(&mut self, cover: Cover, mut bytes: u64) {
        while bytes > 0 {
            if self.filled == 0 && bytes >= self.scale.cell_bytes {
                let cells = bytes / self.scale.cell_bytes;
                self.push(cover, cells);
                bytes -= cells * self.scale.cell_bytes;
                continue;
            }
            let part = bytes.min(self.scale.cell_bytes - self.filled);
            match self.covers.iter_mut().find(|(other, _)| *other == cover) {
                Some((_, sum)) => *sum += part,
                None => self.covers.push((cover, part)),
            }
            self.filled += part;
            bytes -= part;
            if self.filled == self.scale.cell_bytes {
                self.close();
            }
        }
    }

    /// Ends the cell under way with what covers most of it: the use with the most bytes, and of that the tag with the
    /// most.
    fn close(&mut self) {
        let of_use = |usage: Use| -> u64 {
            self.covers.iter().filter(|(cover, _)| cover.usage == usage).map(|(_, bytes)| bytes).sum()
        };
        // The smaller use wins a tie, and then the smaller tag.
        let best = self
            .covers
            .iter()
            .min_by_key(|(cover, bytes)| (u64::MAX - of_use(cover.usage), cover.usage, u64::MAX - bytes, cover.tag));
        if let Some(&(cover, _)) = best {
            self.push(cover, 1);
        }
        self.covers.clear();
        self.filled = 0;
    }

    fn push(&mut self, cover: Cover, cells: u64) {
        match &mut self.run {
            Some((last, count)) if *last == cover => *count += cells,
            _ => {
                self.write();
                self.run = Some((cover, cells));
            }
        }
    }

    fn write(&mut self) {
        let Some((cover, count)) = self.run.take() else { return };
        self.text.push(char::from(b'a' + cover.usage as u8));
        if matches!(cover.usage, Use::Live | Use::Waiting) {
            self.text.push(char::from(b'A' + cover.tag));
        }
        if count > 1 {
            let _ = write!(self.text, "{count}");
        }
    }

    fn finish(mut self) -> String {
        if self.filled > 0 {
            self.close();
        }
        self.write();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_what_covers_most_of_it() {
        let mut cells = Cells::new(Scale { cell_bytes: 100 });
        let live = |tag| Cover { usage: Use::Live, tag };
        cells.add(live(0), 250);
        cells.add(Cover::free(Use::Stranded), 30);
        // Fifty and ten bytes of live blocks outweigh thirty free ones.
        cells.add(live(5), 20);
        cells.add(Cover::free(Use::Ready), 1000);
        cells.add(live(5), 1);
        assert_eq!(cells.finish(), "aA3d10aF");
    }

    #[test]
    fn the_scale_follows_what_is_reserved() {
        assert_eq!(Scale::new(1).cell_bytes, CELL_MIN);
        assert_eq!(Scale::new(6 << 30).cell_bytes, 1 << 20);
    }
}
