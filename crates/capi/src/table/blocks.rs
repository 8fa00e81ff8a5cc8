//! The functions on blocks: allocated, freed, used on other streams, found.

use std::ffi::c_void;
use std::ptr;

use super::live::{self, Marked};
use super::opened;
use super::pond::{Pond, on};
use super::ponds;
use super::types::{Block, Place, Pool};
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::fork;
use crate::places::place_within;

pub(super) unsafe extern "C" fn alloc(device: i32, stream: *mut c_void, bytes: u64, pool: *const Pool) -> Block {
    let allocated = boundary::outcome(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        if let Some(pool) = unsafe { pool.as_ref() }
            && *pool != Pool::default()
        {
            return on!(ponds::get(device)?, of => of.allocate_in(*pool, bytes, stream.addr() as u64));
        }
        on!(ponds::get(device)?, of => of.allocate(bytes, stream.addr() as u64))
    });
    allocated.unwrap_or_else(failed)
}

/// Keeps the text of a failure, and returns its code in the place of a context.
#[cold]
fn failed(failure: Failure) -> Block {
    let code = boundary::told(&failure) as i32;
    Block { address: ptr::null_mut(), context: ptr::without_provenance_mut(code as usize) }
}

pub(super) unsafe extern "C" fn alloc_at(
    device: i32,
    stream: *mut c_void,
    bytes: u64,
    address: *mut c_void,
    pool: *const Pool,
) -> Block {
    let allocated = boundary::outcome(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let pool = unsafe { pool.as_ref() }.filter(|&&pool| pool != Pool::default()).copied();
        let address = address.addr() as u64;
        on!(ponds::get(device)?, of => of.allocate_at(pool, bytes, stream.addr() as u64, address))
    });
    allocated.unwrap_or_else(failed)
}

pub(super) unsafe extern "C" fn free(block: *mut c_void) -> i32 {
    boundary::status(|| {
        if block.is_null() {
            return Ok(());
        }
        free_taken(live::take(block.addr())?);
        Ok(())
    })
}

/// Frees a block that was taken out of the tree. What a child drops of its parent's is gone from the child alone.
#[inline]
pub(crate) fn free_taken(marked: Marked) {
    if let Some(pond) = opened::of_block(marked.device()) {
        on!(pond, of => of.free(marked.raw()));
    }
}

pub(super) unsafe extern "C" fn record_stream(block: *mut c_void, stream: *mut c_void) -> i32 {
    boundary::status(|| {
        if block.is_null() {
            return Ok(());
        }
        let marked = live::look_up(block.addr())?;
        on!(pond_of(marked)?, of => of.record_stream(marked, stream.addr() as u64))
    })
}

pub(super) unsafe extern "C" fn find(block: *const c_void, out: *mut Place) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let (marked, named) = (live::look_up(block.addr())?, block.addr());
        let place = if live::is_context(named) {
            on!(pond_of(marked)?, of => of.served.allocator.place_raw(marked.raw())).map(|place| marked.place(place))
        } else {
            within(marked, named as u64, named as u64)?
        };
        out.put(place.ok_or_else(|| live::unknown(named))?);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn at(address: *const c_void, out: *mut Place) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(around(address.addr() as u64)?);
        Ok(())
    })
}

/// Returns where the live block lies that has an address in it.
pub(super) fn around(address: u64) -> Result<Place, Failure> {
    let found = live::at_or_before(address);
    let found = found.map(|(start, marked)| within(marked, start, address)).transpose()?;
    found.flatten().ok_or_else(|| Failure::not_a_block(address))
}

/// Returns where a block lies that the tree had at a start, if it is live and an address lies in it.
fn within(marked: Marked, start: u64, address: u64) -> Result<Option<Place>, Failure> {
    let found = (start, marked.raw());
    let now = || live::look_up(start as usize).ok().map(Marked::raw);
    let place = on!(pond_of(marked)?, of => place_within(&of.served.allocator, found, address, now));
    Ok(place.map(|place| marked.place(place)))
}

/// Returns the allocator of a block, unless that is a parent process's.
pub(crate) fn pond_of(marked: Marked) -> Result<&'static Pond, Failure> {
    opened::of_block(marked.device()).ok_or_else(fork::inherited)
}
