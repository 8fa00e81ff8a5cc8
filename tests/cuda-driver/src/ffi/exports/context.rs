//! Contexts: the primary ones only.

use std::ffi::{c_int, c_uint};

use crate::DEVICES;
use crate::driver::code::{Answer, Code};
use crate::driver::lane::Position;
use crate::driver::{thread, world};
use crate::ffi::pointers::Out;

use super::device::at;

/// The handle of the first device's context, and the distance to the next one.
const FIRST: u64 = 0xC000_0000;
const STEP: u64 = 0x100;

exported! {
    Init fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: c_int) |_device| {
        let device = at(device)?;
        let context = context.must()?;
        world::lock_settled(device).contexts[device].references += 1;
        context.put(handle(Some(device)))
    }

    Init fn cuDevicePrimaryCtxRelease_v2(device: c_int) |_device| { release(at(device)?, false) }

    Init fn cuDevicePrimaryCtxReset_v2(device: c_int) |_device| { release(at(device)?, true) }

    Init fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) |_device| {
        let device = at(device)?;
        let world = world::lock();
        let context = &world.contexts[device];
        flags.put(context.flags)?;
        active.put(c_int::from(context.references > 0))
    }

    Init fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) |_device| {
        world::lock().contexts[at(device)?].flags = flags;
        Ok(())
    }

    // A primary context is released, and there is no other.
    Init fn cuCtxDestroy_v2(context: u64) |_device| { device_of(context).and(Err(Code::INVALID_CONTEXT)) }

    Init fn cuCtxGetCurrent(context: Out<u64>) |_device| { context.put(handle(thread::current())) }

    Init fn cuCtxSetCurrent(context: u64) |_device| {
        let device = if context == 0 { None } else { Some(device_of(context)?) };
        thread::set_current(device);
        Ok(())
    }

    Init fn cuCtxPushCurrent_v2(context: u64) |_device| {
        thread::push(device_of(context)?);
        Ok(())
    }

    Init fn cuCtxPopCurrent_v2(context: Out<u64>) |_device| {
        let device = thread::pop().ok_or(Code::INVALID_CONTEXT)?;
        context.offer(handle(Some(device)));
        Ok(())
    }

    Context fn cuCtxGetDevice(out: Out<c_int>) |device| { out.put(device as c_int) }

    Context fn cuCtxGetFlags(out: Out<c_uint>) |device| { out.put(world::lock().contexts[device].flags) }

    Context fn cuCtxGetApiVersion(context: u64, version: Out<c_uint>) |_device| {
        device_of(context)?;
        version.put(3020)
    }

    Context fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) |_device| {
        least.offer(0);
        greatest.offer(super::stream::GREATEST);
        Ok(())
    }

    Context fn cuCtxSynchronize() |device| {
        let mut world = world::lock();
        world.refuse_any_capture(device)?;
        world.refuse_unsafe()?;
        let ends = world.ends(device);
        world::wait(&mut world, device, |world| ends.iter().all(|end| world.reached(*end)))
    }

    Context fn cuCtxEnablePeerAccess(peer: u64, flags: c_uint) |device| {
        let peer = device_of(peer)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if peer == device {
            return Err(Code::INVALID_DEVICE);
        }
        let mut world = world::lock();
        let enabled = std::mem::replace(&mut world.contexts[device].peers[peer], true);
        if enabled { Err(Code::PEER_ACCESS_ALREADY_ENABLED) } else { Ok(()) }
    }

    Context fn cuCtxDisablePeerAccess(peer: u64) |device| {
        let peer = device_of(peer)?;
        let mut world = world::lock();
        let enabled = std::mem::replace(&mut world.contexts[device].peers[peer], false);
        if enabled { Ok(()) } else { Err(Code::PEER_ACCESS_NOT_ENABLED) }
    }
}

/// Returns the handle of a device's context; 0 is none.
pub(super) fn handle(device: Option<usize>) -> u64 {
    device.map_or(0, |device| FIRST + device as u64 * STEP)
}

/// Returns the device of a context.
pub(super) fn device_of(context: u64) -> Result<usize, Code> {
    (0..DEVICES).find(|device| handle(Some(*device)) == context).ok_or(Code::INVALID_CONTEXT)
}

/// Releases one reference, or all. Without any left, the context ends when the operations that are running are done.
fn release(device: usize, all: bool) -> Answer {
    let mut world = world::lock_settled(device);
    let context = &mut world.contexts[device];
    if context.references == 0 {
        return if all { Ok(()) } else { Err(Code::INVALID_CONTEXT) };
    }
    let left = if all { 0 } else { context.references - 1 };
    if left > 0 {
        context.references = left;
        return Ok(());
    }
    context.ending = true;
    world.drop_work(device);
    let ends: Vec<Position> = world.ends(device);
    // Work of a device that is broken was dropped, so its context can end as well.
    let _ = world::wait(&mut world, device, |world| ends.iter().all(|end| world.reached(*end)));
    let references = world.contexts[device].references;
    world.end_context(device);
    // A reset keeps the references, so that the context can be used again.
    world.contexts[device].references = if all { references } else { 0 };
    Ok(())
}
