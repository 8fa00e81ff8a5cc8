//! What is reserved beyond the slack, and the work that may be the reason: computed only when it is asked for.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId};

use super::{Coordinator, Shards};
use crate::policy::Source;
use crate::stats::{PinnedBy, SlackStats};

/// The bytes that streams pin, of blocks and free memory that are added one after the other.
#[derive(Default)]
struct Pins {
    bytes: u64,
    /// By stream: the freed memory that waits for it, and the free memory that it was the last to use.
    by_stream: BTreeMap<StreamId, (u64, u64)>,
}

impl Pins {
    /// Adds freed memory that waits for work of some streams. A stream may be named several times.
    fn add(&mut self, bytes: u64, streams: impl Iterator<Item = StreamId>) {
        let streams = sorted(streams);
        if !streams.is_empty() {
            self.bytes += bytes;
        }
        streams.into_iter().for_each(|stream| self.by_stream.entry(stream).or_default().0 += bytes);
    }

    /// Adds free memory that some streams may still use. If that is one, it gets the memory again without any wait
    /// where `is_in_order`.
    fn add_free(&mut self, bytes: u64, streams: impl Iterator<Item = StreamId>, is_in_order: bool) {
        match sorted(streams)[..] {
            [stream] if is_in_order => self.by_stream.entry(stream).or_default().1 += bytes,
            ref streams => self.add(bytes, streams.iter().copied()),
        }
    }

    fn into_list(self) -> Vec<PinnedBy> {
        let pinned = |(stream, (bytes, own_bytes))| PinnedBy { stream, bytes, own_bytes };
        self.by_stream.into_iter().map(pinned).collect()
    }
}

fn sorted(streams: impl Iterator<Item = StreamId>) -> Vec<StreamId> {
    let mut streams: Vec<_> = streams.collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

impl Coordinator {
    /// Returns what is reserved beyond the slack, and what work in flight pins. Every block is visited. What a stream
    /// has reached counts from when it was last seen.
    pub fn slack_stats(&mut self, shards: &mut dyn Shards) -> SlackStats {
        self.settle_all(shards);
        self.beyond_slack(shards)
    }

    /// Does the work of [`slack_stats`](Self::slack_stats) where all shards are settled.
    pub(super) fn beyond_slack(&self, shards: &mut dyn Shards) -> SlackStats {
        let most_live_bytes = self.most_live();
        let is_bounded = self.traits.source == Source::Pages;
        // Each pool has its own slack, as its memory serves no other.
        let bound_bytes = is_bounded.then(|| match self.pools.has_private() {
            false => self.paging.bound(most_live_bytes),
            true => self.pools.live_peaks().map(|live| self.paging.bound(live)).fold(0, u64::saturating_add),
        });
        let pins = self.pins(shards);
        SlackStats {
            most_live_bytes,
            bound_bytes,
            beyond_bytes: bound_bytes.map_or(0, |bound| self.reserved_by_policy().saturating_sub(bound)),
            pinned_bytes: pins.bytes,
            pinned_by: pins.into_list(),
            sharing: self.paging.pace.sharing(),
        }
    }

    fn pins(&self, shards: &mut dyn Shards) -> Pins {
        let mut pins = Pins::default();
        let mut waiters = self.pending.blocks();
        let is_ahead = |point: &Point| !self.pending.is_reached(*point);
        let is_in_order = self.reuse_anywhere() == Reuse::InOrder;
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                for (block, bytes, home) in shard.pending_blocks() {
                    let of_others = waiters.remove(&(id, block)).unwrap_or_default();
                    let points = of_others.into_iter().chain(home);
                    pins.add(bytes, points.filter(is_ahead).map(|point| point.stream));
                }
                for part in shard.guarded_parts() {
                    let streams = part.points.iter().filter(is_ahead).map(|point| point.stream);
                    pins.add_free(part.end - part.begin, streams, is_in_order);
                }
                for (bytes, stream) in shard.used_last(|point| is_ahead(&point)) {
                    pins.add_free(bytes, [stream].into_iter(), is_in_order);
                }
            });
        }
        pins
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use millpond_backend::Tick;

    use super::*;
    use crate::coordinator::{DeviceFacts, Outcome, Plan, Step};
    use crate::ids::{PoolId, ShardId};
    use crate::settings::Settings;
    use crate::shard::{Freed, Grant, Shard};
    use crate::units::MIB;

    /// Has the first shard get a new segment for a block.
    fn miss(coordinator: &mut Coordinator, shards: &mut Vec<Shard>, mib: u64) -> Grant {
        let want = coordinator.sizes().want(mib * MIB).expect("a size");
        let mut plan = Plan::allocate(ShardId(0), want, [0; 2]);
        loop {
            match coordinator.next(&mut plan, shards) {
                Step::Grant(grant) => return grant,
                Step::Reserve { .. } => coordinator.learn(&mut plan, Outcome::Reserved { address: 0 }, shards),
                step => panic!("{step:?}"),
            }
        }
    }

    /// Where memory is used again only once work on it is over, a freed block is pinned by its own stream too.
    #[test]
    fn a_waiting_block_is_pinned_by_every_stream_that_it_waits_for() {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::AfterDone, pages: None, stream_wait: true };
        let mut coordinator = Coordinator::new(Settings::default(), facts);
        let mut shards = vec![coordinator.open_shard(StreamId(0), PoolId(0))];
        let [both, own] = [12, 20].map(|mib| miss(&mut coordinator, &mut shards, mib));
        let points = [3, 2].map(|tick| Point { stream: StreamId(1), tick: Tick(tick) });
        shards[0].record_stream(both.block, StreamId(1));
        shards[0].used_until(both.block, points[1]);
        shards[0].free(both.block, Tick(2), 0);
        coordinator.pend(ShardId(0), both.block, points, [0; 2], &mut shards);
        assert!(matches!(shards[0].free(own.block, Tick(7), 0), Freed::Settling { .. }));
        let mut told = |reached: [u64; 2]| {
            for (stream, tick) in (0..).map(StreamId).zip(reached) {
                coordinator.note_reached(stream, Tick(tick));
            }
            let stats = coordinator.slack_stats(&mut shards);
            assert_eq!((stats.bound_bytes, stats.beyond_bytes), (None, 0), "classic has no bound");
            let by = stats.pinned_by.iter().map(|by| (by.stream.0, by.bytes / MIB, by.own_bytes));
            (stats.pinned_bytes / MIB, by.collect::<Vec<_>>())
        };
        assert_eq!(told([1, 1]), (32, vec![(0, 32, 0), (1, 12, 0)]), "each byte once, whatever it waits for");
        assert_eq!(told([2, 2]), (32, vec![(0, 20, 0), (1, 12, 0)]));
        assert_eq!(told([6, 3]), (20, vec![(0, 20, 0)]));
        assert_eq!(told([7, 3]), (0, vec![]), "reached, though not free yet");
    }
}
