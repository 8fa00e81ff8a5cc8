//! What windows show of memory that may hold the data of another user, and what comes home of it.

use millpond_core::settings::{Growth, Policy, Scrub, Settings};

use crate::driver::{Device, Facts, Held, MIB, gaps_on};

/// A device that overwrites what other streams left, with 6, 2 and 6 MiB of one stream, of which the first and the last
/// are free. All of it is as it came from the driver.
fn scene(shard: usize) -> (Device, Vec<Held>) {
    let settings = Settings { policy: Policy::paged(Growth::Tight), scrub: Scrub::OtherStreams, ..Settings::default() };
    let device = Device::of(&Facts { limit: Some(14 * MIB), ..Facts::new(settings, 3) });
    gaps_on(device, shard, &[6, 2, 6])
}

impl Device {
    /// Returns the parts of a block that must be overwritten, from one MiB of it to another, in order.
    fn to_scrub(&self, held: &Held) -> Vec<(u64, u64)> {
        let grant = &held.grant;
        let shard = &self.shards[held.shard];
        let parts = shard.to_scrub(shard.extent(grant.block), shard.user_of(grant.block));
        let mut parts: Vec<_> = parts
            .iter()
            .map(|part| part.offset - grant.offset..part.offset + part.bytes - grant.offset)
            .map(|part| (part.start / MIB, part.end / MIB))
            .collect();
        parts.sort_unstable();
        parts
    }

    /// Notes that a block was overwritten.
    fn scrubbed(&mut self, held: &Held) {
        let (grant, shard) = (&held.grant, &mut self.shards[held.shard]);
        let stream = shard.user_of(grant.block);
        shard.scrubbed(shard.extent(grant.block), stream);
    }

    /// Has each of these MiB at home overwritten for the stream itself, and frees them again.
    fn clean(&mut self, shard: usize, mib: &[u64]) {
        let held: Vec<_> = mib.iter().map(|mib| self.hit(shard, mib * MIB).expect("it is free")).collect();
        held.iter().for_each(|held| self.scrubbed(held));
        held.into_iter().for_each(|held| self.free(held, 1));
    }
}

/// What was not overwritten in a window may hold the data of another user still when it has come home.
#[test]
fn memory_comes_home_as_the_window_has_left_it() {
    for overwrites in [false, true] {
        let (mut device, between) = scene(0);
        let window = device.allocate(0, 12 * MIB);
        assert_ne!(window.slot, between[0].slot);
        assert_eq!(device.to_scrub(&window), [(0, 12)]);
        if overwrites {
            device.scrubbed(&window);
        }
        device.free(window, 2);
        let home = [6, 6].map(|mib| device.hit(0, mib * MIB).expect("it has come home"));
        let expected = if overwrites { vec![] } else { vec![(0, 6)] };
        assert_eq!(home.map(|held| device.to_scrub(&held)), [expected.clone(), expected]);
        assert_eq!(device.to_scrub(&between[0]), [(0, 2)], "what is between them");
    }
}

/// A window shows what is foreign at home, at the place where that is in it, each time that it is used.
#[test]
fn a_window_shows_what_is_foreign_at_home() {
    let (mut device, _) = scene(0);
    device.clean(0, &[6, 6]);
    let clean = device.allocate(0, 12 * MIB);
    assert_eq!(device.to_scrub(&clean), []);
    device.free(clean, 2);
    for foreign in [0, 1] {
        // Another stream uses one of the two gaps, and leaves its data there.
        let mut held = [6, 6].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
        held.sort_by_key(|held| held.offset);
        device.free(held[foreign], 3);
        let other = device.allocate(1, 6 * MIB);
        assert_eq!(other.offset, held[foreign].offset);
        device.scrubbed(&other);
        device.free(other, 3);
        device.free(held[1 - foreign], 3);
        let window = device.allocate_at_no_cost(0, 12 * MIB);
        let at = 6 * foreign as u64;
        assert_eq!(device.to_scrub(&window), [(at, at + 6)], "gap {foreign}");
        device.scrubbed(&window);
        device.free(window, 4);
    }
}

/// All that a window has of another stream's memory is foreign, and foreign to that stream when it is home again.
#[test]
fn memory_of_another_stream_is_foreign_on_both_ways() {
    let (mut device, _) = scene(1);
    device.clean(1, &[6, 6]);
    let window = device.allocate(0, 12 * MIB);
    assert_eq!((window.shard, device.to_scrub(&window)), (0, vec![(0, 12)]));
    device.scrubbed(&window);
    device.free(window, 2);
    let home = device.hit(1, 6 * MIB).expect("it has come home");
    assert_eq!(device.to_scrub(&home), [(0, 6)]);
}

/// A window shows what its memory is now, and not what it was when it was used last.
#[test]
fn a_window_forgets_what_was_foreign_in_it() {
    let (mut device, _) = scene(0);
    let window = device.allocate(0, 12 * MIB);
    assert_eq!(device.to_scrub(&window), [(0, 12)]);
    device.free(window, 2);
    device.clean(0, &[6, 6]);
    let again = device.allocate_at_no_cost(0, 12 * MIB);
    assert_eq!((again.offset, device.to_scrub(&again)), (window.offset, vec![]));
}

/// The blocks of two streams are one free block, and the first stream gets its own part of it again. What the other one
/// left behind that part is foreign to it still when the whole is free again, and what it left itself to the other.
#[test]
fn what_another_stream_left_in_a_joined_block_is_foreign() {
    for stream in [0, 1] {
        let settings =
            Settings { policy: Policy::paged(Growth::Tight), scrub: Scrub::OtherStreams, ..Settings::default() };
        let mut device = Device::of(&Facts { limit: Some(12 * MIB), ..Facts::new(settings, 3) });
        let blocks = [0, 1].map(|stream| device.allocate(stream, 6 * MIB));
        blocks.iter().for_each(|held| device.scrubbed(held));
        blocks.into_iter().for_each(|held| device.free(held, 1));
        device.poll();
        let again = device.hit(0, 6 * MIB).expect("its own part");
        device.scrubbed(&again);
        device.free(again, 2);
        device.poll();
        let whole = device.hit(stream, 12 * MIB).expect("all of it is free");
        let parts = device.to_scrub(&whole);
        assert_eq!(parts, if stream == 0 { [(6, 12)] } else { [(0, 6)] }, "stream {stream}");
    }
}
