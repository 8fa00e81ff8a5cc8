//! The hit pair: the shortest path through a pool, an allocation and its free.

use super::{Op, Workload};

/// The number of pairs: few enough for the list to stay in the second-level cache.
const PAIRS: usize = 10_000;

pub(super) fn workload(bytes: u64) -> Workload {
    let pair = [Op::Allocate { stream: 0, slot: 0, bytes }, Op::Free { slot: 0 }];
    Workload { prepare: pair.to_vec(), timed: pair.repeat(PAIRS), finish: Vec::new(), slots: 1, streams: 1 }
}
