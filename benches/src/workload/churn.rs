//! Churn: a steady number of blocks of many sizes, each replaced at a random time.

use millpond_trace::Random;

use super::{Op, Workload};

const STEPS: usize = 50_000;

pub(super) fn workload(live: u32, max_bytes: u64, seed: u64) -> Workload {
    let mut random = Random::new(seed);
    let fill = |slot, random: &mut Random| Op::Allocate { stream: 0, slot, bytes: random.between(1, max_bytes) };
    let prepare = (0..live).map(|slot| fill(slot, &mut random)).collect();
    let mut timed = Vec::with_capacity(2 * STEPS);
    for _ in 0..STEPS {
        let slot = random.below(live.into()) as u32;
        timed.push(Op::Free { slot });
        timed.push(fill(slot, &mut random));
    }
    Workload { prepare, timed, finish: Vec::new(), slots: live as usize, streams: 1 }
}
