//! Copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort};

use parking_lot::MutexGuard;

use crate::driver::code::{Answer, Code};
use crate::driver::lane::LaneId;
use crate::driver::memory::{Place, Reach, memory};
use crate::driver::work::Op;
use crate::driver::world::{self, World};
use crate::ffi::touch;

use super::context;

/// The memory that an end of a copy may be in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Device,
    /// Decided by the address.
    Any,
}

/// The ends of a copy, and what each may be.
#[derive(Clone, Copy)]
struct Ends {
    to: (u64, Side),
    from: (u64, Side),
    bytes: u64,
}

use Side::{Any, Device, Host};

exported! {
    Context fn cuMemcpy(to: u64, from: u64, bytes: u64) |device| {
        copy(device, None, Ends { to: (to, Any), from: (from, Any), bytes }, &[])
    }

    Context fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: u64) |device| {
        copy(device, None, Ends { to: (to, Device), from: (from, Host), bytes }, &[])
    }

    Context fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: u64) |device| {
        copy(device, None, Ends { to: (to, Host), from: (from, Device), bytes }, &[])
    }

    Context fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: u64) |device| {
        copy(device, None, Ends { to: (to, Device), from: (from, Device), bytes }, &[])
    }

    Context fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: u64) |device| {
        let between = [context::device_of(to_context)?, context::device_of(from_context)?];
        copy(device, None, Ends { to: (to, Device), from: (from, Device), bytes }, &between)
    }

    Context fn cuMemcpyAsync(to: u64, from: u64, bytes: u64, stream: u64) |device| {
        copy(device, Some(stream), Ends { to: (to, Any), from: (from, Any), bytes }, &[])
    }

    Context fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) |device| {
        copy(device, Some(stream), Ends { to: (to, Device), from: (from, Host), bytes }, &[])
    }

    Context fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) |device| {
        copy(device, Some(stream), Ends { to: (to, Host), from: (from, Device), bytes }, &[])
    }

    Context fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) |device| {
        copy(device, Some(stream), Ends { to: (to, Device), from: (from, Device), bytes }, &[])
    }

    Context fn cuMemcpyPeerAsync(
        to: u64,
        to_context: u64,
        from: u64,
        from_context: u64,
        bytes: u64,
        stream: u64,
    ) |device| {
        let between = [context::device_of(to_context)?, context::device_of(from_context)?];
        copy(device, Some(stream), Ends { to: (to, Device), from: (from, Device), bytes }, &between)
    }

    Context fn cuMemsetD8_v2(to: u64, value: c_uchar, count: u64) |device| {
        fill(device, None, to, &value.to_le_bytes(), count)
    }

    Context fn cuMemsetD16_v2(to: u64, value: c_ushort, count: u64) |device| {
        fill(device, None, to, &value.to_le_bytes(), count)
    }

    Context fn cuMemsetD32_v2(to: u64, value: c_uint, count: u64) |device| {
        fill(device, None, to, &value.to_le_bytes(), count)
    }

    Context fn cuMemsetD8Async(to: u64, value: c_uchar, count: u64, stream: u64) |device| {
        fill(device, Some(stream), to, &value.to_le_bytes(), count)
    }

    Context fn cuMemsetD16Async(to: u64, value: c_ushort, count: u64, stream: u64) |device| {
        fill(device, Some(stream), to, &value.to_le_bytes(), count)
    }

    Context fn cuMemsetD32Async(to: u64, value: c_uint, count: u64, stream: u64) |device| {
        fill(device, Some(stream), to, &value.to_le_bytes(), count)
    }
}

/// Returns what is at an end, if that may be an end of this copy.
fn place((address, side): (u64, Side), bytes: u64) -> Result<Place, Code> {
    let place = memory().read().place(address, bytes)?;
    let fits = match place {
        Place::Host => true,
        Place::Pageable => side != Device && address != 0,
        Place::Allocation(_) | Place::Mapped(_) => side != Host,
    };
    if fits { Ok(place) } else { Err(Code::INVALID_VALUE) }
}

fn one(device: usize) -> u8 {
    1 << device
}

/// Returns the stream of a copy or a fill: without a handle the legacy stream, where captures may forbid the call.
fn stream(world: &mut MutexGuard<'_, World>, device: usize, stream: Option<u64>) -> Result<LaneId, Code> {
    if stream.is_none() {
        world.refuse_unsafe()?;
    }
    world.stream(stream.unwrap_or(0), device)
}

/// Queues a copy. It is done when the call returns if it has no stream and the host takes part, or if it goes to memory
/// of the program that the driver does not know. From such memory the bytes are taken before the call returns.
fn copy(device: usize, handle: Option<u64>, ends: Ends, between: &[usize]) -> Answer {
    let mut world = world::lock();
    let lane = stream(&mut world, device, handle)?;
    if ends.bytes == 0 {
        return Ok(());
    }
    let (to, from) = (place(ends.to, ends.bytes)?, place(ends.from, ends.bytes)?);
    let owner = world.lanes[lane].device;
    let reach = Reach { devices: between.iter().fold(one(owner), |all, device| all | one(*device)), pageable: true };
    let captured = world.lanes[lane].capture.is_some();
    let (target, source, bytes) = (ends.to.0, ends.from.0, ends.bytes);
    let op = if from == Place::Pageable && to != Place::Pageable && !captured {
        Op::Write { to: target, data: touch::take(source, bytes).into(), reach }
    } else {
        Op::Copy { to: target, from: source, bytes, reach }
    };
    world.push(lane, op)?;
    let host = matches!(to, Place::Pageable | Place::Host) || matches!(from, Place::Pageable | Place::Host);
    let waits = to == Place::Pageable || (handle.is_none() && host);
    if captured || !waits {
        return Ok(());
    }
    let end = world.end(lane);
    world::wait(&mut world, owner, |world| world.reached(end))
}

/// Queues a fill.
fn fill(device: usize, handle: Option<u64>, to: u64, value: &[u8], count: u64) -> Answer {
    let width = value.len() as u64;
    let bytes = count.checked_mul(width).filter(|_| to.is_multiple_of(width)).ok_or(Code::INVALID_VALUE)?;
    let mut world = world::lock();
    let lane = stream(&mut world, device, handle)?;
    if bytes == 0 {
        return Ok(());
    }
    let runs_on = world.lanes[lane].device;
    if let Place::Allocation(owner) = place((to, Device), bytes)?
        && owner != runs_on
        && !world.contexts[runs_on].peers[owner]
    {
        return Err(Code::INVALID_VALUE);
    }
    let mut pattern = [0; 4];
    pattern[..value.len()].copy_from_slice(value);
    let reach = Reach { devices: one(runs_on), pageable: false };
    world.push(lane, Op::Set { to, pattern, width: value.len() as u8, bytes, reach })
}
