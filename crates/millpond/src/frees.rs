//! Freeing blocks, and what remains to be done then. Once the lane's lock is open, the lane and its state may be
//! dropped while a free returns: see [`crate::raw`].

use millpond_backend::{Backend, Point};
use millpond_core::{BlockId, Freed, Side, Uses};

use crate::aligned::Start;
use crate::notes::note::Out;
use crate::raw::latched::Guard;
use crate::state::{Lane, LaneRef, LaneState, LockedShards, State};
use crate::sync::{Arc, lock_soon};

/// The part of its block that a buffer keeps.
pub(crate) struct Held {
    pub(crate) block: BlockId,
    pub(crate) side: Side,
    /// Where in its block the buffer begins.
    pub(crate) start: Start,
}

impl<B: Backend> State<B> {
    /// Frees a block. It cannot fail and calls no driver (except under `direct`, whose purpose this is). The return
    /// value may be the reference that keeps this state alive: the caller drops it when it needs neither state nor lane
    /// any more.
    ///
    /// `size` is the length of the block, if the caller knows it.
    ///
    /// It takes no reference to the lane or its state, because they may be dropped before this returns: see
    /// [`crate::raw`].
    #[inline(always)]
    pub(crate) fn free(lane: &LaneRef<B>, held: &Held, size: Option<u64>) -> Option<Arc<Self>> {
        let home: &Lane<B> = lane;
        let state = home.owner();
        let clock = if state.is_plain() { 0 } else { state.clocks()[held.side as usize] };
        let mut inner = home.lock();
        let tick = home.mark(&state.backend, inner.shard.user_of(held.block));
        let size = size.unwrap_or_else(|| inner.shard.size_of(held.block));
        let freed = inner.shard.free(held.block, tick, clock);
        // A block that is not handed out has panicked there.
        home.count_back(size);
        match freed {
            Freed::Done { unsettled: false } if !inner.looks_back() => None,
            freed => Self::freed(lane, inner, held, freed),
        }
    }

    /// Works like [`free`](Self::free) where sinks are told or something is noted, with the same restriction on
    /// references.
    #[inline(never)]
    pub(crate) fn free_watched(lane: &LaneRef<B>, held: &Held, out: &Out) -> Option<Arc<Self>> {
        let home: &Lane<B> = lane;
        let state = home.owner();
        let backend = &state.backend;
        if state.sinks.records() {
            let users = home.lock().shard.streams_of(held.block);
            users.into_iter().for_each(|stream| state.note_tick(stream));
        }
        state.tell_free(home, out);
        let clock = if state.is_plain() { 0 } else { state.clocks()[held.side as usize] };
        let mut inner = home.lock();
        let tick = home.mark(backend, inner.shard.user_of(held.block));
        let base = if inner.notes.is_some() { inner.segment_base(backend, out.slot) } else { 0 };
        let size = inner.shard.size_of(held.block);
        let freed = inner.shard.free(held.block, tick, clock);
        home.count_back(size);
        inner.freed(held.block, out, base, matches!(freed, Freed::Done { .. }));
        Self::freed(lane, inner, held, freed)
    }

    /// Does what remains after a free. Like [`free`](Self::free), it takes no reference to anything that may be
    /// dropped.
    #[inline(never)]
    fn freed(lane: &LaneRef<B>, mut inner: Guard<'_, LaneState<B>>, held: &Held, freed: Freed) -> Option<Arc<Self>> {
        let is_over = matches!(freed, Freed::Done { unsettled: false } | Freed::Settling { unsettled: false })
            && !inner.is_direct();
        // Once the lock is open another thread may free the last block and drop the state with it, so a thread that
        // still needs the state takes a reference first.
        let keep = inner.let_go().or_else(|| if is_over { None } else { inner.kept() });
        drop(inner);
        match &keep {
            Some(state) if !is_over => state.go_on_from(lane, held, freed),
            None if !is_over => panic!("block {} was out, and its lane kept no allocator", held.block.0),
            _ => {}
        }
        keep
    }

    /// Does what remains after a block was freed, in a thread that keeps the state alive.
    fn go_on_from(&self, lane: &Lane<B>, held: &Held, freed: Freed) {
        match freed {
            Freed::Done { unsettled } | Freed::Settling { unsettled } => {
                if unsettled {
                    self.settle(lane.shard);
                }
            }
            Freed::Pending(uses) => self.pend(lane, held, &uses),
        }
        if self.direct {
            self.reclaim();
        }
    }

    /// Frees a buffer of 0 bytes. The return value and the restriction on references are those of [`free`](Self::free).
    #[cold]
    pub(crate) fn free_nothing(lane: &LaneRef<B>) -> Option<Arc<Self>> {
        lane.lock().take_nothing()
    }

    #[cold]
    fn pend(&self, lane: &Lane<B>, held: &Held, uses: &Uses) {
        let marks = uses.streams.iter().map(|&stream| Point { stream, tick: self.backend.mark(stream) });
        let points = marks.chain(uses.points.iter());
        let mut coordinator = lock_soon(&self.coordinator);
        coordinator.pend(lane.shard, held.block, points, self.clocks(), &mut LockedShards(self));
        self.publish(&coordinator);
    }
}
