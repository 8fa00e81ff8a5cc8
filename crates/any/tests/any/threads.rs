//! Threads.

use std::sync::mpsc;
use std::thread;

use millpond_any::{
    AnyAllocator, AnyBuffer, AnyBuilder, AnyDevice, AnyError, AnyPinned, AnyPinnedBuffer, AnyStream, Best, OpenedBest,
};

use crate::two_streams;

#[test]
fn everything_may_be_sent_and_shared() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<(AnyAllocator, AnyStream, AnyBuffer, AnyDevice, AnyBuilder)>();
    is_shared::<(AnyPinned, AnyPinnedBuffer, AnyError, Best, OpenedBest)>();
}

#[test]
fn threads_allocate_on_streams_of_their_own_and_free_for_each_other() {
    let (sim, allocator, streams) = two_streams();
    let (sender, receiver) = mpsc::channel::<AnyBuffer>();
    thread::scope(|scope| {
        for stream in &streams {
            let sender = sender.clone();
            scope.spawn(move || {
                for step in 0..2000 {
                    let buffer = stream.allocate(1 + step * 977 % (3 << 20)).unwrap();
                    if step % 3 == 0 {
                        sender.send(buffer).unwrap();
                    }
                }
            });
        }
        drop(sender);
        scope.spawn(move || receiver.into_iter().for_each(drop));
    });
    assert_eq!(allocator.memory_allocated(), 0);
    allocator.check();
    allocator.empty_cache().unwrap();
    assert_eq!(sim.held_bytes(), 0);
}

#[test]
fn the_last_buffer_keeps_what_it_needs() {
    let (sim, allocator, streams) = two_streams();
    let buffer = streams[0].allocate(1000).unwrap();
    drop((allocator, streams));
    assert!(sim.held_bytes() > 0);
    thread::spawn(move || drop(buffer)).join().unwrap();
    assert_eq!(sim.held_bytes(), 0);
}

#[test]
fn what_is_returned_is_small() {
    assert!(size_of::<AnyError>() <= 96, "{}", size_of::<AnyError>());
    let typed = size_of::<millpond_any::millpond::Buffer<millpond_any::millpond_sim::Sim>>();
    assert!(size_of::<AnyBuffer>() <= typed + 8, "{} and {typed}", size_of::<AnyBuffer>());
}
