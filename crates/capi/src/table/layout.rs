//! The layout of a device, as a snapshot has it.

use std::ffi::c_void;
use std::ptr;

use millpond::{BlockState, BlockView, SegmentView, Side};

use super::blocks;
use super::opened;
use super::pond::{Pond, on};
use super::types::{FREE, LIVE, PENDING, Pool, Segment, Sink, Tile};
use crate::boundary::{self, Out};
use crate::code::Failure;

/// Returns the memory of a segment that has none of the gaps that addresses without memory are, in pieces of one side.
fn runs(view: &SegmentView) -> impl Iterator<Item = &[BlockView]> {
    let alike = |a: &BlockView, b: &BlockView| {
        let is_gap = |block: &BlockView| block.state == BlockState::Unmapped;
        !is_gap(a) && !is_gap(b) && (view.page_bytes == 0 || a.side == b.side)
    };
    view.blocks.chunk_by(alike).filter(|run| run[0].state != BlockState::Unmapped)
}

fn segment_of(view: &SegmentView, (address, bytes): (u64, u64), side: Side, (stream, pool): (u64, Pool)) -> Segment {
    Segment {
        address,
        bytes,
        stream: ptr::with_exposed_provenance_mut(stream as usize),
        pool,
        is_large: (side == Side::Large).into(),
        is_expandable: (view.page_bytes != 0).into(),
        id: view.id.0,
    }
}

fn tile_of(view: &SegmentView, block: &BlockView) -> Tile {
    let state = match block.state {
        BlockState::ActiveAllocated => LIVE,
        BlockState::ActivePendingFree => PENDING,
        BlockState::Inactive | BlockState::Unmapped => FREE,
    };
    Tile {
        address: view.address + block.offset,
        bytes: block.size,
        requested_bytes: block.requested,
        state,
        reserved: 0,
    }
}

/// Passes on a segment and the blocks in it.
///
/// # Safety
///
/// The functions of the sink take what they are given.
unsafe fn tell(sink: &Sink, view: &SegmentView, stream: u64, pool: Pool) {
    for run in runs(view) {
        let begin = view.address + run[0].offset;
        let bytes = run.iter().map(|block| block.size).sum();
        let side = if view.page_bytes == 0 { view.side } else { run[0].side };
        let segment = segment_of(view, (begin, bytes), side, (stream, pool));
        if let Some(told) = sink.segment {
            // SAFETY: as the caller promises; the segment lives as long as the call.
            unsafe { told(sink.user, &raw const segment) };
        }
        for block in run {
            let tile = tile_of(view, block);
            if let Some(told) = sink.tile {
                // SAFETY: as the caller promises; the tile lives as long as the call.
                unsafe { told(sink.user, &raw const tile) };
            }
        }
    }
}

/// Returns the handle of the stream of a segment, and the name of its pool.
fn owner_of(pond: &Pond, view: &SegmentView) -> (u64, Pool) {
    on!(pond, of => (of.native(view.stream), of.pools.name_of(view.pool)))
}

fn views(pond: &Pond) -> Vec<SegmentView> {
    on!(pond, of => of.served.allocator.layout())
}

pub(super) unsafe extern "C" fn layout(device: i32, pool: *const Pool, sink: *const Sink) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let (pool, sink) = unsafe { (pool.as_ref(), sink.as_ref()) };
        let sink = sink.ok_or_else(|| Failure::null("sink"))?;
        let Some(pond) = opened::of_device(device)? else { return Ok(()) };
        for view in views(pond) {
            let (stream, of) = owner_of(pond, &view);
            if pool.is_none_or(|pool| *pool == of) {
                // SAFETY: the caller promises that the functions are of the types that the header has.
                unsafe { tell(sink, &view, stream, of) };
            }
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn base_of(address: *const c_void, out: *mut Segment) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let place = blocks::around(address.addr() as u64)?;
        let Some(pond) = opened::of_device(place.device)? else { return Err(Failure::not_a_block(place.address)) };
        let has = |view: &SegmentView| (view.address..view.address + view.bytes).contains(&place.address);
        let view = views(pond).into_iter().find(has).ok_or_else(|| Failure::not_a_block(place.address))?;
        out.put(segment_of(&view, (view.address, view.bytes), view.side, owner_of(pond, &view)));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn largest_free(device: i32, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let views = opened::of_device(device)?.map_or_else(Vec::new, views);
        let free = views.iter().flat_map(|view| &view.blocks).filter(|block| block.state == BlockState::Inactive);
        out.put(free.map(|block| block.size).max().unwrap_or(0));
        Ok(())
    })
}
