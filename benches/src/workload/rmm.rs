//! The random pattern of RMM's own benchmark, from its description: its generator and seed are not reproduced.

use millpond_trace::Random;

use super::{Op, Workload};

/// The number of steps out of 100 that allocate.
const ALLOCATE_PERCENT: u64 = 73;

/// The most bytes alive: a step that would go beyond frees instead.
const LIVE_BYTES_MAX: u64 = 16_000 << 20;

pub(super) fn workload(allocations: u32, max_bytes: u64, seed: u64) -> Workload {
    let mut random = Random::new(seed);
    let mut timed = Vec::with_capacity(2 * allocations as usize);
    let (mut live, mut empty) = (Vec::<(u32, u64)>::new(), Vec::new());
    let (mut slots, mut live_bytes, mut made) = (0, 0, 0);
    while made < allocations {
        let bytes = random.between(1, max_bytes);
        let fits = live_bytes + bytes <= LIVE_BYTES_MAX;
        if live.is_empty() || (fits && random.below(100) < ALLOCATE_PERCENT) {
            let slot = empty.pop().unwrap_or_else(|| {
                slots += 1;
                slots - 1
            });
            live.push((slot, bytes));
            live_bytes += bytes;
            made += 1;
            timed.push(Op::Allocate { stream: 0, slot, bytes });
        } else {
            let (slot, bytes) = live.swap_remove(random.index(live.len()));
            empty.push(slot);
            live_bytes -= bytes;
            timed.push(Op::Free { slot });
        }
    }
    timed.extend(live.into_iter().map(|(slot, _)| Op::Free { slot }));
    Workload { prepare: Vec::new(), timed, finish: Vec::new(), slots: slots as usize, streams: 1 }
}
