//! Devices that are chosen at run time: the simulated one against its typed form, and a program on every device that
//! there is.

#![cfg(feature = "sim")]

mod devices;
mod errors;
mod names;
mod parts;
mod same;
mod source;
mod threads;

use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyAllocator, AnyDevice, AnyStream};

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
