//! The blocks that the maps name, in one table.

use serde::Serialize;

use crate::map::Row;
use crate::owners::Block;
use crate::series::Series;

/// The blocks that the maps of a program name, as lists in the order in which they are allocated.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Named {
    /// Their numbers in the trace.
    numbers: Series,
    /// The event that allocates each.
    born: Series,
    /// How many events each lives; 0 where the pass does not free it.
    lived: Vec<usize>,
    /// The bytes that each asks for.
    bytes: Vec<u64>,
    /// The stream of each.
    streams: Vec<u32>,
    #[serde(skip)]
    ids: Vec<u32>,
}

impl Named {
    /// Collects the blocks that these rows of maps name. Costs a sort of their numbers.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>, blocks: &[Block]) -> Self {
        let mut ids: Vec<u32> = rows.into_iter().flat_map(|row| row.blocks.iter().map(|placed| placed.block)).collect();
        ids.sort_unstable();
        ids.dedup();
        let named = || ids.iter().map(|id| &blocks[*id as usize]);
        Self {
            numbers: ids.iter().map(|id| u64::from(*id)).collect(),
            born: named().map(|block| block.born as u64).collect(),
            lived: named().map(|block| block.died.map_or(0, |died| died - block.born)).collect(),
            bytes: named().map(|block| block.bytes).collect(),
            streams: named().map(|block| block.stream).collect(),
            ids,
        }
    }

    /// Returns the numbers of the blocks in the trace, in order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}
