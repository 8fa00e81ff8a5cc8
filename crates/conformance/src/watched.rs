//! An allocator under watch: every grant and every free goes past the shadow oracle and the naive account.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond::{Allocator, Buffer, Error, Reuse, SegmentId, SegmentView, Stream};
use millpond_backend::{Backend, BackendError, Point, StreamId, Tick};

use crate::model::Model;
use crate::oracle::{Clock, Granted, Oracle, Place, Promises, Violation};

/// An allocator whose every operation is judged. Everything is done through it: a buffer that is dropped rather than
/// given to [`free`](Self::free) stays in the account.
///
/// Threads may share it. The oracle is told of a free before the allocator, and of a grant after it, so whatever they
/// do at the same time is judged soundly.
pub struct Watched<B: Backend> {
    allocator: Allocator<B>,
    account: Mutex<Account>,
    /// Blocks have pages behind them that may move.
    has_pages: bool,
    strings: Strings<B>,
}

/// What a device can do beyond its contract, for those who watch it.
pub struct Strings<B> {
    /// Whether later work of a stream comes after a point:
    /// [`DeviceUnderTest::comes_after`](crate::DeviceUnderTest::comes_after).
    pub comes_after: fn(&B, StreamId, Point) -> Option<bool>,
    /// Places the barrier that a grant asked for:
    /// [`DeviceUnderTest::place_barrier`](crate::DeviceUnderTest::place_barrier).
    pub place_barrier: fn(&B, StreamId),
}

impl<B> Clone for Strings<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Strings<B> {}

struct Account {
    oracle: Oracle,
    model: Model,
}

/// A buffer in the program's hands, known to the oracle.
#[derive(Debug)]
#[must_use = "give it back with Watched::free"]
pub struct Tenancy<B: Backend> {
    buffer: Buffer<B>,
    /// `None` for an empty buffer.
    place: Option<Place>,
    stream: StreamId,
}

/// Why there is no buffer.
#[derive(Debug, thiserror::Error)]
pub enum Trouble<E: BackendError> {
    /// The allocator says so.
    #[error(transparent)]
    Refused(#[from] Error<E>),
    /// There is one, and the oracle objects.
    #[error("the oracle objects: {0}")]
    Violation(#[from] Violation),
}

/// A backend as the oracle's clock.
struct BackendClock<'a, B> {
    backend: &'a B,
    strings: Strings<B>,
}

/// How often the oracle asks a device that fails: a fault planned for the allocator may strike the oracle once.
const ASKED_MAX: usize = 2;

impl<B: Backend> Clock for BackendClock<'_, B> {
    fn mark(&self, stream: StreamId) -> Tick {
        self.backend.mark(stream)
    }

    fn reached(&self, stream: StreamId) -> Option<Tick> {
        (0..ASKED_MAX).find_map(|_| self.backend.reached(stream).ok())
    }

    fn comes_after(&self, stream: StreamId, point: Point) -> Option<bool> {
        (self.strings.comes_after)(self.backend, stream, point)
    }
}

impl<B: Backend> Watched<B> {
    /// Watches an allocator that has handed nothing out yet. Device-side waits are taken on trust: of a page that has
    /// moved behind one, only wrong bytes would show that it is missing.
    pub fn new(allocator: Allocator<B>) -> Self {
        Self::with_strings(allocator, Strings { comes_after: |_, _, _| None, place_barrier: |_, _| {} })
    }

    /// The same on a device that can tell what its streams wait for, and on which barriers can be placed.
    pub fn with_strings(allocator: Allocator<B>, strings: Strings<B>) -> Self {
        let oracle = Oracle::new(Promises::of(allocator.backend().caps()));
        let has_pages = allocator.settings().needs_pages();
        Self { allocator, account: Mutex::new(Account { oracle, model: Model::default() }), has_pages, strings }
    }

    /// The allocator, for everything that neither grants nor frees.
    pub fn allocator(&self) -> &Allocator<B> {
        &self.allocator
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        self.allocator.backend()
    }

    /// Allocates on a stream.
    ///
    /// # Errors
    ///
    /// The allocator's, and the oracle's objection to the grant.
    pub fn allocate(&self, stream: &Stream<B>, bytes: u64) -> Result<Tenancy<B>, Trouble<B::Error>> {
        let buffer = match stream.allocate(bytes) {
            Ok(buffer) => buffer,
            Err(error) => {
                if let Error::OutOfMemory(_) = &error {
                    self.account().model.refused();
                }
                return Err(error.into());
            }
        };
        let place = buffer.segment_id().map(|segment| Place { segment, offset: buffer.offset() });
        if let Some(place) = place {
            let reuse = buffer.reuse();
            let grant = Granted {
                place,
                bytes: buffer.capacity(),
                requested: bytes,
                stream: stream.id(),
                address: buffer.address(),
                reuse,
            };
            // The block is live: whatever others do meanwhile, what lies behind it stays.
            let view = if self.has_pages { self.view_of(place.segment) } else { None };
            let mut account = self.account();
            account.model.granted(grant.bytes, bytes);
            account.oracle.granted(&grant, view.as_ref(), &self.clock())?;
            drop(account);
            if reuse == Reuse::NeedsBarrier {
                (self.strings.place_barrier)(self.backend(), stream.id());
            }
        }
        Ok(Tenancy { buffer, place, stream: stream.id() })
    }

    /// Notes the use of a buffer on another stream, until its free.
    ///
    /// # Errors
    ///
    /// The allocator's.
    pub fn record_stream(&self, tenancy: &Tenancy<B>, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        tenancy.buffer.record_stream(stream)?;
        if let Some(place) = tenancy.place {
            self.account().oracle.used(place, stream.id());
        }
        Ok(())
    }

    /// Notes the use of a buffer up to a point.
    ///
    /// # Errors
    ///
    /// The allocator's.
    pub fn used_until(&self, tenancy: &Tenancy<B>, point: Point) -> Result<(), Error<B::Error>> {
        tenancy.buffer.used_until(point)?;
        if let Some(place) = tenancy.place {
            self.account().oracle.used_until(place, point);
        }
        Ok(())
    }

    /// Gives a buffer back, by dropping it.
    pub fn free(&self, tenancy: Tenancy<B>) {
        if let Some(place) = tenancy.place {
            let mut account = self.account();
            account.model.freed(tenancy.buffer.capacity(), tenancy.buffer.len());
            account.oracle.freed(place, &self.clock());
        }
        drop(tenancy.buffer);
    }

    /// Resets peaks, here and there.
    pub fn reset_peaks(&self) {
        self.allocator.reset_peak_stats();
        self.account().model.reset_peaks();
    }

    /// Resets totals, here and there.
    pub fn reset_totals(&self) {
        self.allocator.reset_accumulated_stats();
        self.account().model.reset_totals();
    }

    /// How many grants the oracle has judged.
    pub fn grants(&self) -> u64 {
        self.account().oracle.grants()
    }

    /// Verifies the allocator's own invariants, the statistics against the naive account, and the layout against the
    /// oracle's. Other threads must be at rest. `peaks`: there was only one thread from the beginning.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    ///
    /// # Panics
    ///
    /// If the allocator finds itself in disorder.
    pub fn check(&self, peaks: bool) -> Result<(), String> {
        self.allocator.check();
        let (stats, layout) = (self.allocator.stats(), self.allocator.layout());
        let reserved: u64 = layout.iter().map(SegmentView::mapped_bytes).sum();
        let counted = stats.reserved_bytes.all.current;
        // Pages that a failed call has left without a place are reserved, and in no segment.
        let spare = if self.has_pages { counted.saturating_sub(reserved) } else { 0 };
        if counted != reserved + spare {
            return Err(format!("reserved_bytes is {counted}, and the layout holds {reserved}"));
        }
        let mut account = self.account();
        account.model.compare(&stats, peaks)?;
        account.oracle.check(&layout, &self.clock()).map_err(|error| format!("the oracle objects: {error}"))
    }

    fn clock(&self) -> BackendClock<'_, B> {
        BackendClock { backend: self.backend(), strings: self.strings }
    }

    fn view_of(&self, segment: SegmentId) -> Option<SegmentView> {
        self.allocator.layout().into_iter().find(|view| view.id == segment)
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // A thread that panicked has failed its test already; the account is still sound.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Tenancy<B> {
    /// Where the buffer lies; `None` if it is empty.
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// The stream that it was allocated on.
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
