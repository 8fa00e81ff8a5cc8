//! Operations of other threads between two steps of a plan, each made by hand.

use millpond_backend::StreamId;
use millpond_core::settings::{Policy, Segments, Settings};
use millpond_core::{Outcome, Requester, Shard, Step};

use crate::driver::{Device, Facts, MIB, empty_cache, is_pages};

/// Returns an allocator of one stream, none of whose plans asks how far the device is, or waits for another plan.
fn alone(settings: Settings) -> Device {
    let mut device = Device::of(&Facts::new(settings, 1));
    device.gpu.answers = |step| match step {
        Step::Poll(_) | Step::Budget | Step::Pause { .. } => panic!("{step:?} is not expected here"),
        _ => None,
    };
    device
}

fn expandable() -> Device {
    alone(Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() })
}

/// A block that is freed behind one that is being extended is joined with the remainder of that one.
#[test]
fn a_neighbour_is_freed_before_an_extended_block_is_served() {
    let mut device = expandable();
    let _first = device.allocate(0, 20 * MIB);
    let hole = device.allocate(0, 20 * MIB);
    let last = device.allocate(0, 20 * MIB);
    device.free(hole, 1);
    device.run(&mut empty_cache());
    device.check();

    // A request for 8 MiB is served by mapping the hole again. Once that is done, and before the block is handed out,
    // the block behind the hole is freed.
    let mut plan = device.plan(0, 8 * MIB);
    device.past(&mut plan, is_pages);
    device.free_unchecked(last, 1);
    let served = device.finish(&mut plan, 0);
    assert!(served.is_some_and(|held| held.offset == hole.offset), "{served:?}");
}

/// Neighbours are freed while addresses are being mapped, and then the mapping fails. Everything is then as if it had
/// never been tried.
#[test]
fn nothing_is_lost_when_mapping_fails_beside_a_freed_neighbour() {
    let mut device = expandable();
    let first = device.allocate(0, 20 * MIB);
    let hole = device.allocate(0, 20 * MIB);
    let last = device.allocate(0, 20 * MIB);
    device.free(hole, 1);
    device.run(&mut empty_cache());

    let mut plan = device.plan(0, 30 * MIB);
    let step = device.next(&mut plan);
    assert!(is_pages(&step), "{step:?}");
    device.free_unchecked(first, 1);
    device.free_unchecked(last, 1);
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: false });
    device.check();
    assert_eq!(device.reserved(), 40 * MIB);
}

/// Garbage collection chooses a segment, and another thread takes it before it is claimed: it is no longer garbage. The
/// thread may take it between any two looks of the plan at the shard.
#[test]
fn garbage_is_taken_by_another_thread_between_two_looks() {
    for looks in 0..6 {
        let settings = Settings { gc_threshold: 0.01, ..Settings::default() };
        let mut device = alone(settings);
        device.use_until(0, 64 * MIB, 1);
        let mut plan = device.plan(0, 128 * MIB);
        let again = device.want(64 * MIB);
        let mut taken = None;
        let mut take =
            |shards: &mut Vec<Shard>| taken = shards[0].allocate(&again, 0, Requester::in_order(StreamId(0)));
        let step = device.next_meddled(&mut plan, &mut { looks }, &mut take);
        match (&step, taken) {
            (Step::Reserve { .. }, Some(_)) | (Step::Wait(_) | Step::Release { .. }, None) => {}
            other => panic!("after {looks} looks: {other:?}"),
        }
    }
}
