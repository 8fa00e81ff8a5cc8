//! The functions on private pools, for graphs and for PyTorch's `MemPool`, and on their checkpoints, which trees of
//! graphs take.

use std::ffi::c_void;

use millpond::Checkpoint;

use super::calls::family;
use super::live;
use super::opened;
use super::pond::{Of, on};
use super::ponds;
use super::types::{Block, Delta, Family, Place, Pool, PoolsSink};
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::device::Device;
use crate::places::live_in;
use crate::source::{CSource, Supplier};

/// `millpond_core_checkpoint` of the header: which pool it is of, by its name, and what was live there.
pub struct Taken {
    device: i32,
    pool: Pool,
    checkpoint: Checkpoint,
}

/// The blocks that a restored checkpoint freed and made.
struct Changes {
    freed: Vec<Place>,
    made: Vec<Block>,
}

impl<D: Device> Of<D> {
    /// Returns what is reserved for each private pool that has references or memory.
    fn reserved_by_pools(&self) -> Vec<(Pool, Family)> {
        let reserved = |(name, id)| Some((name, family(&self.served.allocator.pool_reserved(id)?)));
        self.pools.all().into_iter().filter_map(reserved).collect()
    }

    /// Frees every block of a pool, and hands out what was live at a checkpoint.
    ///
    /// The blocks leave the tree of addresses before they are freed, and enter it after they were granted.
    fn restore(&self, name: Pool, to: &Checkpoint) -> Result<Changes, Failure> {
        let pool = self.pools.held(name)?;
        let device = self.number() as i32;
        let known = |(address, bytes)| Some((Place { address, bytes, device, reserved: 0 }, live::known(address)?));
        let live: Vec<_> = live_in(&self.served.allocator, pool.id()).filter_map(known).collect();
        let numbers: Vec<_> = live.iter().map(|(_, marked)| marked.raw()).collect();
        pool.may_restore_raw(to, &numbers)?;
        let mut freed = Vec::new();
        for (place, _) in live {
            if let Some(marked) = live::take_out(place.address) {
                self.free(marked.raw());
                freed.push(place);
            }
        }
        let mut buffers = Vec::new();
        pool.restore(to, &mut buffers)?;
        let made = buffers.into_iter().map(|buffer| live::enter(buffer, self.number()));
        Ok(Changes { freed, made: made.collect::<Result<_, _>>()? })
    }
}

pub(super) unsafe extern "C" fn pool_ref(device: i32, pool: Pool, source: *const CSource) -> i32 {
    boundary::status(|| {
        if pool == Pool::default() {
            return Err(Failure::bad_argument("(0, 0) is the default pool, which has no references"));
        }
        let (pond, number) = (ponds::get(device)?, ponds::number(device)?);
        // SAFETY: the caller promises that the pointer is null or valid, and that the functions do what the header
        // says.
        let source = unsafe { source.as_ref().map(|source| Supplier::new(source, number)).transpose()? };
        on!(pond, of => of.pools.reference(pool, &of.served.allocator, source))
    })
}

pub(super) unsafe extern "C" fn pools_stats(device: i32, sink: *const PoolsSink) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let sink = unsafe { sink.as_ref() }.ok_or_else(|| Failure::bad_argument("sink is NULL"))?;
        let pool = sink.pool.ok_or_else(|| Failure::bad_argument("sink has no function for pools"))?;
        let Some(pond) = opened::of_device(device)? else { return Ok(()) };
        for (name, family) in on!(pond, of => of.reserved_by_pools()) {
            // SAFETY: the caller promises that the function takes what the header says.
            unsafe { pool(sink.user, name, family.as_ptr()) };
        }
        Ok(())
    })
}

pub(super) extern "C" fn pool_unref(device: i32, pool: Pool) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.pools.release(pool, &of.served.allocator)))
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

pub(super) unsafe extern "C" fn checkpoint_take(device: i32, pool: Pool, out: *mut *mut Taken) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let checkpoint = on!(ponds::get(device)?, of => of.pools.held(pool)?.checkpoint());
        out.put(Box::into_raw(Box::new(Taken { device, pool, checkpoint })));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn checkpoint_set(device: i32, checkpoint: *const Taken, delta: *const Delta) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid, and that the checkpoint was not dropped.
        let (taken, delta) = unsafe { (checkpoint.as_ref(), delta.as_ref()) };
        let taken = taken.ok_or_else(|| Failure::null("checkpoint"))?;
        if taken.device != device {
            let text = format!("the checkpoint is one of device {} and was given to device {device}", taken.device);
            return Err(Failure::bad_argument(text));
        }
        let changes = on!(ponds::get(device)?, of => of.restore(taken.pool, &taken.checkpoint)?);
        let Some(delta) = delta else { return Ok(()) };
        for place in changes.freed {
            if let Some(told) = delta.freed {
                // SAFETY: the caller promises that the function is of the type that the header has; the place lives as
                // long as the call.
                unsafe { told(delta.user, &raw const place) };
            }
        }
        for block in changes.made {
            if let Some(told) = delta.made {
                // SAFETY: as above; the block lives as long as the call.
                unsafe { told(delta.user, &raw const block) };
            }
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn checkpoint_drop(checkpoint: *mut Taken) {
    if !checkpoint.is_null() {
        // SAFETY: the caller promises that `checkpoint_take` made it, and that it was not dropped before.
        drop(unsafe { Box::from_raw(checkpoint) });
    }
}
