//! Devices and allocators of `paged`, and the driver calls that change what is mapped.

use millpond::settings::{Growth, Policy, Settings};
use millpond::{Allocator, Buffer, Builder, Stream};
use millpond_sim::{Access, Calls, Completion, CostModel, Sim, SimBuilder};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) const GROWTHS: [Growth; 2] = [Growth::Balanced, Growth::Tight];

/// Returns the builder of a device of this number of bytes, on which driver calls cost nothing.
pub(crate) fn device(total_bytes: u64, completion: Completion) -> SimBuilder {
    Sim::builder().total_bytes(total_bytes).cost(CostModel::free()).completion(completion)
}

pub(crate) fn settings(growth: Growth) -> Settings {
    Settings { policy: Policy::paged(growth), ..Settings::default() }
}

pub(crate) fn builder(sim: &Sim, growth: Growth) -> Builder<Sim> {
    Allocator::builder(sim.clone()).settings(settings(growth))
}

pub(crate) fn allocator(sim: &Sim, growth: Growth) -> Allocator<Sim> {
    builder(sim, growth).build().unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn streams(allocator: &Allocator<Sim>, count: usize) -> Vec<Stream<Sim>> {
    (0..count).map(|_| allocator.create_stream().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Allocates, and has a kernel of the stream write all of it, so that the device detects other work that uses these
/// bytes.
pub(crate) fn written(sim: &Sim, stream: &Stream<Sim>, bytes: u64) -> Buffer<Sim> {
    let buffer = stream.allocate(bytes).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
    write(sim, stream, &buffer);
    buffer
}

pub(crate) fn write(sim: &Sim, stream: &Stream<Sim>, buffer: &Buffer<Sim>) {
    let Some(segment) = buffer.segment() else { return };
    sim.use_range(stream.id(), segment, buffer.offset(), buffer.len(), Access::Write);
}

/// Returns the number of calls that change what is reserved or mapped.
pub(crate) fn changes(calls: &Calls) -> u64 {
    let memory = calls.create_page + calls.release_page + calls.reserve + calls.release;
    memory + calls.map + calls.unmap + calls.reserve_range + calls.release_range
}
