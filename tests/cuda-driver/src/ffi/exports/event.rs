//! Events.

use std::ffi::c_uint;

use crate::driver::code::{Answer, Code};
use crate::driver::event::Event;
use crate::driver::world;
use crate::ffi::pointers::Out;

exported! {
    Context fn cuEventCreate(event: Out<u64>, flags: c_uint) |device| {
        if flags > 7 {
            return Err(Code::INVALID_VALUE);
        }
        let event = event.must()?;
        event.put(world::lock().events.insert(Event::new(device, flags)))
    }

    Context fn cuEventDestroy_v2(event: u64) |_device| {
        world::lock().events.remove(event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    Context fn cuEventRecord(event: u64, stream: u64) |device| { record(device, event, stream) }

    Context fn cuEventRecordWithFlags(event: u64, stream: u64, flags: c_uint) |device| {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        record(device, event, stream)
    }

    Context fn cuEventQuery(event: u64) |_device| {
        let mut world = world::lock();
        let position = world.position(event)?;
        world.refuse_unsafe()?;
        let done = position.is_none_or(|position| world.reached(position));
        if done { Ok(()) } else { Err(Code::NOT_READY) }
    }

    Context fn cuEventSynchronize(event: u64) |_device| {
        let mut world = world::lock();
        let position = world.position(event)?;
        world.refuse_unsafe()?;
        let Some(position) = position else { return Ok(()) };
        let device = world.lanes[position.lane].device;
        world::wait(&mut world, device, |world| world.reached(position))
    }

    Context fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) |_device| {
        milliseconds.put(world::lock().elapsed(start, end)?)
    }

    Context fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) |_device| {
        milliseconds.put(world::lock().elapsed(start, end)?)
    }
}

fn record(device: usize, event: u64, stream: u64) -> Answer {
    let mut world = world::lock();
    let lane = world.stream(stream, device)?;
    world.record_event(event, lane)
}
