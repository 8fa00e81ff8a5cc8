//! The erased types against the typed ones, on the simulated device; and a program on every device that there is.

#![cfg(feature = "sim")]

mod allocator;
mod devices;
mod errors;
mod history;
mod later;
mod live;
mod names;
mod pinned;
mod settings;
mod streams;
mod threads;
mod typed;

use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyAllocator, AnyBuffer, AnyDevice, AnyStream};

/// Returns an allocator on a simulated device.
fn on(sim: &Sim) -> AnyAllocator {
    AnyAllocator::new(AnyDevice::from(sim.clone()))
}

/// Returns a simulated device, an allocator on it, and two streams.
fn two_streams() -> (Sim, AnyAllocator, [AnyStream; 2]) {
    let sim = Sim::new();
    let allocator = on(&sim);
    let streams = [allocator.create_stream().unwrap(), allocator.create_stream().unwrap()];
    (sim, allocator, streams)
}

fn read(stream: &AnyStream, buffer: &AnyBuffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len() as usize];
    stream.download(buffer, 0, &mut bytes).unwrap();
    bytes
}
