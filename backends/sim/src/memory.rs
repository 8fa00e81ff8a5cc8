//! Segments: taking memory and giving it back.

use std::ptr::NonNull;
use std::sync::Arc;

use millpond_backend::ClassId;
use millpond_kit::Misuse;

use crate::error::SimError;
use crate::error::calls::CallKind;
use crate::space::segment::Segment;
use crate::time::Time;

/// Implements `reserve`.
pub(crate) fn reserve(device: &Time, class: ClassId, bytes: u64) -> Result<Segment, SimError> {
    device.enter(CallKind::Reserve)?;
    let facts = device.caps.class(class);
    Misuse::if_empty(CallKind::Reserve.name(), bytes)?;
    if bytes > facts.max_segment_bytes {
        return Err(SimError::TooLarge { asked: bytes, max: facts.max_segment_bytes });
    }
    let mut space = device.memory.space();
    let physical = space.create(class, bytes)?;
    let address = space.place_segment(class, bytes, facts.alignment);
    let id = space.number();
    drop(space);
    device.charge(device.costs.reserve.at(bytes));
    Ok(Segment { memory: Arc::clone(&device.memory), id, address, bytes, class, physical: Some(physical) })
}

/// Implements [`Sim::adopt_memory`](crate::Sim::adopt_memory).
pub(crate) fn adopt(device: &Time, address: u64, bytes: u64) -> Result<Segment, SimError> {
    let (call, class) = ("adopt_memory", ClassId::DEVICE);
    Misuse::if_empty(call, bytes)?;
    Misuse::if_misaligned(call, address, device.caps.class(class).alignment, None)?;
    let mut space = device.memory.space();
    space.claim(address, bytes)?;
    let physical = space.create(class, bytes).inspect_err(|_| space.vacate(address))?;
    let id = space.number();
    drop(space);
    Ok(Segment { memory: Arc::clone(&device.memory), id, address, bytes, class, physical: Some(physical) })
}

/// Implements `release`.
pub(crate) fn release(device: &Time, segment: Segment) {
    device.own(&segment.memory, CallKind::Release);
    let Some(physical) = segment.physical else {
        panic!("release of the range at {:#x}: use release_range", segment.address);
    };
    device.count(CallKind::Release, device.costs.release.at(segment.bytes));
    let mut state = device.state();
    if device.caps.release_waits {
        device.drain(&mut state, |_| true);
    }
    let mut space = device.memory.space();
    state.violations.extend(space.users(physical));
    space.destroy(physical);
    space.vacate(segment.address);
    device.break_off(CallKind::Release);
}

/// Implements `host_address`.
pub(crate) fn host_address(segment: &Segment) -> Option<NonNull<u8>> {
    let mut space = segment.memory.space();
    let physical = space.physical.get_mut(&segment.physical?)?;
    physical.store.host_bytes().map(|bytes| bytes.pointer())
}
