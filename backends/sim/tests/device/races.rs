//! The detection of conflicting accesses: what is a race, and what is not.

use millpond_backend::{Backend, ClassId, Closing, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory};
use millpond_sim::Access::{Read, Write};
use millpond_sim::{Completion, POISON, Page, Segment, Sim, StreamOrder, Violation};

const MIB: u64 = 1 << 20;

struct Scene {
    sim: Sim,
    streams: Vec<StreamId>,
    segment: Segment,
}

fn scene_of(sim: Sim) -> Scene {
    let streams = sim.open_streams(3);
    let segment = sim.reserve(ClassId::DEVICE, MIB).unwrap();
    Scene { sim, streams, segment }
}

fn scene() -> Scene {
    scene_of(Sim::builder().completion(Completion::Manual).build())
}

fn release(sim: &Sim, segment: Segment) {
    // SAFETY: the simulated device records a violation if work still touches the segment.
    unsafe { sim.release(segment) }
}

#[test]
fn two_streams_that_write_the_same_bytes_race() {
    let Scene { sim, streams, segment } = scene();
    let first = sim.use_range(streams[0], &segment, 0, 100, Write);
    let second = sim.use_range(streams[1], &segment, 60, 100, Write);
    let expected = Violation::Race {
        by: Point { stream: streams[1], tick: second },
        access: Write,
        other: Point { stream: streams[0], tick: first },
        other_access: Write,
        other_device: false,
        address: segment.address() + 60,
        bytes: 40,
    };
    assert_eq!(sim.violations(), std::slice::from_ref(&expected));
    let text = expected.to_string();
    assert!(
        text.contains("stream 1 tick 1") && text.contains("stream 0 tick 1") && text.contains("40 bytes"),
        "{text}"
    );
}

#[test]
fn raced_bytes_end_as_poison_whoever_writes_last() {
    for order in [[0, 1], [1, 0]] {
        let Scene { sim, streams, segment } = scene();
        sim.fill(streams[0], &segment, 0, 100, 1).unwrap();
        sim.fill(streams[1], &segment, 60, 100, 2).unwrap();
        for index in order {
            sim.complete(streams[index]);
        }
        let mut seen = [0; 160];
        sim.download(streams[2], &segment, 0, &mut seen).unwrap();
        assert!(seen[..60].iter().all(|byte| *byte == 1));
        assert!(seen[60..100].iter().all(|byte| *byte == POISON), "order {order:?}");
        assert!(seen[100..].iter().all(|byte| *byte == 2));
        assert_eq!(sim.violations().len(), 1);
    }
}

#[test]
fn readers_neighbours_and_the_same_stream_do_not_race() {
    let Scene { sim, streams, segment } = scene();
    sim.use_range(streams[0], &segment, 0, 100, Read);
    sim.use_range(streams[1], &segment, 0, 100, Read);
    sim.use_range(streams[1], &segment, 100, 100, Write);
    sim.use_range(streams[1], &segment, 150, 100, Write);
    assert_eq!(sim.violations(), []);
    sim.use_range(streams[0], &segment, 50, 1, Write);
    assert_eq!(sim.violations().len(), 1, "a write under a reader is one");
}

#[test]
fn finished_work_does_not_race() {
    let Scene { sim, streams, segment } = scene();
    sim.use_range(streams[0], &segment, 0, 100, Write);
    let tick = sim.mark(streams[0]);
    let _ = sim.wait(Point { stream: streams[0], tick }).unwrap();
    sim.use_range(streams[1], &segment, 0, 100, Write);
    sim.complete(streams[1]);
    sim.use_range(streams[2], &segment, 0, 100, Write);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_device_side_wait_orders_what_the_point_covers_and_no_more() {
    let Scene { sim, streams, segment } = scene();
    sim.use_range(streams[0], &segment, 0, 100, Write);
    let covered = Point { stream: streams[0], tick: sim.mark(streams[0]) };
    sim.use_range(streams[0], &segment, 200, 100, Write);
    StreamWait::wait_for(&sim, streams[1], covered).unwrap();
    sim.use_range(streams[1], &segment, 0, 100, Write);
    assert_eq!(sim.violations(), []);
    sim.use_range(streams[1], &segment, 200, 100, Write);
    assert_eq!(sim.violations().len(), 1, "work after the mark is not covered");
}

#[test]
fn order_passes_through_a_third_stream() {
    let Scene { sim, streams, segment } = scene();
    sim.use_range(streams[0], &segment, 0, 8, Write);
    StreamWait::wait_for(&sim, streams[1], Point { stream: streams[0], tick: sim.mark(streams[0]) }).unwrap();
    StreamWait::wait_for(&sim, streams[2], Point { stream: streams[1], tick: sim.mark(streams[1]) }).unwrap();
    sim.use_range(streams[2], &segment, 0, 8, Write);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_wait_queued_after_the_use_orders_nothing_before_it() {
    let Scene { sim, streams, segment } = scene();
    sim.use_range(streams[0], &segment, 0, 8, Write);
    let point = Point { stream: streams[0], tick: sim.mark(streams[0]) };
    sim.use_range(streams[1], &segment, 0, 8, Write);
    StreamWait::wait_for(&sim, streams[1], point).unwrap();
    assert_eq!(sim.violations().len(), 1);
}

#[test]
fn a_wait_for_a_tick_that_is_not_submitted_yet_orders_its_work() {
    let sim = Sim::builder().closing(Closing::Submit).completion(Completion::Manual).build();
    let Scene { sim, streams, segment } = scene_of(sim);
    StreamWait::wait_for(&sim, streams[1], Point { stream: streams[0], tick: Tick(1) }).unwrap();
    sim.use_range(streams[1], &segment, 0, 8, Write);
    sim.use_range(streams[0], &segment, 0, 8, Write);
    assert_eq!(sim.violations(), [], "the later call is the earlier work");
    sim.submit(streams[0]).unwrap();
    sim.use_range(streams[0], &segment, 0, 8, Write);
    assert_eq!(sim.violations().len(), 1, "the next tick is not covered");
}

#[test]
fn what_a_stream_comes_after_is_known_through_other_streams_and_in_the_past() {
    let Scene { sim, streams, .. } = scene();
    let kernel = |stream| {
        sim.busy(stream);
        Point { stream, tick: sim.mark(stream) }
    };
    let first = kernel(streams[0]);
    assert!(!sim.comes_after(streams[1], first) && !sim.comes_after(streams[2], first));
    StreamWait::wait_for(&sim, streams[1], first).unwrap();
    let second = kernel(streams[1]);
    StreamWait::wait_for(&sim, streams[2], second).unwrap();
    assert!(sim.comes_after(streams[1], first) && sim.comes_after(streams[2], first));
    let next = kernel(streams[0]);
    assert!(!sim.comes_after(streams[2], next), "the wait covers the first kernel alone");
    sim.synchronize();
    assert!(sim.comes_after(streams[2], first), "it is over");
}

#[test]
fn two_addresses_of_one_page_race() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let streams = sim.open_streams(2);
    let page = sim.create_page(ClassId::DEVICE, 2 * MIB).unwrap();
    let [old, new] = [(); 2].map(|()| sim.reserve_range(ClassId::DEVICE, 2 * MIB).unwrap());
    for range in [&old, &new] {
        // SAFETY: the addresses are unmapped and the device has aliasing; the race is the point of the test.
        unsafe { sim.map(range, 0, &page, streams[0]) }.unwrap();
    }
    sim.use_range(streams[0], &old, 10, 10, Write);
    sim.use_range(streams[1], &new, 0, 11, Read);
    let at = new.address() + 10;
    assert!(matches!(sim.violations()[..], [Violation::Race { address, bytes: 1, .. }] if address == at));
}

#[test]
fn releasing_under_running_work_is_seen_unless_the_release_waits() {
    for waits in [false, true] {
        let Scene { sim, streams, segment } = scene_of(Sim::builder().release_waits(waits).build());
        sim.busy(streams[0]);
        let tick = sim.use_range(streams[0], &segment, 4, 8, Read);
        let (other, address) = (Point { stream: streams[0], tick }, segment.address() + 4);
        release(&sim, segment);
        if waits {
            assert_eq!((sim.violations(), sim.queued()), (Vec::new(), 0));
        } else {
            assert_eq!(sim.violations(), [Violation::ReleasedInUse { other, address, bytes: 8 }]);
            assert_eq!(sim.queued(), 2, "the release waited for nothing");
        }
    }
}

#[test]
fn releasing_under_unsubmitted_work_is_seen_even_if_the_release_waits() {
    let Scene { sim, streams, segment } = scene_of(Sim::builder().closing(Closing::Submit).build());
    sim.use_range(streams[0], &segment, 0, 8, Read);
    release(&sim, segment);
    assert!(matches!(sim.violations()[..], [Violation::ReleasedInUse { .. }]));
}

#[test]
fn streams_of_two_devices_race_too() {
    let Scene { sim, streams, segment } = scene();
    let other = Sim::builder().completion(Completion::Manual).build();
    let far = other.create_stream().unwrap();
    sim.use_range(streams[0], &segment, 0, 8, Write);
    other.use_range(far, &segment, 0, 8, Read);
    assert!(matches!(other.violations()[..], [Violation::Race { other_device: true, .. }]));
    assert_eq!(sim.violations(), []);
    sim.synchronize();
    drop(other);
    sim.use_range(streams[1], &segment, 0, 8, Write);
    assert_eq!(sim.violations(), [], "the other device took its work with it");
}

/// Two ranges that show the same page, on a device with a given stream order.
struct Aliased {
    sim: Sim,
    stream: StreamId,
    ranges: [Segment; 2],
    page: Page,
}

fn aliased(order: StreamOrder) -> Aliased {
    let sim = Sim::builder().completion(Completion::Manual).closing(Closing::Submit).stream_order(order).build();
    let stream = sim.open_streams(1)[0];
    let ranges = [(); 2].map(|()| sim.reserve_range(ClassId::DEVICE, 2 * MIB).unwrap());
    let page = sim.create_page(ClassId::DEVICE, 2 * MIB).unwrap();
    for range in &ranges {
        // SAFETY: nothing is mapped in the range, and the device watches the accesses.
        unsafe { sim.map(range, 0, &page, stream) }.unwrap();
    }
    Aliased { sim, stream, ranges, page }
}

impl Aliased {
    /// Ends the scene and returns the number of races so far, all of them of the stream with itself.
    fn races(self) -> usize {
        let Aliased { sim, stream, ranges, page } = self;
        let races = sim.violations();
        let own = |race: &Violation| match race {
            Violation::Race { by, other, .. } => by.stream == stream && other.stream == stream,
            _ => false,
        };
        assert!(races.iter().all(own), "{races:?}");
        sim.submit(stream).unwrap();
        sim.synchronize();
        for range in ranges {
            // SAFETY: all work is done.
            unsafe {
                sim.unmap(&range, 0, &page, stream);
                sim.release_range(range);
            }
        }
        // SAFETY: the page is no longer mapped.
        unsafe { sim.release_page(page) };
        races.len()
    }
}

#[test]
fn a_stream_keeps_order_with_itself_unless_told_otherwise() {
    let scene = aliased(StreamOrder::Always);
    for range in &scene.ranges {
        scene.sim.use_range(scene.stream, range, 0, 100, Write);
    }
    assert_eq!(scene.races(), 0);
}

#[test]
fn where_buffers_are_tracked_two_of_them_are_ordered_by_a_submit() {
    for submits in [false, true] {
        let scene = aliased(StreamOrder::Tracked);
        let [one, two] = &scene.ranges;
        scene.sim.use_range(scene.stream, one, 0, 100, Write);
        scene.sim.use_range(scene.stream, one, 50, 100, Write);
        if submits {
            scene.sim.submit(scene.stream).unwrap();
        }
        scene.sim.use_range(scene.stream, two, 0, 100, Read);
        scene.sim.use_range(scene.stream, two, 200, 100, Write);
        assert_eq!(scene.races(), if submits { 0 } else { 2 }, "the read, with both writes");
    }
}

#[test]
fn where_barriers_are_wanted_only_one_over_all_memory_orders_two_buffers() {
    for (submits, barrier, races) in [(false, false, 1), (true, false, 1), (false, true, 0)] {
        let scene = aliased(StreamOrder::Barriers);
        let [one, two] = &scene.ranges;
        // A transfer places a barrier for its own buffer.
        scene.sim.fill(scene.stream, one, 0, 100, 1).unwrap();
        scene.sim.fill(scene.stream, one, 0, 100, 2).unwrap();
        if submits {
            scene.sim.submit(scene.stream).unwrap();
        }
        if barrier {
            scene.sim.place_barrier(scene.stream);
        }
        scene.sim.fill(scene.stream, two, 50, 10, 3).unwrap();
        assert_eq!(scene.races(), 2 * races, "with both fills; submit {submits}, barrier {barrier}");
    }
}

#[test]
fn where_barriers_are_wanted_kernels_bring_none_along() {
    for barrier in [false, true] {
        let scene = aliased(StreamOrder::Barriers);
        let [one, _] = &scene.ranges;
        scene.sim.use_range(scene.stream, one, 0, 100, Write);
        if barrier {
            scene.sim.place_barrier(scene.stream);
        }
        scene.sim.use_range(scene.stream, one, 0, 100, Read);
        assert_eq!(scene.races(), usize::from(!barrier));
    }
}

/// A wait for another stream that itself waits for this one comes after the work that the other one waits for.
#[test]
fn order_passes_through_another_stream_and_back() {
    for waits in [false, true] {
        let scene = aliased(StreamOrder::Barriers);
        let other = scene.sim.open_streams(1)[0];
        let [one, two] = &scene.ranges;
        let tick = scene.sim.use_range(scene.stream, one, 0, 100, Write);
        scene.sim.submit(scene.stream).unwrap();
        if waits {
            scene.sim.wait_for(other, Point { stream: scene.stream, tick }).unwrap();
            let tick = scene.sim.submit(other).unwrap();
            scene.sim.wait_for(scene.stream, Point { stream: other, tick }).unwrap();
        }
        scene.sim.use_range(scene.stream, two, 0, 100, Write);
        assert_eq!(scene.races(), usize::from(!waits));
    }
}

#[test]
#[should_panic(expected = "closes ticks by itself")]
fn order_by_submits_takes_somebody_who_submits() {
    let _ = Sim::builder().stream_order(StreamOrder::Tracked).build();
}
