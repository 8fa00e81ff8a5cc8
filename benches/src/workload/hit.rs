//! The hit pair: the shortest way in and out of a pool.

use super::{Op, Workload};

/// Few enough for the list to stay in the second cache.
const PAIRS: usize = 10_000;

pub(super) fn workload(bytes: u64) -> Workload {
    let pair = [Op::Allocate { stream: 0, slot: 0, bytes }, Op::Free { slot: 0 }];
    Workload { prepare: pair.to_vec(), timed: pair.repeat(PAIRS), finish: Vec::new(), slots: 1, streams: 1 }
}
