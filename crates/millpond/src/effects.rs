//! The driver calls behind the steps. None of them holds a lock while the driver works.

use std::ops::Range;

use millpond_backend::{Backend, StreamId};
use millpond_core::{Outcome, ShardId, Slot};

use crate::drive::Performed;
use crate::lane::Lane;
use crate::raw::{self, Vm};
use crate::state::State;

impl<B: Backend> State<B> {
    pub(crate) fn reserve(&self, shard: ShardId, slot: Slot, bytes: u64) -> Performed<B::Error> {
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

    /// Gives a segment or an (unmapped) range back.
    pub(crate) fn release(&self, shard: ShardId, slot: Slot, is_range: bool) {
        let segment = self.lane(shard).lock().take_segment(slot);
        self.activity.book(&self.backend, || {
            if is_range {
                raw::release_range::<B>(self.vm(), segment);
            } else {
                raw::release(&self.backend, segment);
            }
        });
    }

    /// Creates pages and maps them; on a failure half-way, takes back what it did.
    pub(crate) fn map(&self, shard: ShardId, slot: Slot, range: Range<u64>, page_bytes: u64) -> Performed<B::Error> {
        let lane = self.lane(shard);
        let mut made = Vec::new();
        for offset in range.step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX)) {
            match self.make_page(shard, slot, offset, page_bytes) {
                Ok(page) => made.push((offset, page)),
                Err((call, error)) => {
                    for (offset, page) in made.into_iter().rev() {
                        self.unmap_one(shard, slot, offset, page, lane.stream);
                    }
                    return Performed::failed(call, error);
                }
            }
        }
        let mut state = lane.lock();
        for (offset, page) in made {
            let before = state.pages.insert((slot, offset), page);
            assert!(before.is_none(), "two pages at offset {offset} of slot {}", slot.0);
        }
        Performed::ok(Outcome::Done)
    }

    fn make_page(
        &self,
        shard: ShardId,
        slot: Slot,
        offset: u64,
        bytes: u64,
    ) -> Result<B::Page, (&'static str, B::Error)> {
        let vm = self.vm();
        let page =
            self.activity.book(&self.backend, || vm.create_page(self.class, bytes)).map_err(|e| ("create_page", e))?;
        let range = raw::range_of(self.lane(shard), slot);
        let stream = self.lane(shard).stream;
        match self.activity.book(&self.backend, || raw::map::<B>(vm, range, offset, &page, stream)) {
            Ok(()) => Ok(page),
            Err(error) => {
                self.activity.book(&self.backend, || raw::release_page::<B>(vm, page));
                Err(("map", error))
            }
        }
    }

    pub(crate) fn unmap(&self, shard: ShardId, slot: Slot, range: Range<u64>, page_bytes: u64) {
        let lane = self.lane(shard);
        for offset in range.step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX)) {
            let page = lane.lock().pages.remove(&(slot, offset));
            match page {
                Some(page) => self.unmap_one(shard, slot, offset, page, lane.stream),
                None => panic!("no page at offset {offset} of slot {} to unmap", slot.0),
            }
        }
    }

    /// Unmaps and releases every page of a range.
    pub(crate) fn release_pages(&self, lane: &Lane<B>, slot: Slot) {
        loop {
            let next = lane.lock().pages.range((slot, 0)..=(slot, u64::MAX)).next().map(|(&key, _)| key);
            let Some(key) = next else { break };
            let page = lane.lock().pages.remove(&key);
            if let Some(page) = page {
                self.unmap_one(lane.shard, slot, key.1, page, lane.stream);
            }
        }
    }

    fn unmap_one(&self, shard: ShardId, slot: Slot, offset: u64, page: B::Page, stream: StreamId) {
        let range = raw::range_of(self.lane(shard), slot);
        self.activity.book(&self.backend, || raw::unmap_and_release::<B>(self.vm(), range, offset, page, stream));
    }

    fn vm(&self) -> &Vm<'_, B> {
        match self.backend.virtual_memory() {
            Some(vm) => vm,
            None => panic!("the device announced virtual memory in its caps and has none"),
        }
    }
}
