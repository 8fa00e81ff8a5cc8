//! Tests that the hit path takes one lane's lock and no other, by keeping the others locked.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_sim::Sim;

use crate::allocator::Allocator;
use crate::buffer::Buffer;
use crate::state::Lane;
use crate::stream::Stream;

const THREADS: usize = 8;
const ROUNDS: usize = 2000;
/// More time than the hits need on the slowest machine. Only a thread that waits for a lock needs longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The sizes of the blocks that are live at once, in bytes.
/// Whole pages of large ones leave little unused, so that each stream gets memory of its own.
const SIZES: [u64; 4] = [512, 70_000, 1 << 20, 4 << 20];

/// Allocates a block of each size.
fn blocks(stream: &Stream<Sim>) -> [Buffer<Sim>; SIZES.len()] {
    SIZES.map(|bytes| stream.allocate(bytes).unwrap_or_else(|error| panic!("{error}")))
}

/// Under `paged` the streams of a pool have their memory together, and its lock. So each has a pool of its own there.
#[test]
fn eight_threads_on_eight_streams_meet_in_no_lock() {
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Balanced)] {
        let settings = Settings { policy, ..Settings::default() };
        let allocator = Allocator::builder(Sim::new()).settings(settings).build().unwrap_or_else(|e| panic!("{e}"));
        let streams: Vec<_> =
            (0..THREADS).map(|_| allocator.create_stream().unwrap_or_else(|error| panic!("{error}"))).collect();
        let pools: Vec<_> = if policy.moves_pages() {
            streams.iter().map(|_| allocator.create_pool().unwrap_or_else(|error| panic!("{error}"))).collect()
        } else {
            Vec::new()
        };
        let inside = |(at, stream): (usize, Stream<Sim>)| match pools.get(at) {
            Some(pool) => pool.stream(stream.id()).unwrap_or_else(|error| panic!("{error}")),
            None => stream,
        };
        let streams: Vec<_> = streams.into_iter().enumerate().map(inside).collect();
        // All blocks are live at once, so that no stream's memory is granted to another.
        drop(streams.iter().map(blocks).collect::<Vec<_>>());
        let before = allocator.driver_activity();

        let one = streams[0].clone();
        let state = one.lane().owner();
        let coordinator = state.coordinator.lock();
        let pages = state.pages.lock();
        let (sender, ended) = mpsc::channel();
        let hits: Vec<_> = streams
            .into_iter()
            .map(|stream| {
                let sender = sender.clone();
                thread::spawn(move || {
                    (0..ROUNDS).for_each(|_| drop(blocks(&stream)));
                    // The locks are held until this has arrived. The handle is dropped afterwards.
                    let _ = sender.send(stream);
                })
            })
            .collect();
        let arrived: Vec<_> = (0..THREADS).map_while(|_| ended.recv_timeout(PATIENCE).ok()).collect();
        drop((pages, coordinator));
        assert_eq!(arrived.len(), THREADS, "{policy:?}: threads waited for a lock that all streams share");
        hits.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "a thread failed"));

        assert_eq!(allocator.driver_activity().since(before).calls, 0, "{policy:?}: these were hits");
        let grants = (THREADS * SIZES.len() * (ROUNDS + 1)) as u64;
        assert_eq!(allocator.stats().allocation.all.allocated, grants, "{policy:?}");
        allocator.check();
    }
}

/// A program may ask often, and from a thread that has nothing to do with those that allocate.
#[test]
fn the_bytes_in_buffers_are_read_without_a_lock() {
    let allocator = Allocator::new(Sim::new());
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap_or_else(|error| panic!("{error}")));
    let buffers = streams.each_ref().map(blocks);
    let bytes: u64 = buffers.iter().flatten().map(Buffer::capacity).sum();
    let state = streams[0].lane().owner();
    let lanes: Vec<_> = state.lanes().map(Lane::lock).collect();
    let locks = (state.coordinator.lock(), state.pages.lock(), lanes);
    let (sender, read) = mpsc::channel();
    let other = allocator.clone();
    let reader = thread::spawn(move || sender.send((other.memory_allocated(), other)).is_ok());
    let read = read.recv_timeout(PATIENCE);
    drop(locks);
    assert_eq!(read.map(|(bytes, _)| bytes), Ok(bytes));
    assert!(reader.join().is_ok_and(|sent| sent), "the thread that reads failed");
    drop(buffers);
    assert_eq!(allocator.memory_allocated(), 0);
}
