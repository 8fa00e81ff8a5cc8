//! Snapshots: they tile what is reserved, agree with the statistics, and say what is known of the blocks.

use millpond::history::Recording;
use millpond::snapshot::{SegmentKind, Snapshot};
use millpond::{Allocator, BlockState, Buffer, Side, with_tag};
use millpond_sim::Sim;
use millpond_trace::Random;

const MIB: u64 = 1 << 20;

/// Checks that blocks tile their segments, that the sums are those of the statistics, and that addresses are in order.
fn check(allocator: &Allocator<Sim>) -> Snapshot {
    let (snapshot, stats) = (allocator.snapshot(), allocator.stats());
    for segment in &snapshot.segments {
        let mut end = segment.offset;
        for block in &segment.blocks {
            assert_eq!(block.offset, end, "{segment:?}");
            assert_eq!(block.address, segment.address.map(|base| base + block.offset - segment.offset));
            assert_ne!(block.state, BlockState::Unmapped);
            end += block.size;
        }
        assert_eq!(end - segment.offset, segment.total_size);
    }
    let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
    assert_eq!((reserved, snapshot.reserved_bytes), (allocator.memory_reserved(), allocator.memory_reserved()));
    assert_eq!(snapshot.allocated_bytes(), stats.allocated_bytes.all.current);
    assert_eq!(snapshot.active_bytes(), stats.active_bytes.all.current);
    let requested: u64 = snapshot.segments.iter().map(|segment| segment.requested_size).sum();
    assert_eq!(requested, stats.requested_bytes.all.current);
    snapshot
}

#[test]
fn blocks_tile_what_is_reserved_under_every_policy() {
    for (seed, conf) in
        [(1, "policy:classic"), (2, "policy:paged"), (3, "policy:direct"), (4, "expandable_segments:True")]
    {
        let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
        allocator.record_history(Recording::all(50));
        let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
        let (mut random, mut held): (_, Vec<Buffer<Sim>>) = (Random::new(seed), Vec::new());
        for step in 0..300 {
            let stream = &streams[random.below(2) as usize];
            held.push(with_tag("held", || stream.allocate(1 + random.below(6 * MIB))).unwrap());
            if held.len() > 20 {
                drop(held.swap_remove(random.below(20) as usize));
            }
            if step % 20 != 0 {
                continue;
            }
            let snapshot = check(&allocator);
            let blocks = || snapshot.segments.iter().flat_map(|segment| &segment.blocks);
            for buffer in &held {
                let it = blocks().find(|b| b.address == buffer.address() && b.state == BlockState::ActiveAllocated);
                let it = it.unwrap_or_else(|| panic!("{conf}: {buffer:?} is nowhere"));
                assert_eq!((it.size, it.requested_size), (buffer.capacity(), buffer.len()), "{conf}");
                assert_eq!((it.tag.as_deref(), it.stream), (Some("held"), Some(buffer.stream())), "{conf}");
                assert_eq!(it.site.unwrap().file(), file!(), "{conf}");
            }
            let active = blocks().filter(|block| block.state == BlockState::ActiveAllocated).count();
            assert_eq!(active, held.len());
            assert!(blocks().all(|block| block.state != BlockState::Inactive || block.tag.is_none()));
        }
    }
}

#[test]
fn it_names_the_kinds_of_memory_the_settings_and_what_is_ignored() {
    let conf = "policy:classic,max_split_size_mb:64,release_lock_on_cudamalloc:True";
    let allocator = Allocator::builder(Sim::new()).conf(conf).device(3).limit(1 << 30).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    let held = [stream.allocate(100).unwrap(), stream.allocate(30 * MIB).unwrap()];
    let snapshot = check(&allocator);
    assert_eq!((snapshot.device, snapshot.limit_bytes), (3, Some(1 << 30)));
    assert_eq!(
        (snapshot.conf.as_str(), &snapshot.settings),
        ("policy:classic,max_split_size_mb:64", &allocator.settings())
    );
    assert_eq!(snapshot.ignored, ["release_lock_on_cudamalloc"]);
    let sides: Vec<_> = snapshot.segments.iter().map(|segment| (segment.side, segment.kind)).collect();
    assert_eq!(sides, [(Side::Small, SegmentKind::Plain), (Side::Large, SegmentKind::Plain)]);
    let states: Vec<_> = snapshot.segments[0].blocks.iter().map(|block| block.state.name()).collect();
    assert_eq!(states, ["active_allocated", "inactive"]);
    let first = &snapshot.segments[0].blocks[0];
    assert_eq!((first.requested_size, &first.tag, first.site), (100, &None, None), "nothing is noted");
    drop(held);
}

#[test]
fn memory_in_a_window_is_counted_there_and_not_at_home() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:paged,slack:0.01,growth:tight").build().unwrap();
    let stream = allocator.create_stream().unwrap();
    let blocks: Vec<_> = (0..40).map(|_| stream.allocate(3 * MIB).unwrap()).collect();
    let kept: Vec<_> = blocks.into_iter().enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, block)| block).collect();
    let gathered = stream.allocate(15 * MIB).unwrap();
    let snapshot = check(&allocator);
    let windows: Vec<_> = snapshot.segments.iter().filter(|segment| segment.kind == SegmentKind::Window).collect();
    assert_eq!(windows.len(), 1);
    assert_eq!((windows[0].allocated_size, windows[0].address), (15 * MIB, gathered.address()));
    assert!(snapshot.segments.iter().filter(|segment| segment.kind == SegmentKind::Pages).count() > 1);
    drop((kept, gathered));
    assert!(check(&allocator).segments.iter().all(|segment| segment.kind == SegmentKind::Pages));
}
