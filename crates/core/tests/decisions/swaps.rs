//! A free that is put off, and a block that is freed and handed out again: any other operation ends the short path.

use millpond_core::Step;
use millpond_core::settings::{Growth, Settings};

use crate::driver::{Device, Facts, Held, MIB};

/// Returns an allocator of one stream, none of whose plans does more than take segments and give them back.
fn alone() -> Device {
    let mut device = Device::of(&Facts { pages: None, ..Facts::new(Settings::default(), 1) });
    device.gpu.answers = |step| match step {
        Step::Reserve { .. } | Step::Wait(_) | Step::Release { .. } => None,
        other => panic!("{other:?}"),
    };
    device
}

fn hit(device: &mut Device, mib: u64) -> Held {
    device.hit(0, mib * MIB).expect("a block")
}

/// Frees two blocks and allocates them again, so that no peak rises when that happens once more.
fn warm(device: &mut Device, blocks: [(Held, u64); 2]) -> [Held; 2] {
    blocks.iter().for_each(|(held, _)| device.free_unchecked(*held, 1));
    blocks.map(|(held, mib)| {
        let again = hit(device, mib);
        assert_eq!(again.offset, held.offset);
        again
    })
}

/// Frees a block and allocates it again: from then on it is the block to swap.
fn swap(device: &mut Device, held: &Held, mib: u64) {
    device.free_unchecked(*held, 1);
    assert_eq!(hit(device, mib).block, held.block);
}

/// The search would find the block together with the free one before it.
#[test]
fn a_block_beside_a_free_one_is_joined_with_it() {
    let mut device = alone();
    let low = device.allocate(0, 2 * MIB);
    let (block, _behind) = (hit(&mut device, 4), hit(&mut device, 2));
    let [low, block] = warm(&mut device, [(low, 2), (block, 4)]);
    device.free_unchecked(low, 1);
    device.free_unchecked(block, 1);
    assert_eq!(hit(&mut device, 4).offset, 0);
    device.shards[0].tidied().check();
}

/// The search would find another block, which fits better than this one joined with the free memory behind it.
#[test]
fn a_block_that_fits_better_is_handed_out_instead() {
    let mut device = alone();
    let better = device.allocate(0, 4 * MIB);
    let (_between, block) = (hit(&mut device, 2), hit(&mut device, 4));
    let [better, block] = warm(&mut device, [(better, 4), (block, 4)]);
    device.free_unchecked(better, 1);
    device.free_unchecked(block, 1);
    assert_eq!(hit(&mut device, 4).offset, better.offset);
    device.shards[0].tidied().check();
}

/// Both frees are put off, one after the other, without a look at the shard between them.
#[test]
fn a_free_of_another_block_ends_a_swap() {
    let mut device = alone();
    let first = device.allocate(0, 4 * MIB);
    let second = hit(&mut device, 6);
    let [first, second] = warm(&mut device, [(first, 4), (second, 6)]);
    swap(&mut device, &first, 4);
    device.free_unchecked(second, 1);
    device.free_unchecked(first, 1);
    device.shards[0].tidied().check();
    assert_eq!(hit(&mut device, 20).offset, 0);
}

/// A plan takes the memory behind the block, so its free changes other counters from then on.
#[test]
fn a_look_at_the_shard_ends_a_swap() {
    let mut device = alone();
    let first = device.allocate(0, 4 * MIB);
    swap(&mut device, &first, 4);
    // The first free raised a peak, and was not put off.
    swap(&mut device, &first, 4);
    let rest = device.allocate(0, 16 * MIB);
    assert_eq!((rest.slot, rest.offset), (first.slot, 4 * MIB));
    let risen = |device: &mut Device| device.stats().inactive_split_bytes.all.allocated;
    let before = risen(&mut device);
    device.free_unchecked(first, 1);
    assert_eq!(hit(&mut device, 4).block, first.block);
    assert_eq!(risen(&mut device) - before, 4 * MIB);
}

/// Another stream is not ordered after the last use of a block whose free was put off: its own stream alone gets it.
#[test]
fn another_stream_does_not_get_a_block_whose_free_was_put_off() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let held = device.allocate(0, 4 * MIB);
    device.free_unchecked(held, 149);
    let held = hit(&mut device, 4);
    for _ in 0..2 {
        device.free_unchecked(held, 150);
        assert_eq!(device.hit(1, 4 * MIB), None);
        assert_eq!(hit(&mut device, 4).offset, held.offset);
    }
}
