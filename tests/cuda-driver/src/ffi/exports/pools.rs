//! Memory that is allocated and freed in the order of a stream. Each device has one pool, which keeps nothing.

use std::ffi::{c_int, c_uint, c_void};

use crate::DEVICES;
use crate::driver::code::{Answer, Code};
use crate::driver::memory::memory;
use crate::driver::work::Op;
use crate::driver::world;
use crate::ffi::pointers::Out;

use super::device::at;

/// The handle of the first device's pool, and the distance to the next one.
const FIRST: u64 = 0xB000_0000;
const STEP: u64 = 0x100;

exported! {
    Context fn cuMemAllocAsync(address: Out<u64>, bytes: u64, stream: u64) |device| {
        allocate(device, device, address, bytes, stream)
    }

    Context fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: u64, pool: u64, stream: u64) |device| {
        allocate(device, device_of(pool)?, address, bytes, stream)
    }

    Context fn cuMemFreeAsync(address: u64, stream: u64) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.refuse_captured(lane)?;
        match memory().write().allocations.get_mut(&address) {
            Some(allocation) if allocation.pooled && !allocation.freeing => allocation.freeing = true,
            _ => return Err(Code::INVALID_VALUE),
        }
        world.push(lane, Op::Free(address))
    }

    Init fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: c_int) |_device| { pool.put(handle(at(device)?)) }

    Init fn cuDeviceGetMemPool(pool: Out<u64>, device: c_int) |_device| { pool.put(handle(at(device)?)) }

    Init fn cuMemPoolTrimTo(pool: u64, _kept: u64) |_device| { device_of(pool).map(|_| ()) }

    Init fn cuMemPoolSetAttribute(pool: u64, attribute: c_uint, value: Out<c_void>) |_device| {
        let device = device_of(pool)?;
        match attribute {
            // The permitted ways of reuse: all are permitted, and none is used.
            1..=3 => value.of::<c_int>().get().map(|_| ()),
            4 => {
                world::lock().contexts[device].threshold = value.of::<u64>().get()?;
                Ok(())
            }
            // The high-water marks can only be set to 0, and are not stored.
            6 | 8 => value.of::<u64>().get().and_then(|mark| if mark == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    Init fn cuMemPoolGetAttribute(pool: u64, attribute: c_uint, value: Out<c_void>) |_device| {
        let device = device_of(pool)?;
        match attribute {
            1..=3 => value.of::<c_int>().put(1),
            4 => value.of::<u64>().put(world::lock().contexts[device].threshold),
            5 | 7 => value.of::<u64>().put(memory().read().devices[device].pooled),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

fn handle(device: usize) -> u64 {
    FIRST + device as u64 * STEP
}

fn device_of(pool: u64) -> Result<usize, Code> {
    (0..DEVICES).find(|device| handle(*device) == pool).ok_or(Code::INVALID_VALUE)
}

/// Allocates at once. Where only the frees that are queued on the stream make room, waits for them first: a driver
/// would grant their memory in the stream's order. Does not wait while a gate is closed, as the frees may be behind it.
fn allocate(device: usize, owner: usize, address: Out<u64>, bytes: u64, stream: u64) -> Answer {
    let address = address.must()?;
    let mut world = world::lock();
    let lane = world.stream(stream, device)?;
    world.refuse_captured(lane)?;
    let mut allocated = memory().write().allocate(owner, bytes, true);
    if allocated == Err(Code::OUT_OF_MEMORY) && world.gates.is_empty() {
        let ends = world.ends_of(lane);
        world::wait(&mut world, device, |world| ends.iter().all(|end| world.reached(*end)))?;
        allocated = memory().write().allocate(owner, bytes, true);
    }
    address.put(allocated?)
}
