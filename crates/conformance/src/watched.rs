//! An allocator under watch: the shadow oracle and the simple model check every grant and every free.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond::{Allocator, BlockView, Buffer, Checkpoint, Error, Pool, Readiness, SegmentId, SegmentView, Stream};
use millpond_backend::{Backend, BackendError, Point, StreamId, Tick};

use crate::model::Model;
use crate::oracle::{Clock, Granted, Oracle, Place, Promises, Violation};

/// An allocator whose every operation is checked. All operations must go through it: a buffer that is dropped rather
/// than passed to [`free`](Self::free) stays in the account.
///
/// Threads may share it. A free is recorded in the oracle before the allocator frees, and a grant after the allocator
/// has granted, so that concurrent operations are judged correctly.
pub struct Watched<B: Backend> {
    allocator: Allocator<B>,
    account: Mutex<Account>,
    /// Whether blocks have pages behind them that may move.
    has_pages: bool,
    strings: Strings<B>,
}

/// The abilities of a device that go beyond its contract and that a test can use.
pub struct Strings<B: Backend> {
    /// Returns the newest complete tick of a stream, whatever other threads do meanwhile:
    /// [`DeviceUnderTest::reached`](crate::DeviceUnderTest::reached).
    pub reached: fn(&B, StreamId) -> Result<Tick, B::Error>,
    /// Returns whether later work of a stream comes after a point:
    /// [`DeviceUnderTest::comes_after`](crate::DeviceUnderTest::comes_after).
    pub comes_after: fn(&B, StreamId, Point) -> Option<bool>,
    /// Places the barrier that a grant asked for:
    /// [`DeviceUnderTest::place_barrier`](crate::DeviceUnderTest::place_barrier).
    pub place_barrier: fn(&B, StreamId),
}

impl<B: Backend> Clone for Strings<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Strings<B> {}

struct Account {
    oracle: Oracle,
    model: Model,
}

/// A buffer that the program holds, known to the oracle.
#[derive(Debug)]
#[must_use = "give it back with Watched::free"]
pub struct Tenancy<B: Backend> {
    buffer: Buffer<B>,
    /// `None` for an empty buffer.
    place: Option<Place>,
    /// The places of what it has grown by.
    added: Vec<Place>,
    /// The bytes of its block that were requested in front of it and behind it, for its alignment.
    padding: u64,
    stream: StreamId,
}

/// Why there is no buffer.
#[derive(Debug, thiserror::Error)]
pub enum Trouble<E: BackendError> {
    /// The allocator refused the request.
    #[error(transparent)]
    Refused(#[from] Error<E>),
    /// The allocator granted a buffer, and the oracle found a violation.
    #[error("the oracle objects: {0}")]
    Violation(#[from] Violation),
}

/// A backend as the oracle's clock.
struct BackendClock<'a, B: Backend> {
    backend: &'a B,
    strings: Strings<B>,
}

/// The number of times that the oracle asks a device that fails: a failure planned for the allocator may occur here
/// once.
const ASKED_MAX: usize = 2;

impl<B: Backend> Clock for BackendClock<'_, B> {
    fn mark(&self, stream: StreamId) -> Tick {
        self.backend.mark(stream)
    }

    fn reached(&self, stream: StreamId) -> Option<Tick> {
        (0..ASKED_MAX).find_map(|_| (self.strings.reached)(self.backend, stream).ok())
    }

    fn comes_after(&self, stream: StreamId, point: Point) -> Option<bool> {
        (self.strings.comes_after)(self.backend, stream, point)
    }
}

impl<B: Backend> Watched<B> {
    /// Watches an allocator that has not handed out anything yet. Device-side waits are assumed to be there: where a
    /// page has moved behind one, a missing wait would only show as wrong bytes.
    pub fn new(allocator: Allocator<B>) -> Self {
        let strings = Strings { reached: B::reached, comes_after: |_, _, _| None, place_barrier: |_, _| {} };
        Self::with_strings(allocator, strings)
    }

    /// Watches a device that reports what its streams wait for, and on which barriers can be placed.
    pub fn with_strings(allocator: Allocator<B>, strings: Strings<B>) -> Self {
        let settings = allocator.settings();
        let oracle = Oracle::new(Promises::of(allocator.backend().caps()).under(&settings));
        let has_pages = settings.policy.needs_pages();
        Self { allocator, account: Mutex::new(Account { oracle, model: Model::default() }), has_pages, strings }
    }

    /// Returns the allocator, for everything that neither grants nor frees.
    pub fn allocator(&self) -> &Allocator<B> {
        &self.allocator
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        self.allocator.backend()
    }

    /// Allocates on a stream.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors, and the oracle's violation if the grant is wrong.
    pub fn allocate(&self, stream: &Stream<B>, bytes: u64) -> Result<Tenancy<B>, Trouble<B::Error>> {
        let buffer = stream.allocate(bytes).inspect_err(|error| self.note_refusal(error))?;
        Ok(self.judged(buffer, stream.id(), bytes)?)
    }

    /// Allocates on a stream, with addresses for a capacity.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors, and the oracle's violation if the grant is wrong.
    pub fn allocate_growable(
        &self,
        stream: &Stream<B>,
        bytes: u64,
        capacity: u64,
    ) -> Result<Tenancy<B>, Trouble<B::Error>> {
        let buffer = stream.allocate_growable(bytes, capacity);
        let buffer = buffer.inspect_err(|error| self.note_refusal(error))?;
        Ok(self.judged(buffer, stream.id(), bytes)?)
    }

    /// Allocates on a stream at a multiple of an alignment. The oracle judges the whole block.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors, and the violation if the grant is wrong or the buffer is not aligned.
    ///
    /// # Panics
    ///
    /// If the layout has no block where the buffer is.
    pub fn allocate_aligned(
        &self,
        stream: &Stream<B>,
        bytes: u64,
        alignment: u64,
    ) -> Result<Tenancy<B>, Trouble<B::Error>> {
        let buffer = stream.allocate_aligned(bytes, alignment).inspect_err(|error| self.note_refusal(error))?;
        let Some(segment) = buffer.segment_id() else { return Ok(self.judged(buffer, stream.id(), bytes)?) };
        let Some(view) = self.view_of(segment) else { panic!("{buffer:?} lies in no segment of the layout") };
        let holds = |block: &&BlockView| (block.offset..block.offset + block.size).contains(&buffer.offset());
        let Some(block) = view.blocks.iter().find(holds) else { panic!("{buffer:?} lies in no block of {view:?}") };
        let (place, says) = (Place { segment, offset: block.offset }, buffer.readiness());
        let lead = buffer.offset() - block.offset;
        let address = buffer.address().map(|address| address - lead);
        let grant =
            Granted { place, bytes: block.size, requested: block.requested, stream: stream.id(), address, says };
        let begin = buffer.address().filter(|_| !self.backend().aligns_offsets()).unwrap_or(buffer.offset());
        if !begin.is_multiple_of(alignment) || buffer.capacity() + lead != block.size || buffer.len() != bytes {
            let (bytes, requested) = (buffer.capacity(), bytes);
            let place = Place { segment, offset: buffer.offset() };
            return Err(Violation::Misshapen { place, bytes, requested, address: buffer.address() }.into());
        }
        let padding = block.requested - bytes;
        let mut account = self.account();
        account.model.granted(grant.bytes, grant.requested);
        account.oracle.granted(&grant, self.has_pages.then_some(&view), &self.clock())?;
        drop(account);
        if says == Readiness::NeedsBarrier {
            (self.strings.place_barrier)(self.backend(), stream.id());
        }
        Ok(Tenancy { buffer, place: Some(place), added: Vec::new(), padding, stream: stream.id() })
    }

    /// Makes a buffer longer. The oracle judges what was added like a grant.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors, and the oracle's violation if what was added is wrong.
    pub fn grow(&self, tenancy: &mut Tenancy<B>, bytes: u64) -> Result<(), Trouble<B::Error>> {
        let had = tenancy.buffer.capacity();
        tenancy.buffer.grow(bytes).inspect_err(|error| self.note_refusal(error))?;
        let (Some(first), added) = (tenancy.place, tenancy.buffer.capacity() - had) else { return Ok(()) };
        let says = tenancy.buffer.readiness();
        let place = Place { offset: tenancy.buffer.offset() + had, ..first };
        let (stream, address) = (tenancy.stream, tenancy.buffer.address().map(|address| address + had));
        let view = if self.has_pages { self.view_of(place.segment) } else { None };
        let mut account = self.account();
        account.model.grown(added, bytes);
        if added > 0 {
            let grant = Granted { place, bytes: added, requested: 0, stream, address, says };
            account.oracle.granted(&grant, view.as_ref(), &self.clock()).map_err(Trouble::Violation)?;
            tenancy.added.push(place);
        }
        drop(account);
        if says == Readiness::NeedsBarrier {
            (self.strings.place_barrier)(self.backend(), stream);
        }
        Ok(())
    }

    fn note_refusal(&self, error: &Error<B::Error>) {
        if let Error::OutOfMemory(_) = error {
            self.account().model.refused();
        }
    }

    /// Has the oracle judge a grant.
    fn judged(&self, buffer: Buffer<B>, stream: StreamId, bytes: u64) -> Result<Tenancy<B>, Violation> {
        let place = buffer.segment_id().map(|segment| Place { segment, offset: buffer.offset() });
        if let Some(place) = place {
            let says = buffer.readiness();
            let grant =
                Granted { place, bytes: buffer.capacity(), requested: bytes, stream, address: buffer.address(), says };
            // The block is live, so the memory behind it stays, whatever other threads do meanwhile.
            let view = if self.has_pages { self.view_of(place.segment) } else { None };
            let mut account = self.account();
            account.model.granted(grant.bytes, bytes);
            account.oracle.granted(&grant, view.as_ref(), &self.clock())?;
            drop(account);
            if says == Readiness::NeedsBarrier {
                (self.strings.place_barrier)(self.backend(), stream);
            }
        }
        Ok(Tenancy { buffer, place, added: Vec::new(), padding: 0, stream })
    }

    /// Records the use of a buffer on another stream, until its free.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors.
    pub fn record_stream(&self, tenancy: &Tenancy<B>, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        tenancy.buffer.record_stream(stream)?;
        for place in tenancy.places() {
            self.account().oracle.used(place, stream.id());
        }
        Ok(())
    }

    /// Records the use of a buffer up to a point.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors.
    pub fn used_until(&self, tenancy: &Tenancy<B>, point: Point) -> Result<(), Error<B::Error>> {
        tenancy.buffer.used_until(point)?;
        for place in tenancy.places() {
            self.account().oracle.used_until(place, point);
        }
        Ok(())
    }

    /// Has a private pool go back to a checkpoint. Returns what it has handed out again.
    ///
    /// # Errors
    ///
    /// Returns the allocator's errors, and the oracle's violation if a grant is wrong.
    pub fn restore(&self, pool: &Pool<B>, to: &Checkpoint) -> Result<Vec<Tenancy<B>>, Trouble<B::Error>> {
        let mut buffers = Vec::new();
        pool.restore(to, &mut buffers)?;
        let granted = buffers.into_iter().map(|buffer| {
            let (stream, bytes) = (buffer.stream(), buffer.len());
            Ok(self.judged(buffer, stream, bytes)?)
        });
        granted.collect()
    }

    /// Frees a buffer by dropping it.
    pub fn free(&self, tenancy: Tenancy<B>) {
        if tenancy.place.is_some() {
            let mut account = self.account();
            account.model.freed(tenancy.block_bytes(), tenancy.buffer.len() + tenancy.padding);
            tenancy.places().for_each(|place| account.oracle.freed(place, &self.clock()));
        }
        drop(tenancy.buffer);
    }

    /// Resets the peaks of the allocator and of the model.
    pub fn reset_peaks(&self) {
        self.allocator.reset_peak_stats();
        self.account().model.reset_peaks();
    }

    /// Resets the totals of the allocator and of the model.
    pub fn reset_totals(&self) {
        self.allocator.reset_accumulated_stats();
        self.account().model.reset_totals();
    }

    /// Returns the number of grants that the oracle has judged.
    pub fn grants(&self) -> u64 {
        self.account().oracle.grants()
    }

    /// Checks the allocator's own invariants, compares the statistics with the simple model, and compares the layout
    /// with the oracle's account. Other threads must not use the allocator meanwhile. `peaks` says that there was only
    /// one thread from the beginning.
    ///
    /// # Errors
    ///
    /// Returns the first difference.
    ///
    /// # Panics
    ///
    /// If an invariant of the allocator does not hold.
    pub fn check(&self, peaks: bool) -> Result<(), String> {
        self.allocator.check();
        let (stats, layout) = (self.allocator.stats(), self.allocator.layout());
        let reserved: u64 = layout.iter().map(SegmentView::mapped_bytes).sum();
        let counted = stats.reserved_bytes.all.current;
        // Spare pages, which a failed call has left without a place, are reserved and in no segment.
        let spare = if self.has_pages { counted.saturating_sub(reserved) } else { 0 };
        if counted != reserved + spare {
            return Err(format!("reserved_bytes is {counted}, and the layout holds {reserved}"));
        }
        let mut account = self.account();
        account.model.compare(&stats, peaks, self.allocator.memory_paused())?;
        account.oracle.check(&layout, &self.clock()).map_err(|error| format!("the oracle objects: {error}"))
    }

    fn clock(&self) -> BackendClock<'_, B> {
        BackendClock { backend: self.backend(), strings: self.strings }
    }

    fn view_of(&self, segment: SegmentId) -> Option<SegmentView> {
        self.allocator.layout().into_iter().find(|view| view.id == segment)
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // A thread that panicked has failed its test already, and the account is still sound.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Tenancy<B> {
    /// Returns the place of the buffer; `None` if it is empty.
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the bytes of its whole block, which may begin before the buffer.
    fn block_bytes(&self) -> u64 {
        let lead = self.place.map_or(0, |place| self.buffer.offset() - place.offset);
        lead + self.buffer.capacity()
    }

    /// Returns the places that the oracle has it at: its own, and those of what it has grown by.
    fn places(&self) -> impl Iterator<Item = Place> {
        self.place.into_iter().chain(self.added.iter().copied())
    }

    /// Returns the stream that it was allocated on.
    pub fn stream(&self) -> StreamId {
        self.stream
    }
}

impl<B: Backend> Deref for Tenancy<B> {
    type Target = Buffer<B>;

    fn deref(&self) -> &Buffer<B> {
        &self.buffer
    }
}
