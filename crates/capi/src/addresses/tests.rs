use std::collections::BTreeMap;

use millpond_trace::Random;

use super::*;

/// The bytes of device memory that a leaf stands for.
const LEAF_BYTES: u64 = 1 << LEAF_SHIFT;

fn number(bits: u64) -> RawBuffer {
    RawBuffer::from_bits(NonZeroU64::new(bits).expect("not 0"))
}

fn put(addresses: &Addresses, address: u64, bits: u64) {
    addresses.entry(address).expect("a place").put(number(bits));
}

#[test]
fn a_block_is_found_at_its_address_and_nowhere_else() {
    let addresses = Addresses::new();
    let ends = [GRAIN, LEAF_BYTES - GRAIN, LEAF_BYTES, 1 << MIDDLE_SHIFT, (1 << END_SHIFT) - GRAIN];
    for (address, bits) in ends.into_iter().zip(1..) {
        assert_eq!(addresses.get(address), None);
        put(&addresses, address, bits);
    }
    for (address, bits) in ends.into_iter().zip(1..) {
        assert_eq!(addresses.get(address), Some(number(bits)), "{address:#x}");
        for beside in [address + 1, address - 1, address + GRAIN / 2, address + 7 * GRAIN] {
            assert_eq!(addresses.get(beside), None, "{beside:#x}");
            assert_eq!(addresses.take(beside), None, "{beside:#x}");
        }
        assert_eq!(addresses.take(address), Some(number(bits)));
        assert_eq!((addresses.take(address), addresses.get(address)), (None, None));
    }
}

#[test]
fn what_the_tree_has_no_place_for_is_told() {
    let addresses = Addresses::new();
    for address in [1, GRAIN - 1, GRAIN + 256, 1 << END_SHIFT, u64::MAX, !(GRAIN - 1)] {
        assert!(addresses.entry(address).is_none(), "{address:#x}");
        assert_eq!((addresses.get(address), addresses.take(address)), (None, None), "{address:#x}");
    }
}

/// The addresses lie in clusters: many within a leaf, in neighbouring leaves, and far from each other.
fn some_address(random: &mut Random) -> u64 {
    let clusters =
        [0x7_0000_0000, 0x7_0000_0000 + 3 * LEAF_BYTES, 0x7F12_3400_0000, 1 << 45, (1 << MIDDLE_SHIFT) - GRAIN];
    clusters[random.below(5) as usize] + GRAIN * random.below(64)
}

#[test]
fn the_tree_agrees_with_a_map() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (mut addresses, mut map) = (Addresses::new(), BTreeMap::new());
        for bits in 1..2000 {
            let address = some_address(&mut random);
            match random.below(4) {
                0 | 1 if !map.contains_key(&address) => {
                    put(&addresses, address, bits);
                    map.insert(address, number(bits));
                }
                2 => assert_eq!(addresses.take(address), map.remove(&address), "seed {seed}"),
                _ => {
                    assert_eq!(addresses.get(address), map.get(&address).copied(), "seed {seed}");
                    if !random.one_in(8) {
                        continue;
                    }
                    let before = map.range(..=address).next_back().map(|(&start, &block)| (start, block));
                    let inside = address + random.below(GRAIN);
                    assert_eq!(addresses.at_or_before(inside), before, "seed {seed}, {inside:#x}");
                }
            }
        }
        let mut left = Vec::new();
        addresses.drain(|block| left.push(block));
        assert_eq!(left, map.into_values().collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(addresses.at_or_before(u64::MAX), None);
    }
}

#[test]
fn threads_that_take_one_block_get_it_once() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 300;
    let addresses = Addresses::new();
    let taken = AtomicU64::new(0);
    let barrier = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (addresses, taken, barrier) = (&addresses, &taken, &barrier);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Each round is in a leaf of its own, so that threads race to make it as well.
                    let base = round * LEAF_BYTES;
                    put(addresses, base + thread * GRAIN, round * THREADS + thread + 1);
                    barrier.wait();
                    for block in 0..THREADS {
                        let address = base + (thread + block) % THREADS * GRAIN;
                        taken.fetch_add(u64::from(addresses.take(address).is_some()), Ordering::Relaxed);
                    }
                    barrier.wait();
                    assert_eq!(addresses.at_or_before(base + THREADS * GRAIN), None);
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(taken.into_inner(), THREADS * ROUNDS);
}
