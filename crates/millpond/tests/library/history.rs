//! The history: which entries there are, in which order, what is lost, and that it agrees with the statistics.

use millpond::backend::{Closing, Reuse};
use millpond::history::{Action, Entry, History, Recording};
use millpond::live::Tracking;
use millpond::{Allocator, Buffer, PoolId, Stream, tag, with_tag};
use millpond_sim::Sim;
use millpond_trace::Random;

const MIB: u64 = 1 << 20;

fn recording(conf: &str, entries: usize) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
    allocator.record_history(Recording::all(entries));
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

fn names(history: &History) -> Vec<&'static str> {
    history.entries.iter().map(|entry| entry.action.name()).collect()
}

fn of<'a>(history: &'a History, name: &str) -> Vec<&'a Entry> {
    history.entries.iter().filter(|entry| entry.action.name() == name).collect()
}

#[test]
fn a_block_is_told_from_its_segment_to_the_driver_and_back() {
    let (allocator, stream) = recording("policy:classic", 100);
    let buffer = with_tag("layer3", || stream.allocate(3 * MIB)).unwrap();
    let line = line!() - 1;
    let place = (buffer.address(), buffer.segment_id(), buffer.offset());
    allocator.annotate("step 1");
    drop(buffer);
    allocator.empty_cache().unwrap();
    let history = allocator.history();
    assert_eq!(
        names(&history),
        [
            "segment_alloc",
            "alloc",
            "annotate",
            "free_requested",
            "free_completed",
            "empty_cache",
            "point",
            "reached",
            "segment_free"
        ]
    );
    let [reserved, granted, note, requested, completed, .., released] = &history.entries[..] else { unreachable!() };
    for entry in [granted, requested, completed] {
        assert_eq!((entry.address, entry.segment, entry.offset), place);
        assert_eq!((entry.size, entry.requested, entry.stream), (3 * MIB, 3 * MIB, stream.id()));
        assert_eq!((entry.tag.as_deref(), entry.pool), (Some("layer3"), PoolId::DEFAULT));
    }
    assert_eq!(granted.site.unwrap().line(), line);
    assert!(granted.site.unwrap().file().ends_with("library/history.rs") && requested.site.is_none());
    assert_eq!((reserved.size, reserved.address), (20 * MIB, place.0));
    assert_eq!((released.size, released.address, released.segment), (20 * MIB, place.0, place.1));
    assert_eq!(note.action, Action::Annotate("step 1".into()));
    assert!(history.entries.is_sorted_by_key(|entry| entry.time_ns));
    assert!(history.lost == 0 && history.began <= std::time::SystemTime::now());
}

/// Where memory is used again only once work is over, a free is complete when the allocator has seen that.
#[test]
fn a_free_is_complete_when_its_points_are_reached() {
    let sim = Sim::builder().closing(Closing::Submit).reuse(Reuse::AfterDone).build();
    let allocator = Allocator::builder(sim).conf("policy:classic").build().unwrap();
    allocator.record_history(Recording::all(100));
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    for other in [false, true] {
        let buffer = with_tag("waits", || streams[0].allocate(1000)).unwrap();
        let place = (buffer.segment_id(), buffer.offset());
        if other {
            buffer.record_stream(&streams[1]).unwrap();
        }
        drop(buffer);
        allocator.poll().unwrap();
        let history = allocator.history();
        let [requested, completed] = ["free_requested", "free_completed"].map(|name| of(&history, name).len());
        assert_eq!(requested, completed + 1, "it waits");
        assert_eq!(allocator.snapshot().segments[0].active_size, 1024);
        assert_eq!(allocator.snapshot().segments[0].blocks[0].tag.as_deref(), Some("waits"));
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        allocator.poll().unwrap();
        let history = allocator.history();
        let last = of(&history, "free_completed")[completed];
        assert_eq!((last.segment, last.offset, last.requested), (place.0, place.1, 1000));
        assert_eq!(last.tag.as_deref(), Some("waits"));
        assert_eq!(of(&history, "free_requested").len(), completed + 1);
    }
    assert_eq!(of(&allocator.history(), "use")[0].stream, streams[1].id());
}

#[test]
fn memory_that_other_streams_guard_is_free_at_once() {
    let (allocator, stream) = recording("policy:paged", 100);
    let other = allocator.create_stream().unwrap();
    let buffer = stream.allocate(5 * MIB).unwrap();
    buffer.record_stream(&other).unwrap();
    buffer.used_until(other.point()).unwrap();
    drop(buffer);
    let history = allocator.history();
    let last: Vec<_> = names(&history).into_iter().rev().take(4).collect();
    assert_eq!(last, ["free_completed", "free_requested", "until", "point"]);
}

#[test]
fn the_newest_entries_of_all_streams_are_kept_and_the_lost_ones_counted() {
    let (allocator, stream) = recording("policy:classic", 10);
    let other = allocator.create_stream().unwrap();
    for round in 0..50 {
        drop(stream.allocate(512 * (1 + round)).unwrap());
        drop(other.allocate(512).unwrap());
    }
    let history = allocator.history();
    // Two segments, and three entries for each buffer.
    assert_eq!((history.entries.len(), history.lost), (10, 2 + 300 - 10));
    let last = &history.entries[4..7];
    assert!(last.iter().all(|entry| entry.stream == stream.id() && entry.size == 512 * 50), "{last:?}");
    assert!(history.entries[7..].iter().all(|entry| entry.stream == other.id()));
    allocator.record_history(Recording::all(10));
    let anew = allocator.history();
    assert!(anew.entries.is_empty() && anew.lost == 0 && anew.began > history.began, "{anew:?}");
    allocator.record_history(Recording::off());
    drop(stream.allocate(512).unwrap());
    assert_eq!(allocator.history(), History::default());
}

#[test]
fn the_state_alone_has_no_entries() {
    let allocator = Allocator::new(Sim::new());
    allocator.record_history(Recording::state());
    let stream = allocator.create_stream().unwrap();
    let buffer = with_tag("kept", || stream.allocate(1000)).unwrap();
    allocator.annotate("not kept");
    assert_eq!(allocator.history(), History::default());
    assert_eq!(allocator.live().groups()[0].label.as_deref(), Some("kept"));
    assert!(allocator.live().groups()[0].site.is_some());
    // What one of the two still needs stays.
    allocator.track_live(Tracking::Labels);
    allocator.record_history(Recording::off());
    assert_eq!(allocator.live().count(), 1);
    allocator.track_live(Tracking::Off);
    assert!(allocator.live().is_empty());
    drop(buffer);
    allocator.check();
}

#[test]
fn pages_come_and_go_at_home_and_in_windows() {
    let (allocator, stream) = recording("policy:paged,slack:0.01,growth:tight", 10_000);
    let blocks: Vec<_> = (0..40).map(|_| stream.allocate(3 * MIB).unwrap()).collect();
    let kept: Vec<_> = blocks.into_iter().enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, block)| block).collect();
    let held: Vec<_> = (0..3).map(|_| stream.allocate(15 * MIB).unwrap()).collect();
    let moved = allocator.page_stats();
    drop((kept, held));
    let history = allocator.history();
    assert!(moved.moved > 0, "{moved:?}");
    assert_eq!(of(&history, "gather").len() as u64, moved.moved);
    assert_eq!(of(&history, "page_create").len() as u64, moved.created);
    let mapped = of(&history, "segment_map");
    assert_eq!(mapped.iter().map(|entry| entry.size).sum::<u64>(), allocator.memory_reserved());
    assert!(mapped.iter().all(|entry| entry.address.is_some() && entry.segment.is_some()));
    allocator.empty_cache().unwrap();
    let (history, moved) = (allocator.history(), allocator.page_stats());
    assert_eq!(allocator.memory_reserved(), 0);
    let sizes = |name| of(&history, name).iter().map(|entry| entry.size).sum::<u64>();
    assert_eq!(sizes("segment_map"), sizes("segment_unmap"));
    assert_eq!(sizes("page_create"), sizes("page_release"));
    assert_eq!(of(&history, "ungather").len() as u64, moved.unmapped);
    assert!(of(&history, "range_alloc").len() >= 2);
}

#[test]
fn a_refusal_is_told_with_what_was_left() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").limit(64 * MIB).build().unwrap();
    allocator.record_history(Recording::all(100));
    let stream = allocator.create_stream().unwrap();
    let held = stream.allocate(40 * MIB).unwrap();
    let _scope = tag("too much");
    assert!(stream.allocate(30 * MIB - 5).is_err());
    let history = allocator.history();
    let refused = history.entries.last().unwrap();
    assert_eq!(refused.action, Action::OutOfMemory { free_bytes: 24 * MIB });
    assert_eq!((refused.size, refused.requested, refused.stream), (30 * MIB, 30 * MIB - 5, stream.id()));
    assert_eq!((refused.tag.as_deref(), refused.address, refused.offset), (Some("too much"), None, 0));
    drop(held);
}

/// The sums over a history without losses are the statistics, whatever the program does.
#[test]
fn sums_over_the_history_are_the_statistics() {
    for (seed, conf) in
        [(1, "policy:classic"), (2, "policy:paged"), (3, "policy:direct"), (4, "expandable_segments:True")]
    {
        let (allocator, stream) = recording(conf, 100_000);
        let other = allocator.create_stream().unwrap();
        let mut random = Random::new(seed);
        let mut held: Vec<Buffer<Sim>> = Vec::new();
        for _ in 0..400 {
            let on = if random.one_in(3) { &other } else { &stream };
            let buffer = on.allocate(1 + random.below(4 * MIB)).unwrap();
            if random.one_in(8) {
                buffer.record_stream(&stream).unwrap();
            }
            held.push(buffer);
            if held.len() > 25 {
                drop(held.swap_remove(random.below(25) as usize));
            }
        }
        allocator.poll().unwrap();
        let (history, stats) = (allocator.history(), allocator.stats());
        let sum = |name: &str, of: fn(&Entry) -> u64| -> u64 {
            history.entries.iter().filter(|entry| entry.action.name() == name).map(of).sum()
        };
        let size = |name| sum(name, |entry| entry.size);
        let (allocated, active) = (stats.allocated_bytes.all.current, stats.active_bytes.all.current);
        assert_eq!(size("alloc") - size("free_requested"), allocated, "{conf}");
        assert_eq!(size("alloc") - size("free_completed"), active, "{conf}");
        let came = size("segment_alloc") + size("page_create");
        assert_eq!(came - size("segment_free") - size("page_release"), allocator.memory_reserved(), "{conf}");
        assert_eq!(sum("alloc", |_| 1), stats.allocation.all.allocated, "{conf}");
        assert_eq!(history.lost, 0);
    }
}

#[test]
fn threads_record_on_their_own_streams() {
    let (allocator, _) = recording("policy:classic", 100_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = allocator.create_stream().unwrap();
                let _scope = tag("thread");
                (0..1000).for_each(|_| drop(stream.allocate(1000).unwrap()));
            });
        }
        for _ in 0..20 {
            let history = allocator.history();
            assert!(history.entries.is_sorted_by_key(|entry| entry.time_ns) && history.lost == 0);
            let snapshot = allocator.snapshot();
            let count = |name: &str| of(&snapshot.history, name).len() as u64;
            assert!(count("alloc") - count("free_requested") <= 4);
            let live: u64 = 1024 * (count("alloc") - count("free_requested"));
            assert_eq!(snapshot.allocated_bytes(), live, "the history and the blocks are of one moment");
        }
    });
    assert_eq!(of(&allocator.history(), "alloc").len(), 4000);
}

#[test]
fn blocks_from_before_the_recording_are_told_when_they_are_freed() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    let old = stream.allocate(1000).unwrap();
    let place = (old.address(), old.segment_id(), old.offset());
    allocator.record_history(Recording::all(10));
    drop(old);
    let history = allocator.history();
    assert_eq!(names(&history), ["free_requested", "free_completed"]);
    let first = &history.entries[0];
    assert_eq!((first.address, first.segment, first.offset), place);
    assert_eq!((first.size, first.requested, first.stream, first.tag.as_deref()), (1024, 1000, stream.id(), None));
    allocator.check();
}
