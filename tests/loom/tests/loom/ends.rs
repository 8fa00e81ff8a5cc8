//! The end of an allocator, which comes when the last of its handles and buffers is dropped, on whatever thread.

use loom::thread;
use millpond::settings::{Policy, Segments, Settings};

use super::{allocate, explore, paged, stream};

#[test]
fn the_allocator_goes_while_a_buffer_goes_elsewhere() {
    explore(3, Settings::default(), |allocator| {
        let one = stream(&allocator);
        let buffer = allocate(&one, 100);
        drop(one);
        let other = thread::spawn(move || drop(buffer));
        drop(allocator);
        other.join().unwrap();
    });
}

#[test]
fn two_last_buffers_go_at_once() {
    for policy in [Policy::Classic(Segments::Plain), Policy::Direct] {
        explore(3, Settings { policy, ..Settings::default() }, |allocator| {
            let one = stream(&allocator);
            let (a, b) = (allocate(&one, 100), allocate(&one, 100));
            drop((one, allocator));
            let other = thread::spawn(move || drop(a));
            drop(b);
            other.join().unwrap();
        });
    }
}

#[test]
fn two_last_buffers_used_elsewhere_go_at_once() {
    explore(3, Settings::default(), |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let (a, b) = (allocate(&one, 100), allocate(&one, 100));
        a.record_stream(&two).unwrap();
        b.record_stream(&two).unwrap();
        drop((one, two, allocator));
        let other = thread::spawn(move || drop(a));
        drop(b);
        other.join().unwrap();
    });
}

#[test]
fn the_last_buffers_of_two_streams_and_the_last_handle_go_at_once() {
    for policy in [Policy::Classic(Segments::Plain), Policy::Direct] {
        explore(2, Settings { policy, ..Settings::default() }, |allocator| {
            let (one, two) = (stream(&allocator), stream(&allocator));
            let (a, b) = (allocate(&one, 100), allocate(&two, 100));
            drop((one, two));
            let others = [thread::spawn(move || drop(a)), thread::spawn(move || drop(b))];
            drop(allocator);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}

#[test]
fn the_last_buffers_of_a_stream_and_the_last_handle_go_at_once() {
    for settings in [Settings::default(), paged()] {
        explore(2, settings, |allocator| {
            let one = stream(&allocator);
            let (a, b) = (allocate(&one, 100), allocate(&one, 100));
            drop(allocator);
            let others = [thread::spawn(move || drop(a)), thread::spawn(move || drop(b))];
            drop(one);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}

#[test]
fn a_buffer_of_nothing_goes_with_the_last_block_and_the_last_handle() {
    explore(2, Settings::default(), |allocator| {
        let one = stream(&allocator);
        let (nothing, block) = (allocate(&one, 0), allocate(&one, 100));
        drop(one);
        let others = [thread::spawn(move || drop(nothing)), thread::spawn(move || drop(block))];
        drop(allocator);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
