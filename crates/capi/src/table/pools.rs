//! The functions on private pools, for graphs and for PyTorch's `MemPool`.

use std::ffi::c_void;

use super::opened;
use super::pond::on;
use super::ponds;
use super::types::Pool;
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::source::{CSource, Supplier};

pub(super) unsafe extern "C" fn pool_ref(device: i32, pool: Pool, source: *const CSource) -> i32 {
    boundary::status(|| {
        if pool == Pool::default() {
            return Err(Failure::bad_argument("(0, 0) is the default pool, which has no references"));
        }
        let (pond, number) = (ponds::get(device)?, ponds::number(device)?);
        // SAFETY: the caller promises that the pointer is null or valid, and that the functions do what the header
        // says.
        let source = unsafe { source.as_ref().map(|source| Supplier::new(source, number)).transpose()? };
        on!(pond, of => of.pools.reference(pool, &of.allocator, source))
    })
}

pub(super) extern "C" fn pool_unref(device: i32, pool: Pool) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.pools.release(pool, &of.allocator)))
}

pub(super) unsafe extern "C" fn pool_uses(device: i32, pool: Pool, out: *mut i64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let uses = opened::of_device(device)?.map_or(0, |pond| on!(pond, of => of.pools.uses(pool)));
        out.put(i64::try_from(uses).unwrap_or(i64::MAX));
        Ok(())
    })
}

pub(super) extern "C" fn pool_flags(device: i32, pool: Pool, which: u32, on: i32) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.pools.set_flags(pool, which, on != 0)))
}

pub(super) extern "C" fn capture_begin(device: i32, pool: Pool, stream: *mut c_void) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.begin_capture(pool, stream.addr() as u64)))
}

pub(super) extern "C" fn capture_end(device: i32, pool: Pool) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.pools.end_capture(pool)))
}
