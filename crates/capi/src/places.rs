//! Where live blocks lie: by the tables that have them by their addresses, and by the layout of their pool.

use millpond::{Allocator, BlockState, PoolId, RawBuffer};
use millpond_backend::Backend;

use crate::code::{Code, Failure};

/// Returns the address and the length of each live block of a pool.
pub(crate) fn live_in<B: Backend>(allocator: &Allocator<B>, pool: PoolId) -> impl Iterator<Item = (u64, u64)> {
    let views = allocator.layout().into_iter().filter(move |view| view.pool == pool);
    views.flat_map(|view| {
        let live = view.blocks.into_iter().filter(|block| block.state == BlockState::ActiveAllocated);
        live.map(move |block| (view.address + block.offset, block.size))
    })
}

/// Returns the start and the length of the block that a table had at a start, if it is live and an address lies in it.
/// An aligned block begins inside of the memory that its number names.
///
/// Between the look at the table and this one another thread may free the block, and its number may come to name
/// another block, at another address. No live block has the address in it then: between it and such a block's start the
/// table has no other. So the table is asked again: `now` returns the number that it has at the start.
pub(crate) fn place_within<B: Backend>(
    allocator: &Allocator<B>,
    (start, raw): (u64, RawBuffer),
    address: u64,
    now: impl FnOnce() -> Option<RawBuffer>,
) -> Option<(u64, u64)> {
    let (begins_at, bytes) = allocator.place_raw(raw)?;
    let end = begins_at + bytes;
    (begins_at <= start && address < end && now() == Some(raw)).then(|| (start, end - start))
}

/// Returns the failure of a device whose blocks have no address, or none that the table can hold.
#[cold]
pub(crate) fn misplaced(address: u64) -> Failure {
    let text = format!("the device gives memory at {address:#x}, and blocks lie at multiples of 512 below 2^57");
    Failure::new(Code::Unsupported, text)
}
