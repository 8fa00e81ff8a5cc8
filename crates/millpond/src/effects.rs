//! The driver calls behind the steps. None of them holds a lock while the driver works.

use std::cell::Cell;

use millpond_backend::{Backend, BackendError, Fault};
use millpond_core::{Outcome, PageCall, PageId, Place, ShardId, Slot};

use crate::error::Error;
use crate::raw::calls::{self, Vm};
use crate::raw::source::give_back;
use crate::state::State;

/// The result of a step: an outcome for the plan, and the driver's error that ends the plan, if there was one.
pub(crate) struct Performed<E: BackendError> {
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<Error<E>>,
}

impl<E: BackendError> Performed<E> {
    pub(crate) fn ok(outcome: Outcome) -> Self {
        Self { outcome, error: None }
    }

    /// Creates the result of a failed call. The plan continues with the next attempt after an out-of-memory error;
    /// every other error ends it.
    pub(crate) fn failed(call: &'static str, error: E) -> Self {
        match error.fault() {
            Fault::OutOfMemory => Self::ok(Outcome::Refused),
            _ => Self { outcome: Outcome::Failed, error: Some(Error::of_driver(call, error)) },
        }
    }
}

impl<B: Backend> State<B> {
    /// Takes a segment from the driver, or from the source of the shard's pool.
    pub(crate) fn reserve(&self, shard: ShardId, slot: Slot, bytes: u64) -> Performed<B::Error> {
        let lane = self.lane(shard);
        let pool = lane.lock().shard.pool();
        if let Some(source) = self.bonds.source_of(pool) {
            let segment = self.activity.book(&self.backend, || source.reserve(&self.backend, lane.stream, bytes));
            let Some(segment) = segment else { return Performed::ok(Outcome::Refused) };
            self.sources.note((shard, slot), pool, source);
            return self.install(shard, slot, "reserve", Ok(segment));
        }
        let segment = self.activity.book(&self.backend, || self.backend.reserve(self.class, bytes));
        self.install(shard, slot, "reserve", segment)
    }

    pub(crate) fn reserve_range(&self, shard: ShardId, slot: Slot, bytes: u64) -> Performed<B::Error> {
        let vm = self.vm();
        let range = self.activity.book(&self.backend, || vm.reserve_range(self.class, bytes));
        self.install(shard, slot, "reserve_range", range)
    }

    /// Puts a new segment into its lane's table before the core learns of it, so that every block has its segment.
    fn install(
        &self,
        shard: ShardId,
        slot: Slot,
        call: &'static str,
        segment: Result<B::Segment, B::Error>,
    ) -> Performed<B::Error> {
        match segment {
            Ok(segment) => {
                let address = self.backend.address(&segment).unwrap_or(0);
                self.lane(shard).lock().put_segment(slot, segment);
                Performed::ok(Outcome::Reserved { address })
            }
            Err(error) => Performed::failed(call, error),
        }
    }

    /// Releases a segment, to where it came from, or an (unmapped) range.
    pub(crate) fn release(&self, shard: ShardId, slot: Slot, is_range: bool) {
        let lane = self.lane(shard);
        let segment = lane.lock().take_segment(slot);
        let source = self.sources.take((shard, slot));
        self.activity.book(&self.backend, || {
            if let Some(source) = &source {
                give_back(source, &self.backend, lane.stream, segment);
            } else if is_range {
                calls::release_range::<B>(self.vm(), segment);
            } else {
                calls::release(&self.backend, segment);
            }
        });
    }

    /// Makes page calls in order, beginning with number `made`, up to the first that fails, or with `stops` to the
    /// first that takes something. `made` counts them; a call that releases something counts once it is entered.
    pub(crate) fn page_calls(&self, calls: &[PageCall], made: &Cell<usize>, stops: bool) -> Performed<B::Error> {
        for (done, call) in calls.iter().enumerate().skip(made.get()) {
            let gives_back = matches!(call, PageCall::Unmap { .. } | PageCall::Release { .. });
            if stops && !gives_back {
                return Performed::ok(Outcome::Stopped { done, refused: false });
            }
            made.set(done + usize::from(gives_back));
            if let Err((name, error)) = self.page_call(call) {
                let refused = error.fault() == Fault::OutOfMemory;
                let error = (!refused).then(|| Error::of_driver(name, error));
                return Performed { outcome: Outcome::Stopped { done, refused }, error };
            }
        }
        Performed::ok(Outcome::Done)
    }

    fn page_call(&self, call: &PageCall) -> Result<(), (&'static str, B::Error)> {
        let vm = self.vm();
        match *call {
            PageCall::Create { page, bytes } => {
                let made = self.activity.book(&self.backend, || vm.create_page(self.class, bytes));
                self.pages.put(page, made.map_err(|error| ("create_page", error))?);
            }
            PageCall::Map { page, at } => {
                let (lane, page) = (self.lane(at.shard), self.pages.get(page));
                let range = calls::range_of(lane, at.slot);
                let mapped =
                    self.activity.book(&self.backend, || calls::map::<B>(vm, range, at.offset, &page, lane.stream));
                mapped.map_err(|error| ("map", error))?;
            }
            PageCall::Unmap { page, at } => self.unmap(page, at),
            PageCall::Release { page } => {
                let page = self.pages.take(page);
                self.activity.book(&self.backend, || calls::release_page::<B>(vm, page));
            }
        }
        Ok(())
    }

    fn unmap(&self, page: PageId, at: Place) {
        let (lane, page) = (self.lane(at.shard), self.pages.get(page));
        let range = calls::range_of(lane, at.slot);
        self.activity.book(&self.backend, || calls::unmap::<B>(self.vm(), range, at.offset, &page, lane.stream));
    }

    /// Unmaps a page everywhere and releases it.
    pub(crate) fn release_page(&self, page: PageId, places: &[Place]) {
        places.iter().for_each(|&at| self.unmap(page, at));
        let page = self.pages.take(page);
        self.activity.book(&self.backend, || calls::release_page::<B>(self.vm(), page));
    }

    fn vm(&self) -> &Vm<'_, B> {
        match self.backend.virtual_memory() {
            Some(vm) => vm,
            None => panic!("the device announced virtual memory in its caps and has none"),
        }
    }
}
