//! The device's peaks, where several threads raise them.

use std::sync::Barrier;
use std::thread;

use millpond::{Allocator, Stream};
use millpond_sim::Sim;

const BYTES: u64 = 1 << 20;

fn raise(stream: &Stream<Sim>, blocks: u64) {
    let held: Vec<_> = (0..blocks).map(|_| stream.allocate(BYTES).unwrap()).collect();
    drop(held);
}

/// PyTorch has one thread run a model forward and another one backward.
#[test]
fn a_peak_is_exact_where_threads_take_over_from_each_other() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    // What follows is served from free memory: a request that is not settles by itself.
    raise(&stream, 100);
    allocator.reset_peak_stats();
    for round in 1..=40 {
        // The first operation of a thread that is short of room does not settle.
        let blocks = 2 * round;
        if round % 2 == 0 {
            raise(&stream, blocks);
        } else {
            thread::scope(|scope| scope.spawn(|| raise(&stream, blocks)).join().unwrap());
        }
        assert_eq!(allocator.max_memory_allocated(), blocks * BYTES, "in round {round}");
    }
}

/// A thread that does not settle leaves room behind, which another one finds before it raises the peak.
#[test]
fn a_peak_does_not_rise_by_what_another_thread_has_freed() {
    let allocator = Allocator::new(Sim::new());
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    let block = |at: usize| streams[at].allocate(BYTES).unwrap();
    // Each stream has memory of its own for what follows.
    drop([(); 3].map(|()| [block(0), block(1)]));
    allocator.reset_peak_stats();
    let [first, second] = [(); 2].map(|()| block(0));
    drop(second);
    // The second stream takes all the room that the first one has.
    let mut held = vec![block(1)];
    thread::scope(|scope| scope.spawn(|| drop(first)).join().unwrap());
    held.extend([(); 2].map(|()| block(1)));
    drop(held);
    assert_eq!(allocator.max_memory_allocated(), 3 * BYTES);
}

/// What several threads have raised at once is in the peak when it is asked for, if it is still there.
#[test]
fn a_peak_has_all_that_is_there() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 2_000;
    let allocator = Allocator::new(Sim::new());
    let (begin, end) = (Barrier::new(THREADS as usize), Barrier::new(THREADS as usize + 1));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let stream = allocator.create_stream().unwrap();
            let (begin, end) = (&begin, &end);
            scope.spawn(move || {
                begin.wait();
                let held: Vec<_> = (0..BLOCKS).map(|_| stream.allocate(BYTES).unwrap()).collect();
                end.wait();
                end.wait();
                drop(held);
            });
        }
        end.wait();
        let peak = allocator.max_memory_allocated();
        end.wait();
        assert_eq!(peak, THREADS * BLOCKS * BYTES);
    });
}
