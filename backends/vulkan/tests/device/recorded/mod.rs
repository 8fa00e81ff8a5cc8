//! What each verb has the driver do: its barriers, waits, values and flags, and the order of all of it.

mod binds;
mod queues;
mod refused;
mod submits;
mod transfers;

use millpond_backend::{Backend, ClassId, Point, StreamId};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Segment, Vulkan};

use crate::recorder::{At, Barrier, Command};

const BYTES: u64 = 4096;
const FULL: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::ALL_COMMANDS;

/// Returns the barrier that is in front of each use of a command buffer.
fn full() -> Command {
    Command::Barrier(Barrier::full())
}

/// Returns the barrier at the end of command buffers that write for the host.
fn to_host() -> Command {
    Command::Barrier(Barrier::to_host())
}

fn segment(device: &Vulkan) -> Segment {
    device.reserve(ClassId::DEVICE, BYTES).unwrap()
}

/// Returns a value of a stream's timeline, as a submit waits for it or signals it.
fn at(device: &Vulkan, stream: StreamId, value: u64) -> At {
    At { semaphore: device.timeline_of(stream).0, value, stages: FULL }
}

fn finish(device: &Vulkan, stream: StreamId) {
    let tick = device.submit(stream).unwrap();
    assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
}

fn give_back(device: &Vulkan, segments: impl IntoIterator<Item = Segment>) {
    // SAFETY: the tests have waited for all work on the segments.
    segments.into_iter().for_each(|segment| unsafe { device.release(segment) });
}
