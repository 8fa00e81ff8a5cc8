//! What a buffer reports about the earlier uses of its memory.

use millpond::{Allocator, Buffer, Readiness, Stream};
use millpond_backend::{Backend as _, Closing, StreamId, Transfer as _};
use millpond_sim::{Completion, Sim};

const MIB: u64 = 1 << 20;

/// A device that keeps what is written, with another stream beside the one that has used all of its memory through a
/// block of 16 MiB.
struct Scene {
    sim: Sim,
    allocator: Allocator<Sim>,
    other: Stream<Sim>,
}

fn scene(conf: &str) -> Scene {
    let sim = Sim::builder().build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).limit(16 * MIB).build().unwrap();
    let [user, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
    let block = user.allocate(16 * MIB).unwrap();
    assert_eq!(block.readiness(), Readiness::Fresh);
    sim.fill(user.id(), block.segment().unwrap(), block.offset(), 16 * MIB, 0xAB).unwrap();
    drop(block);
    Scene { sim, allocator, other }
}

/// Returns the first byte of a buffer.
fn first_byte(sim: &Sim, stream: StreamId, buffer: &Buffer<Sim>) -> u8 {
    let mut byte = [0];
    sim.download(stream, buffer.segment().unwrap(), buffer.offset(), &mut byte).unwrap();
    byte[0]
}

/// Memory that another stream has used is gathered for a request, and the rest of them serves the next requests.
#[test]
fn what_is_left_of_pages_that_were_used_is_not_fresh() {
    let Scene { sim, allocator, other } = scene("policy:paged,growth:tight");
    let first = other.allocate(5 * MIB / 2).unwrap();
    let second = other.allocate(5 * MIB / 4).unwrap();
    assert_eq!(allocator.memory_reserved(), 16 * MIB, "no page was created");
    for buffer in [&second, &first] {
        assert_eq!(first_byte(&sim, other.id(), buffer), 0xAB);
        assert_eq!(buffer.readiness(), Readiness::Complete);
    }
}

/// The same holds where a page has one place at a time, and is unmapped before it is mapped again.
#[test]
fn nor_where_pages_are_unmapped_before_they_move() {
    let pages = millpond_backend::PageCaps::new(2 * MIB).with_aliasing(false);
    let sim = Sim::builder().pages(Some(pages)).build();
    let conf = "policy:paged,growth:tight";
    let allocator = Allocator::builder(sim.clone()).conf(conf).limit(16 * MIB).build().unwrap();
    let [user, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
    let block = user.allocate(16 * MIB).unwrap();
    sim.fill(user.id(), block.segment().unwrap(), block.offset(), 16 * MIB, 0xAB).unwrap();
    drop(block);
    let buffers = [5 * MIB / 2, 5 * MIB / 4].map(|bytes| other.allocate(bytes).unwrap());
    for buffer in buffers.iter().rev() {
        assert_eq!((first_byte(&sim, other.id(), buffer), buffer.readiness()), (0xAB, Readiness::Complete));
    }
}

/// A call fails after some pages of a window were mapped: the part that is there serves a shorter request.
#[test]
fn memory_gathered_for_a_request_that_failed_is_not_fresh() {
    use millpond_backend::Fault;
    for nth in 2..=5 {
        let Scene { sim, allocator, other } = scene("policy:paged,growth:tight");
        // A block in the middle leaves two free parts, neither of which is long enough.
        let user = allocator.stream(StreamId(0)).unwrap();
        let held = [6, 4].map(|mib| user.allocate(mib * MIB).unwrap());
        let [first, middle] = held;
        drop(first);
        sim.fail(millpond_sim::CallKind::Map, nth, Fault::Other);
        let failed = other.allocate(12 * MIB);
        assert!(failed.is_err(), "call {nth}");
        let next = other.allocate(10 * MIB).unwrap();
        drop(middle);
        assert_eq!(first_byte(&sim, other.id(), &next), 0xAB);
        assert_eq!(next.readiness(), Readiness::Complete, "after call {nth} failed");
    }
}

/// Memory that no block has had is fresh, even where memory that was used lies beside it.
#[test]
fn new_memory_is_fresh() {
    for conf in ["policy:classic", "policy:classic,expandable_segments:True", "policy:paged", "policy:direct"] {
        let sim = Sim::builder().build();
        let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
        let stream = allocator.create_stream().unwrap();
        let first = stream.allocate(3 * MIB).unwrap();
        assert_eq!(first.readiness(), Readiness::Fresh, "{conf}");
        let second = stream.allocate(30 * MIB).unwrap();
        assert_eq!(second.readiness(), Readiness::Fresh, "{conf}");
        drop((first, second));
        assert!(sim.reached(stream.id()).is_ok());
    }
}

/// Of a free block the front is used by work that was not submitted, which no stream can wait for, and the rest by work
/// that was.
#[test]
fn the_part_of_a_free_block_that_can_be_waited_for_serves_where_it_lies() {
    let sim = Sim::builder().closing(Closing::Submit).completion(Completion::Manual).build();
    let allocator = Allocator::builder(sim.clone()).conf("policy:paged,growth:tight").build().unwrap();
    let [home, recorded, submitted] = [(); 3].map(|()| allocator.create_stream().unwrap());
    let blocks = [8, 32].map(|mib| home.allocate(mib * MIB).unwrap());
    for (block, user) in blocks.iter().zip([&recorded, &submitted]) {
        block.record_stream(user).unwrap();
        sim.fill(user.id(), block.segment().unwrap(), block.offset(), 64, 1).unwrap();
    }
    let place = |buffer: &Buffer<Sim>| (buffer.segment_id(), buffer.offset());
    let second = place(&blocks[1]);
    drop(blocks);
    for stream in [&home, &submitted] {
        sim.submit(stream.id()).unwrap();
    }
    let again = home.allocate(24 * MIB).unwrap();
    assert_eq!((place(&again), allocator.memory_reserved()), (second, 40 * MIB));
    assert_eq!(sim.violations(), []);
}

/// More streams are behind than a request asks. It waits for none whose work may not have been submitted: the
/// application may submit the requesting stream alone.
#[test]
fn a_stream_waits_for_no_work_that_may_not_have_been_submitted() {
    for count in [4, 9, 20] {
        let sim = Sim::builder().closing(Closing::Submit).build();
        let allocator = Allocator::builder(sim.clone()).conf("policy:paged,growth:tight").build().unwrap();
        let streams: Vec<_> = (0..count).map(|_| allocator.create_stream().unwrap()).collect();
        for stream in &streams {
            let block = stream.allocate(4 * MIB).unwrap();
            sim.fill(stream.id(), block.segment().unwrap(), block.offset(), 4 * MIB, 1).unwrap();
        }
        let all = streams[0].allocate(count * 4 * MIB).unwrap();
        sim.submit(streams[0].id()).unwrap();
        assert!(streams[0].synchronize().is_ok(), "{count} streams");
        drop(all);
        assert_eq!(sim.violations(), []);
    }
}

/// A request asks few streams that are behind. Those that are done it asks all, so that it waits for none of them.
#[test]
fn a_miss_asks_until_a_few_streams_are_behind() {
    for is_done in [false, true] {
        let sim = Sim::builder().completion(Completion::Manual).build();
        let allocator = Allocator::builder(sim.clone()).conf("policy:paged,growth:tight").build().unwrap();
        let streams: Vec<_> = (0..21).map(|_| allocator.create_stream().unwrap()).collect();
        let fill = |stream: &Stream<Sim>| {
            let block = stream.allocate(4 * MIB).unwrap();
            sim.fill(stream.id(), block.segment().unwrap(), block.offset(), 4 * MIB, 1).unwrap();
            block
        };
        drop(streams[1..].iter().map(fill).collect::<Vec<_>>());
        if is_done {
            sim.complete_all();
        }
        let before = sim.calls();
        let all = streams[0].allocate(80 * MIB).unwrap();
        let after = sim.calls();
        let (asked, waits) = (after.reached - before.reached, after.stream_wait - before.stream_wait);
        assert_eq!((asked, waits), if is_done { (20, 0) } else { (8, 20) });
        assert_eq!(allocator.memory_reserved(), 80 * MIB);
        drop(all);
    }
}

/// What `prepare` frees is looked for, although the request has missed before that.
#[test]
fn what_is_freed_while_a_request_is_prepared_serves_it() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").build().unwrap();
    let [stream, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
    let first = stream.allocate(30 << 20).unwrap();
    first.record_stream(&other).unwrap();
    let reserved = allocator.memory_reserved();
    let again = stream.allocate_prepared(30 << 20, || {
        drop(first);
        Ok(())
    });
    let _again = again.expect("it is free");
    assert_eq!(allocator.memory_reserved(), reserved, "a segment was taken");
}
