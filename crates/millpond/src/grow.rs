//! Buffers that grow at their place: nothing is copied, and the address stays the same.

use std::panic::Location;

use bytemuck::Pod;
use millpond_backend::Backend;
use millpond_core::settings::Scrub;
use millpond_core::{BlockId, Denied, Extent, Grant, Grown, NoRoom, Plan, Want};

use crate::buffer::{Buffer, EMPTY};
use crate::drive::Ending;
use crate::error::Error;
use crate::events::Event;
use crate::notes::note::Asked;
use crate::state::{Lane, LaneRef, State};
use crate::stream::Stream;
use crate::typed::{Typed, TypedBuffer};

/// Buffers that grow.
impl<B: Backend> Stream<B> {
    /// Allocates `bytes` bytes with addresses for `capacity`: [`Buffer::grow`] maps new pages after what the buffer
    /// has, up to the capacity, and copies nothing. It is for what grows for a long time at one address, such as a KV
    /// cache.
    ///
    /// Addresses cost no memory: this is CUDA's `cuMemAddressReserve` for the capacity, with `cuMemMap` for the bytes.
    /// Both are rounded up to whole pages of 2 MiB or more, and the buffer has at least one page. A capacity below
    /// `bytes` counts as `bytes`. The pages are new, so this always calls the driver. If the slack or the limit has no
    /// room for them, free pages go back to the driver first. Dropping the buffer puts its pages into the cache, and
    /// gives its addresses up. [`Buffer::capacity`] returns the mapped bytes, not the reserved addresses.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// let stream = allocator.create_stream()?;
    /// let mut cache = stream.allocate_growable(4 << 20, 1 << 30)?;
    /// assert_eq!(allocator.memory_reserved(), 4 << 20, "addresses need no memory");
    ///
    /// let address = cache.address();
    /// stream.upload(&cache, 0, b"key")?;
    /// cache.grow(2 << 20)?;
    /// assert_eq!((cache.len(), cache.address()), (6 << 20, address));
    ///
    /// let mut bytes = [0; 3];
    /// stream.download(&cache, 0, &mut bytes)?;
    /// assert_eq!(&bytes, b"key");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the policy is `paged`, which needs virtual memory, and the pool has no source of
    /// its own. Otherwise those of [`allocate`](Self::allocate); if there are no addresses, [`Error::OutOfMemory`].
    #[track_caller]
    pub fn allocate_growable(&self, bytes: u64, capacity: u64) -> Result<Buffer<B>, Error<B::Error>> {
        let asked = Asked { stream: self.id(), site: Location::caller() };
        let (state, lane) = (&self.handle().state, self.lane());
        state.note_tick(asked.stream);
        let is_home = {
            let mut inner = lane.lock();
            inner.hold(state);
            inner.shard.is_home()
        };
        if !is_home {
            return Err(Error::Unsupported {
                what: "addresses for a buffer to grow into, under this policy or in this pool",
                device: state.backend.caps().name.clone(),
                advice: "use the policy `paged`, on a device with virtual memory and in a pool without a source",
            });
        }
        let growable = state.coordinator.lock().growable(bytes, capacity);
        let growable = growable.ok_or(Error::TooLarge { requested: capacity.max(bytes) })?;
        let plan = state.plan_for(lane, growable.want, asked.stream).with_capacity(growable.capacity);
        let Ok(grant) = state.run_growth(lane, plan, &growable.want, &asked)? else {
            panic!("{growable:?} has no place that it could be stuck at")
        };
        let held = lane.lock();
        lane.count_out(grant.size);
        drop(held);
        if state.sinks.is_told() {
            state.tell_grant(lane, self.id(), bytes, &grant);
        }
        let mut buffer = Buffer::new(LaneRef::new(lane), self.id(), &growable.want, &grant);
        if state.scrub != Scrub::Off {
            state.scrub(&mut buffer)?;
        }
        Ok(buffer)
    }

    /// Allocates `len` elements with addresses for `capacity`, as [`allocate_growable`](Self::allocate_growable) does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allocate_growable`](Self::allocate_growable).
    #[track_caller]
    pub fn allocate_growable_elements<T: Pod>(
        &self,
        len: u64,
        capacity: u64,
    ) -> Result<TypedBuffer<T, B>, Error<B::Error>> {
        let bytes = |len: u64| len.saturating_mul(size_of::<T>() as u64);
        Typed::new(self.allocate_growable(bytes(len), bytes(capacity))?).map_err(|(error, _)| Error::View(error))
    }
}

impl<B: Backend> Buffer<B> {
    /// Makes the buffer longer by `bytes` at its place. The address and the bytes that it has stay the same; those that
    /// are added are as after an allocation.
    ///
    /// A buffer of [`allocate_growable`](Stream::allocate_growable) grows up to its capacity, by whole new pages: each
    /// is created and mapped, and that is all that the driver is asked for. Bytes that its last page has room for cost
    /// no driver call. So does growth of any buffer into free memory that its stream may use at once. Under `paged` an
    /// ordinary buffer grows into free memory that other streams are done with, and into the unused addresses of its
    /// home, too. The cost of a step does not depend on the size of the buffer.
    ///
    /// Work on the new bytes can be queued on the buffer's [`stream`](Self::stream) at once. Work of other streams has
    /// to come after this, as after an allocation.
    ///
    /// # Errors
    ///
    /// Nothing has changed after any of them. [`Error::NoRoom`] if something else is at the place;
    /// [`Error::OutOfMemory`] with a report; [`Error::TooLarge`]; [`Error::Driver`] if a driver call fails.
    #[track_caller]
    pub fn grow(&mut self, bytes: u64) -> Result<(), Error<B::Error>> {
        let (len, site) = (self.len(), Location::caller());
        let requested = len.saturating_add(bytes);
        if bytes == 0 {
            return Ok(());
        }
        if self.held().block == EMPTY {
            return Err(Error::NoRoom { len, bytes, why: NoRoom::Empty });
        }
        let lane = self.lane().clone();
        let state = lane.owner();
        let want = state.sizes.want(self.with_padding(requested)).ok_or(Error::TooLarge { requested })?;
        let asked = Asked { stream: self.stream(), site };
        state.note_tick(asked.stream);
        let grown = state.grow(&lane, self.held().block, &want, &asked)?;
        let grant = grown.map_err(|why| Error::NoRoom { len, bytes, why })?;
        let Extent { slot, offset, bytes: had } = self.extent();
        let added = Extent { slot, offset: offset + had, bytes: grant.size - had };
        if state.scrub != Scrub::Off && added.bytes > 0 {
            // If that fails, the block has the memory, and the buffer has it once this succeeds.
            state.scrub_part(self, added)?;
        }
        let held = lane.lock();
        lane.count_out(added.bytes);
        drop(held);
        self.has_grown(&grant, requested);
        if state.sinks.is_told() && added.bytes > 0 {
            let (stream, added, size) = (self.stream(), added.bytes, grant.size);
            let event = |segment, offset| Event::Grow { stream, added, segment, offset, size };
            state.tell_of(&lane, (slot, offset), event);
        }
        Ok(())
    }
}

impl<T: Pod, B: Backend> Typed<T, Buffer<B>> {
    /// Makes the buffer longer by `len` elements at its place, as [`Buffer::grow`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Buffer::grow`].
    #[track_caller]
    pub fn grow(&mut self, len: u64) -> Result<(), Error<B::Error>> {
        self.buffer_mut().grow(len.saturating_mul(size_of::<T>() as u64))
    }
}

impl<B: Backend> State<B> {
    /// Makes a block that is handed out long enough for `to`, at its place. Returns the grant of the whole block, or
    /// what is in the way.
    fn grow(
        &self,
        lane: &Lane<B>,
        block: BlockId,
        to: &Want,
        asked: &Asked,
    ) -> Result<Result<Grant, NoRoom>, Error<B::Error>> {
        if self.has_waiters() {
            self.retire_ready()?;
        }
        let usable = self.usable(lane, asked.stream)?;
        let clock = self.clocks()[to.side as usize];
        let grown = {
            let mut inner = lane.lock();
            let before = inner.shard.requested_of(block);
            let grown = inner.shard.grow(block, to, clock, usable);
            if let Grown::Done(grant) = &grown {
                inner.grown(to.requested - before, grant);
            }
            grown
        };
        match grown {
            Grown::Done(grant) => {
                if grant.unsettled {
                    self.settle(lane.shard);
                }
                Ok(Ok(grant))
            }
            Grown::NoRoom(why) => {
                // What is free after a block of a paused group is not there for it.
                self.expect_running_at(lane.shard)?;
                Ok(Err(why))
            }
            Grown::Missed(want) => {
                let plan = self.plan_for(lane, want, asked.stream).after(block, to.requested);
                self.run_growth(lane, plan, &want, asked)
            }
        }
    }

    fn run_growth(
        &self,
        lane: &Lane<B>,
        mut plan: Plan,
        want: &Want,
        asked: &Asked,
    ) -> Result<Result<Grant, NoRoom>, Error<B::Error>> {
        if self.sinks.is_told() {
            self.sinks.tell(&Event::Miss { stream: asked.stream, requested: want.requested });
        }
        match self.run_for(&mut plan, Some(&(lane.shard, *want, *asked)))? {
            Ending::Granted(grant) => Ok(Ok(grant)),
            Ending::Stuck(why) => Ok(Err(why)),
            Ending::Denied(Denied::Closed(group)) => Err(self.paused(group)),
            ending => panic!("a plan for {want:?} at one place ended with {ending:?}"),
        }
    }
}
