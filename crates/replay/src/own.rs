//! Memory that a check, or work in flight, reserves from the device itself, so that the allocator's decisions do not
//! change. This is the only module of the crate with `unsafe` code.

#![allow(unsafe_code)]

use millpond_backend::{Backend, Point, StreamId};

/// Releases a segment that was reserved without the allocator and used by device work on these streams alone. Waits for
/// them. If a stream cannot be waited for, the segment is left for the driver to reclaim with the device.
pub(crate) fn release<B: Backend>(backend: &B, segment: B::Segment, streams: &[StreamId]) {
    let is_over = |&stream: &StreamId| {
        let Ok(tick) = backend.submit(stream) else { return false };
        backend.wait(Point { stream, tick }).is_ok_and(|reached| reached >= tick)
    };
    if streams.iter().all(is_over) {
        // SAFETY: all work that was recorded on the streams so far is complete, and the caller recorded all work on
        // this segment there. No work can be recorded later, because the segment is moved in here by value.
        unsafe { backend.release(segment) }
    } else {
        std::mem::forget(segment);
    }
}
