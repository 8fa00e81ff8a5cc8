//! Streams.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::code::{Answer, Code};
use crate::driver::lane::NON_BLOCKING;
use crate::driver::work::Op;
use crate::driver::world;
use crate::ffi::host::HostCall;
use crate::ffi::pointers::{Opaque, Out};

use super::context;

/// The highest priority of a stream; the lowest is 0.
pub(super) const GREATEST: c_int = -2;

exported! {
    Context fn cuStreamCreate(stream: Out<u64>, flags: c_uint) |device| { create(device, stream, flags, 0) }

    Context fn cuStreamCreateWithPriority(stream: Out<u64>, flags: c_uint, priority: c_int) |device| {
        create(device, stream, flags, priority.clamp(GREATEST, 0))
    }

    Context fn cuStreamDestroy_v2(stream: u64) |_device| {
        let mut world = world::lock();
        let lane = world.streams.remove(stream).ok_or(Code::INVALID_HANDLE)?;
        world.close(lane);
        Ok(())
    }

    Context fn cuStreamQuery(stream: u64) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.refuse_captured(lane)?;
        world.refuse_implicit(lane)?;
        world.refuse_unsafe()?;
        let done = world.ends_of(lane).into_iter().all(|end| world.reached(end));
        if done { Ok(()) } else { Err(Code::NOT_READY) }
    }

    Context fn cuStreamSynchronize(stream: u64) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.refuse_captured(lane)?;
        world.refuse_implicit(lane)?;
        world.refuse_unsafe()?;
        let (ends, device) = (world.ends_of(lane), world.lanes[lane].device);
        world::wait(&mut world, device, |world| ends.iter().all(|end| world.reached(*end)))
    }

    Context fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) |device| {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.wait_event(lane, event)
    }

    Context fn cuStreamGetId(stream: u64, id: Out<u64>) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.refuse_captured(lane)?;
        id.put(lane as u64 + 1)
    }

    Context fn cuStreamGetFlags(stream: u64, flags: Out<c_uint>) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        // The legacy stream is stored as a non-blocking one, as it orders itself.
        flags.put(if world.is_legacy(lane) { 0 } else { world.lanes[lane].flags })
    }

    Context fn cuStreamGetPriority(stream: u64, priority: Out<c_int>) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        priority.put(world.lanes[lane].priority)
    }

    Context fn cuStreamGetCtx(stream: u64, out: Out<u64>) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        out.put(context::handle(Some(world.lanes[lane].device)))
    }

    Context fn cuStreamGetDevice(stream: u64, out: Out<c_int>) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        out.put(world.lanes[lane].device as c_int)
    }

    Context fn cuLaunchHostFunc(
        stream: u64,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        data: Opaque,
    ) |device| {
        let call = HostCall::new(function, data)?;
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.push(lane, Op::Host(call))
    }
}

fn create(device: usize, stream: Out<u64>, flags: c_uint, priority: c_int) -> Answer {
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let stream = stream.must()?;
    let mut world = world::lock();
    let lane = world.add_lane(device, flags, priority);
    stream.put(world.streams.insert(lane))
}
