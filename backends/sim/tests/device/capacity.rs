//! The capacity of the device, and the addresses of its memory.

use millpond_backend::{Backend, BackendError, Budget, ClassId, Fault, VirtualMemory};
use millpond_sim::{Misuse, Segment, Sim, SimError};

const MIB: u64 = 1 << 20;
const DEVICE: ClassId = ClassId::DEVICE;

fn release(sim: &Sim, segment: Segment) {
    // SAFETY: these tests queue no work.
    unsafe { sim.release(segment) }
}

#[test]
fn bytes_held_are_told_without_a_driver_call() {
    let sim = Sim::builder().build();
    let (segment, page) =
        (sim.reserve(ClassId::DEVICE, 512).unwrap(), sim.create_page(ClassId::DEVICE, 2 << 20).unwrap());
    let _pinned = sim.reserve(ClassId(1), 512).unwrap();
    sim.fail_any(1, Fault::Other);
    assert_eq!(sim.held_bytes(), 512 + (2 << 20));
    assert!(sim.create_stream().is_err(), "the planned fault is still to come");
    // SAFETY: nothing uses the segment or the page, which is mapped nowhere.
    unsafe {
        sim.release(segment);
        sim.release_page(page);
    }
    assert_eq!(sim.held_bytes(), 0);
}

#[test]
fn segments_and_pages_share_the_bytes_of_the_device() {
    let sim = Sim::builder().total_bytes(10 * MIB).build();
    let segment = sim.reserve(DEVICE, 5 * MIB).unwrap();
    let page = sim.create_page(DEVICE, 4 * MIB).unwrap();
    let refused = sim.reserve(DEVICE, MIB + 1).map(drop).unwrap_err();
    assert_eq!(refused, SimError::OutOfMemory { asked: MIB + 1, free: MIB, total: 10 * MIB });
    assert_eq!(refused.fault(), Fault::OutOfMemory);
    assert!(refused.to_string().contains("1048577"), "{refused}");
    assert!(matches!(sim.create_page(DEVICE, 2 * MIB), Err(SimError::OutOfMemory { .. })));
    release(&sim, segment);
    assert_eq!(Budget::budget(&sim, DEVICE).unwrap().free_bytes, 6 * MIB);
    // SAFETY: the page was never mapped.
    unsafe { sim.release_page(page) };
    release(&sim, sim.reserve(DEVICE, 10 * MIB).unwrap());
}

#[test]
fn others_take_their_part() {
    let sim = Sim::builder().total_bytes(10 * MIB).build();
    sim.set_others(8 * MIB);
    let info = Budget::budget(&sim, DEVICE).unwrap();
    assert_eq!((info.free_bytes, info.total_bytes, info.others_bytes), (2 * MIB, 10 * MIB, Some(8 * MIB)));
    assert!(sim.reserve(DEVICE, 3 * MIB).is_err());
    let segment = sim.reserve(DEVICE, 2 * MIB).unwrap();
    sim.set_others(u64::MAX);
    assert_eq!(Budget::budget(&sim, DEVICE).unwrap().free_bytes, 0);
    release(&sim, segment);
}

#[test]
fn classes_have_bytes_of_their_own() {
    let sim = Sim::builder().total_bytes(4 * MIB).pinned_bytes(2 * MIB).max_segment_bytes(3 * MIB).build();
    let too_large = sim.reserve(DEVICE, 4 * MIB).map(drop).unwrap_err();
    assert_eq!(too_large, SimError::TooLarge { asked: 4 * MIB, max: 3 * MIB });
    assert_eq!(too_large.fault(), Fault::OutOfMemory);
    let _device = sim.reserve(DEVICE, 3 * MIB).unwrap();
    let _pinned = sim.reserve(ClassId(1), 2 * MIB).unwrap();
    assert!(sim.reserve(ClassId(1), 1).is_err());
    assert!(matches!(sim.reserve(DEVICE, 0), Err(SimError::Misuse(Misuse::Empty { .. }))));
}

#[test]
fn ranges_take_addresses_and_no_memory() {
    let sim = Sim::builder().total_bytes(2 * MIB).address_space_bytes(64 * MIB).build();
    let range = sim.reserve_range(DEVICE, 60 * MIB).unwrap();
    let refused = sim.reserve_range(DEVICE, 6 * MIB).map(drop).unwrap_err();
    assert_eq!(refused, SimError::AddressSpace { asked: 6 * MIB, free: 4 * MIB, total: 64 * MIB });
    assert_eq!(refused.fault(), Fault::OutOfMemory);
    assert_eq!(Budget::budget(&sim, DEVICE).unwrap().free_bytes, 2 * MIB);
    // SAFETY: nothing is mapped in the range.
    unsafe { sim.release_range(range) };
    drop(sim.reserve_range(DEVICE, 64 * MIB).unwrap());
}

#[test]
fn addresses_rise_in_steps_and_do_not_come_back() {
    let sim = Sim::new();
    let mut last = 0;
    for bytes in [1, 3 * MIB, 512, 2 * MIB] {
        let segment = sim.reserve(DEVICE, bytes).unwrap();
        assert!(segment.address() > last && segment.address().is_multiple_of(2 * MIB));
        assert_eq!(sim.address(&segment), Some(segment.address()));
        last = segment.address();
        release(&sim, segment);
    }
    let again: Vec<u64> = (0..2).map(|_| Sim::new().reserve(DEVICE, 1).unwrap().address()).collect();
    assert_eq!(again[0], again[1], "placement is the same on every device");
}

#[test]
fn memory_of_other_code_is_a_segment_where_it_lies() {
    let sim = Sim::builder().total_bytes(8 * MIB).build();
    let first = sim.reserve(DEVICE, MIB).unwrap();
    let near = first.address() + 2 * MIB;
    let adopted = sim.adopt_memory(near, 4 * MIB).unwrap();
    assert_eq!((adopted.address(), adopted.bytes(), sim.held_bytes()), (near, 4 * MIB, 5 * MIB));
    let occupied = SimError::Occupied { address: near + MIB, bytes: 512 };
    assert_eq!(sim.adopt_memory(near + MIB, 512).map(drop), Err(occupied));
    assert!(matches!(sim.adopt_memory(1 << 40, 4 * MIB).map(drop), Err(SimError::OutOfMemory { .. })));
    assert!(matches!(sim.adopt_memory((1 << 40) + 1, 512).map(drop), Err(SimError::Misuse(_))));
    let next = sim.reserve(DEVICE, MIB).unwrap();
    assert_eq!(next.address(), near + 4 * MIB, "what the device chooses is behind what lies in the way");
    release(&sim, adopted);
    drop(sim.adopt_memory(near, 2 * MIB).unwrap());
}

#[test]
fn place_next_decides_the_next_address_only() {
    let sim = Sim::new();
    sim.place_next(0x9_0000_0200);
    let placed = sim.reserve(DEVICE, 4 * MIB).unwrap();
    assert_eq!(placed.address(), 0x9_0000_0200);
    let next = sim.reserve(DEVICE, MIB).unwrap();
    assert!(next.address() >= placed.address() + 4 * MIB);
    sim.place_next(0x2_0000_0000);
    let range = sim.reserve_range(DEVICE, 2 * MIB).unwrap();
    assert_eq!(range.address(), 0x2_0000_0000);
    assert!(sim.reserve(DEVICE, MIB).unwrap().address() > next.address(), "the rise goes on from the highest end");
    release(&sim, placed);
    sim.place_next(0x9_0000_0400);
    assert_eq!(sim.reserve(DEVICE, MIB).unwrap().address(), 0x9_0000_0400, "a released place is free");
}

#[test]
fn place_next_gives_way_to_a_live_segment() {
    let sim = Sim::new();
    let live = sim.reserve(DEVICE, 4 * MIB).unwrap();
    for impossible in [live.address() - MIB, live.address() + MIB, u64::MAX - 511] {
        sim.place_next(impossible);
        let other = sim.reserve(DEVICE, 2 * MIB).unwrap();
        assert!(other.address() >= live.address() + 4 * MIB && other.address() < 1 << 56, "{:#x}", other.address());
    }
}

#[test]
fn segments_start_where_those_of_their_size_are_expected() {
    let sim = Sim::new();
    let (high, low, large) = (0x9_0040_0000, 0x9_0020_0000, 0xa_0000_0000);
    sim.expect_segments(&[(2 * MIB, high), (20 * MIB, large), (2 * MIB, low)]);
    let reserve = |bytes| sim.reserve(DEVICE, bytes).unwrap().address();
    let pinned = sim.reserve(ClassId(1), 2 * MIB).unwrap();
    assert!(pinned.address() >= large + 20 * MIB, "memory of the host is not expected");
    assert!(sim.reserve_range(DEVICE, 2 * MIB).unwrap().address() > pinned.address(), "nor is a range");
    let other = reserve(4 * MIB);
    assert!(other > pinned.address(), "what is not expected lies above");
    assert_eq!([reserve(2 * MIB), reserve(2 * MIB), reserve(20 * MIB)], [high, low, large]);
    assert!(reserve(2 * MIB) > other, "each is expected once");
}

#[test]
fn expected_addresses_that_cannot_be_had_are_passed_over() {
    let sim = Sim::new();
    let good = 0x9_0000_0000;
    let impossible = [good + MIB, good + 100, u64::MAX - 511, 1 << 60];
    let expected = [good].into_iter().chain(impossible).chain([good + 2 * MIB]);
    sim.expect_segments(&expected.map(|address| (2 * MIB, address)).collect::<Vec<_>>());
    let reserve = || sim.reserve(DEVICE, 2 * MIB).unwrap().address();
    assert_eq!(reserve(), good);
    for address in impossible {
        let own = reserve();
        assert!(own >= good + 4 * MIB && own < 1 << 56, "{own:#x} in place of {address:#x}");
    }
    assert_eq!(reserve(), good + 2 * MIB);
    // The place of a test comes first and uses none up; a new list replaces the old one.
    sim.expect_segments(&[(2 * MIB, 0xb_0000_0000)]);
    sim.expect_segments(&[(2 * MIB, 0xc_0000_0000)]);
    sim.place_next(0x2_0000_0000);
    assert_eq!([reserve(), reserve()], [0x2_0000_0000, 0xc_0000_0000]);
    sim.expect_segments(&[(2 * MIB, 0xd_0000_0000)]);
    sim.fail_any(1, Fault::OutOfMemory);
    assert!(sim.reserve(DEVICE, 2 * MIB).is_err());
    assert_eq!(reserve(), 0xd_0000_0000, "a refusal uses none up");
}

#[test]
#[should_panic(expected = "the handle belongs to simulated device")]
fn releasing_another_devices_segment_panics() {
    let segment = Sim::new().reserve(DEVICE, MIB).unwrap();
    release(&Sim::new(), segment);
}
