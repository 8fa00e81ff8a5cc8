//! The functions of `millpond.h` about private pools.

use std::ffi::c_void;

use millpond::Checkpoint;

use super::{address_of, put, served};
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::handles::CAllocator;
use crate::kind::on;
use crate::source::{CSource, Supplier};

/// `millpond_checkpoint` of the header: what was live in a pool of one allocator.
pub struct CCheckpoint {
    of: *mut CAllocator,
    checkpoint: Checkpoint,
}

/// Creates a private pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_create(pond: *mut CAllocator, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        out.put(on!(served, of => of.create_pool()?));
        Ok(())
    })
}

/// Creates a private pool that gets its segments from a source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_create_from(
    pond: *mut CAllocator,
    source: *const CSource,
    out: *mut u64,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointers are null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        // SAFETY: as above.
        let source = unsafe { source.as_ref() }.ok_or_else(|| Failure::null("source"))?;
        out.put(on!(served, of => {
            // SAFETY: the caller promises that the functions do what the header says.
            of.create_pool_from(unsafe { Supplier::new(source, of.number)? })?
        }));
        Ok(())
    })
}

/// Gives a private pool up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_release(pond: *mut CAllocator, pool: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.pools.release(pool))
    })
}

/// Releases the cached memory of a pool without references.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_empty_cache(pond: *mut CAllocator, pool: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.empty_pool(pool))
    })
}

/// Allocates a block in a private pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_alloc(
    pond: *mut CAllocator,
    pool: u64,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
    unsafe { put(pond, out, |served| on!(served, of => of.allocate_in(pool, bytes, address_of(stream)))) }
}

/// Begins a capture of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_capture_begin(pond: *mut CAllocator, pool: u64, stream: *mut c_void) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.begin_capture(pool, address_of(stream)))
    })
}

/// Ends the capture in a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_capture_end(pond: *mut CAllocator, pool: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.pools.end_capture(pool))
    })
}

/// Records the live blocks of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_checkpoint_create(
    pond: *mut CAllocator,
    pool: u64,
    out: *mut *mut CCheckpoint,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        let checkpoint = on!(served, of => of.pools.held(pool)?.checkpoint());
        out.put(Box::into_raw(Box::new(CCheckpoint { of: pond, checkpoint })));
        Ok(())
    })
}

/// Frees the live blocks of a pool, and hands out those that were live at a checkpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_checkpoint_restore(
    pond: *mut CAllocator,
    checkpoint: *const CCheckpoint,
    live: *mut u64,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointers are null or valid.
        let (served, live) = unsafe { (served(pond)?, Out::optional(live)) };
        // SAFETY: the caller promises that the pointer is null, or a checkpoint that was not freed.
        let taken = unsafe { checkpoint.as_ref() }.ok_or_else(|| Failure::null("checkpoint"))?;
        if taken.of != pond {
            return Err(Failure::bad_argument("the checkpoint is one of another allocator"));
        }
        live.put(on!(served, of => of.restore(&taken.checkpoint)?));
        Ok(())
    })
}

/// Ends a checkpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_checkpoint_free(checkpoint: *mut CCheckpoint) {
    if !checkpoint.is_null() {
        // SAFETY: the caller promises that `millpond_checkpoint_create` made it, and that it was not freed before.
        drop(unsafe { Box::from_raw(checkpoint) });
    }
}
