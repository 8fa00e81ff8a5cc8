//! The virtual clock.

use millpond_backend::{Backend, ClassId, Point, StreamWait, Transfer, VirtualMemory};
use millpond_sim::{CostModel, Sim};

const MIB: u64 = 1 << 20;

fn clock(sim: &Sim) -> u64 {
    sim.driver_clock().unwrap()
}

#[test]
fn segments_cost_what_an_h200_takes() {
    let sim = Sim::builder().build();
    for (bytes, reserve, release) in [
        (512, 43_000, 35_000),
        (2 * MIB, 43_000, 35_000),
        (8 << 30, 677_000, 3_600_000),
        (1 + (4 << 30), 43_000 + 316_922, 35_000 + 1_782_064),
    ] {
        let start = clock(&sim);
        let segment = sim.reserve(ClassId::DEVICE, bytes).unwrap();
        assert_eq!(clock(&sim) - start, reserve, "reserve of {bytes}");
        // SAFETY: no work touches the segment.
        unsafe { sim.release(segment) };
        assert_eq!(clock(&sim) - start, reserve + release, "release of {bytes}");
    }
}

#[test]
fn a_fill_costs_what_an_h200_takes_for_it() {
    let sim = Sim::builder().build();
    let stream = sim.create_stream().unwrap();
    let segment = sim.reserve(ClassId::DEVICE, 64 * MIB).unwrap();
    for (bytes, nanoseconds) in [(512, 9_000), (MIB, 9_000), (64 * MIB, 24_700)] {
        let start = clock(&sim);
        sim.fill(stream, &segment, 0, bytes, 0).unwrap();
        assert_eq!(clock(&sim) - start, nanoseconds, "{bytes} bytes");
    }
}

#[test]
fn a_page_costs_the_same_at_any_size() {
    for bytes in [2 * MIB, 64 * MIB] {
        let sim = Sim::builder().build();
        let stream = sim.create_stream().unwrap();
        let range = sim.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = sim.create_page(ClassId::DEVICE, bytes).unwrap();
        assert_eq!(clock(&sim), 2_000 + 9_000);
        // SAFETY: the range is new, no work touches it, and it is empty again before its release.
        unsafe {
            sim.map(&range, 0, &page, stream).unwrap();
            assert_eq!(clock(&sim), 11_000 + 27_000);
            sim.unmap(&range, 0, &page, stream);
            sim.release_page(page);
            sim.release_range(range);
        }
        assert_eq!(clock(&sim), 38_000 + 16_000 + 9_000 + 2_000);
    }
}

/// Through Vulkan the memory of a page costs by the byte, and so does its mapping.
#[test]
fn a_large_page_costs_more_through_vulkan() {
    for (bytes, create, map) in
        [(2 * MIB, 170_000, 141_000), (32 * MIB, 644_193, 406_645), (64 * MIB, 1_150_000, 690_000)]
    {
        let sim = Sim::builder().cost(CostModel::h200_vulkan()).build();
        let stream = sim.create_stream().unwrap();
        let range = sim.reserve_range(ClassId::DEVICE, 64 * MIB).unwrap();
        let start = clock(&sim);
        let page = sim.create_page(ClassId::DEVICE, bytes).unwrap();
        assert_eq!(clock(&sim) - start, create, "{bytes} bytes are created");
        // SAFETY: the range is new, and no work touches it.
        unsafe { sim.map(&range, 0, &page, stream) }.unwrap();
        assert_eq!(clock(&sim) - start, create + map, "{bytes} bytes are mapped");
    }
}

#[test]
fn time_costs_one_record_a_batch_and_one_query_a_poll() {
    let sim = Sim::builder().build();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    for _ in 0..1000 {
        sim.mark(a);
    }
    assert_eq!(clock(&sim), 0, "marks are free");
    let tick = sim.reached(a).unwrap();
    assert_eq!(clock(&sim), 250 + 400);
    let _ = sim.reached(a).unwrap();
    assert_eq!(clock(&sim), 650, "nothing was outstanding");
    StreamWait::wait_for(&sim, b, Point { stream: a, tick }).unwrap();
    assert_eq!(clock(&sim), 650 + 345);
}

#[test]
fn failed_calls_and_the_free_model_cost_nothing() {
    let sim = Sim::builder().total_bytes(MIB).build();
    assert!(sim.reserve(ClassId::DEVICE, 2 * MIB).is_err());
    assert_eq!((clock(&sim), sim.calls().reserve), (0, 1));
    let free = Sim::builder().cost(CostModel::free()).build();
    drop(free.reserve(ClassId::DEVICE, 8 << 30).unwrap());
    assert_eq!((clock(&free), free.calls().reserve), (0, 1));
}
