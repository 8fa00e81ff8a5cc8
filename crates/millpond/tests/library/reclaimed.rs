//! When memory that was freed is used again, or goes back: what the allocator asks the device, and when.

use millpond::{Allocator, Stream};
use millpond_backend::{Closing, Reuse};
use millpond_sim::{Completion, Sim, SimBuilder};

const MIB: u64 = 1 << 20;

fn scene(builder: SimBuilder, conf: &str) -> (Sim, Allocator<Sim>, [Stream<Sim>; 2]) {
    let sim = builder.completion(Completion::Manual).build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    (sim, allocator, streams)
}

#[test]
fn under_direct_a_free_gives_idle_memory_back() {
    let (_, allocator, [stream, _]) = scene(Sim::builder(), "policy:direct");
    let buffers = [3, 30].map(|mib| stream.allocate(mib * MIB).unwrap());
    assert!(allocator.memory_reserved() >= 33 * MIB);
    drop(buffers);
    assert_eq!(allocator.memory_reserved(), 0);
}

/// On a device that keeps order only between submissions, memory of the open one is not used again.
#[test]
fn what_was_not_submitted_is_not_used_again() {
    for submits in [false, true] {
        let builder = Sim::builder().reuse(Reuse::AfterSubmit).closing(Closing::Submit);
        let (sim, allocator, [stream, _]) = scene(builder, "policy:classic");
        let buffer = stream.allocate(12 * MIB).unwrap();
        sim.busy(stream.id());
        drop(buffer);
        if submits {
            stream.submit().unwrap();
        }
        let _other = stream.allocate(12 * MIB).unwrap();
        let expected = if submits { 12 * MIB } else { 24 * MIB };
        assert_eq!(allocator.memory_reserved(), expected, "submits: {submits}");
    }
}

/// A freed block waits for another stream. The next allocation asks how far that stream is, also if another block
/// serves it.
#[test]
fn an_allocation_asks_for_what_freed_blocks_wait_for() {
    let (sim, allocator, [stream, other]) = scene(Sim::builder(), "policy:classic");
    drop(stream.allocate(MIB).unwrap());
    let buffer = stream.allocate(12 * MIB).unwrap();
    buffer.record_stream(&other).unwrap();
    sim.busy(other.id());
    drop(buffer);
    assert_eq!(allocator.stats().active_bytes.all.current, 12 * MIB);
    sim.synchronize();
    let _hit = stream.allocate(MIB).unwrap();
    assert_eq!(allocator.stats().active_bytes.all.current, MIB);
}
