//! A simulated device in a wrapper that breaks one verb.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_backend::{
    Backend, Budget, BudgetInfo, Caps, ClassId, Fault, HostMemory, PageCaps, Point, StreamId, StreamWait, Tick,
    Transfer, VirtualMemory,
};
use millpond_conformance::{DeviceUnderTest, Live, Need, Unavailable};
use millpond_sim::{Completion, Page, Segment, Sim};

use super::error::{ToyError, toy};
use super::flaw::Flaw;

/// A device under test whose backend has this flaw, or none.
#[derive(Clone, Copy, Debug)]
pub struct Toys {
    pub flaw: Option<Flaw>,
    /// Whether the author counts the objects that callers hold. Otherwise only the budget and exhaustion show leaks.
    pub told: bool,
    /// Whether the author can hold work.
    pub holds: bool,
}

/// The wrapper around the simulated device.
pub struct Toy {
    sim: Sim,
    flaw: Option<Flaw>,
    caps: Caps,
    /// The first budget that was returned, for one that never changes.
    first_budget: Mutex<Option<BudgetInfo>>,
    first_host: Mutex<Option<usize>>,
    first_address: AtomicU64,
}

impl Toy {
    fn new(sim: Sim, flaw: Option<Flaw>) -> Toy {
        let mut caps = sim.caps().clone();
        match flaw {
            Some(Flaw::AlignmentIsALie) => caps.classes[0].alignment = 1 << 40,
            Some(Flaw::TotalIsALie) => caps.classes[0].total_bytes *= 4,
            Some(Flaw::TransferIsNotAnnounced) => caps.transfer = false,
            Some(Flaw::GranularityIsOdd) => caps.pages = Some(PageCaps::new(3 << 20)),
            _ => {}
        }
        Toy {
            sim,
            flaw,
            caps,
            first_budget: Mutex::new(None),
            first_host: Mutex::new(None),
            first_address: AtomicU64::new(0),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the part of a range that lies in the segment, for a device that does not check ranges.
    fn clipped(&self, segment: &Segment, offset: u64, bytes: u64) -> (u64, u64) {
        if !self.has(Flaw::RangesAreUnchecked) {
            return (offset, bytes);
        }
        let offset = offset.min(segment.bytes());
        (offset, bytes.min(segment.bytes() - offset))
    }
}

// SAFETY: a toy with a flaw does not keep the contract, which is what the suite has to find. Only the suite uses it, on
// a simulated device.
unsafe impl Backend for Toy {
    type Segment = Segment;
    type Page = Page;
    type Error = ToyError;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn create_stream(&self) -> Result<StreamId, ToyError> {
        let stream = self.sim.create_stream().map_err(toy)?;
        Ok(if self.has(Flaw::StreamsShareANumber) { StreamId(0) } else { stream })
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        match self.flaw {
            Some(Flaw::HasEveryStream) => true,
            Some(Flaw::HasNoStream) => false,
            _ => self.sim.has_stream(stream),
        }
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, ToyError> {
        let bytes = if self.has(Flaw::ReserveHasLess) { bytes.div_ceil(2) } else { bytes };
        self.sim.reserve(class, bytes).map_err(|error| match self.flaw {
            Some(Flaw::WrongFault) => ToyError(Fault::Other, error.to_string()),
            _ => toy(error),
        })
    }

    unsafe fn release(&self, segment: Segment) {
        if self.has(Flaw::ReleaseLeaks) {
            return drop(segment);
        }
        // SAFETY: by the caller.
        unsafe { self.sim.release(segment) }
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        let address = segment.address();
        if self.has(Flaw::SegmentsShareAnAddress) {
            let _ = self.first_address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
            return Some(self.first_address.load(Ordering::Relaxed));
        }
        Some(address)
    }

    fn mark(&self, stream: StreamId) -> Tick {
        let tick = self.sim.mark(stream);
        if self.has(Flaw::MarkStands) { Tick(1) } else { tick }
    }

    fn reached(&self, stream: StreamId) -> Result<Tick, ToyError> {
        if self.has(Flaw::ReachedRunsAhead) {
            return Ok(self.sim.mark(stream));
        }
        self.sim.reached(stream).map_err(toy)
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, ToyError> {
        let tick = self.sim.submit(stream).map_err(toy)?;
        Ok(if self.has(Flaw::SubmitAnswersLess) { Tick(tick.0 - 1) } else { tick })
    }

    fn wait(&self, point: Point) -> Result<Tick, ToyError> {
        match self.flaw {
            Some(Flaw::WaitClaimsThePoint) => Ok(point.tick),
            Some(Flaw::WaitDoesNotWait) => self.sim.reached(point.stream).map_err(toy),
            Some(Flaw::WaitAnswersNothing) => self.sim.wait(point).map(|_| Tick::ZERO).map_err(toy),
            _ => self.sim.wait(point).map_err(toy),
        }
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = ToyError>> {
        if self.sim.virtual_memory().is_some() { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = ToyError>> {
        Some(self)
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = ToyError>> {
        if self.has(Flaw::TransferIsMissing) { None } else { Some(self) }
    }

    fn budget(&self) -> Option<&dyn Budget<Error = ToyError>> {
        Some(self)
    }
}

impl VirtualMemory for Toy {
    type Segment = Segment;
    type Page = Page;
    type Error = ToyError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, ToyError> {
        self.sim.reserve_range(class, bytes).map_err(toy)
    }

    unsafe fn release_range(&self, range: Segment) {
        if self.has(Flaw::ReleaseRangeLeaks) {
            return drop(range);
        }
        // SAFETY: by the caller.
        unsafe { self.sim.release_range(range) }
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, ToyError> {
        self.sim.create_page(class, bytes).map_err(|error| match self.flaw {
            Some(Flaw::WrongFaultOfPages) => ToyError(Fault::Other, error.to_string()),
            _ => toy(error),
        })
    }

    unsafe fn release_page(&self, page: Page) {
        if self.has(Flaw::ReleasePageLeaks) {
            return drop(page);
        }
        // SAFETY: by the caller.
        unsafe { self.sim.release_page(page) }
    }

    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), ToyError> {
        let offset = if self.has(Flaw::MapIgnoresItsOffset) { 0 } else { offset };
        // SAFETY: by the caller, but for the offset, which is the flaw: a place that is taken is refused.
        unsafe { self.sim.map(range, offset, page, stream) }.map_err(toy)
    }

    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        if !self.has(Flaw::UnmapDoesNothing) {
            // SAFETY: by the caller.
            unsafe { self.sim.unmap(range, offset, page, stream) }
        }
    }
}

impl StreamWait for Toy {
    type Error = ToyError;

    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), ToyError> {
        if self.has(Flaw::StreamWaitDoesNothing) {
            return Ok(());
        }
        self.sim.wait_for(stream, point).map_err(toy)
    }
}

impl HostMemory for Toy {
    type Segment = Segment;

    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        let own = self.sim.host_address(segment)?;
        if self.has(Flaw::HostAddressIsAnothers) {
            let mut first = self.first_host.lock().expect("no test panics with it");
            let first = *first.get_or_insert(own.as_ptr().expose_provenance());
            return NonNull::new(std::ptr::with_exposed_provenance_mut(first));
        }
        Some(own)
    }
}

impl Transfer for Toy {
    type Segment = Segment;
    type Error = ToyError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), ToyError> {
        let (offset, bytes) = self.clipped(segment, offset, bytes);
        let end = offset.saturating_add(bytes);
        let (offset, bytes, value) = match self.flaw {
            Some(Flaw::FillIsAByteShort) => (offset, bytes.saturating_sub(1), value),
            Some(Flaw::FillIsAByteLong) if end < segment.bytes() => (offset, bytes + 1, value),
            Some(Flaw::FillBeginsAtZero) => (0, bytes, value),
            Some(Flaw::FillHasItsOwnValue) => (offset, bytes, value & 0x7F),
            _ => (offset, bytes, value),
        };
        self.sim.fill(stream, segment, offset, bytes, value).map_err(toy)
    }

    fn can_copy(&self, _segment: &Segment) -> bool {
        !self.has(Flaw::CanCopySaysNo)
    }

    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), ToyError> {
        let (from_at, bytes) = self.clipped(from.0, from.1, bytes);
        let (to_at, bytes) = self.clipped(to.0, to.1, bytes);
        let (from, to) = match self.flaw {
            Some(Flaw::CopySwapsItsOffsets) => ((from.0, to_at), (to.0, from_at)),
            Some(Flaw::CopyIgnoresWhereFrom) => ((from.0, 0), (to.0, to_at)),
            Some(Flaw::CopyDoesNothing) => return Ok(()),
            _ => ((from.0, from_at), (to.0, to_at)),
        };
        self.sim.copy(stream, from, to, bytes).map_err(toy)
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), ToyError> {
        let (offset, bytes) = self.clipped(segment, offset, from.len() as u64);
        let from = &from[..bytes as usize];
        match self.flaw {
            Some(Flaw::UploadDoesNothing) => Ok(()),
            Some(Flaw::UploadIgnoresItsOffset) => self.sim.upload(stream, from, segment, 0).map_err(toy),
            Some(Flaw::UploadIsAByteShort) => {
                self.sim.upload(stream, &from[..from.len().saturating_sub(1)], segment, offset).map_err(toy)
            }
            _ => self.sim.upload(stream, from, segment, offset).map_err(toy),
        }
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), ToyError> {
        let (offset, bytes) = self.clipped(segment, offset, to.len() as u64);
        let to = &mut to[..bytes as usize];
        match self.flaw {
            Some(Flaw::DownloadIgnoresItsLength) => {
                let half = to.len().div_ceil(2);
                self.sim.download(stream, segment, offset, &mut to[..half]).map_err(toy)
            }
            Some(Flaw::DownloadIgnoresItsOffset) => self.sim.download(stream, segment, 0, to).map_err(toy),
            _ => self.sim.download(stream, segment, offset, to).map_err(toy),
        }
    }
}

impl Budget for Toy {
    type Error = ToyError;

    fn budget(&self, class: ClassId) -> Result<BudgetInfo, ToyError> {
        let told = Budget::budget(&self.sim, class).map_err(toy)?;
        match self.flaw {
            Some(Flaw::BudgetIsZero) => Ok(BudgetInfo::new(0, 0)),
            Some(Flaw::BudgetIsInKib) => Ok(BudgetInfo::new(told.free_bytes >> 10, told.total_bytes)),
            // A MiB is always in use, so that no number is 0.
            Some(Flaw::BudgetIsWhatIsUsed) => {
                Ok(BudgetInfo::new(told.total_bytes - told.free_bytes + (1 << 20), told.total_bytes))
            }
            Some(Flaw::BudgetIsSwapped) => Ok(BudgetInfo::new(told.total_bytes, told.free_bytes)),
            Some(Flaw::BudgetIsFull) => Ok(BudgetInfo::new(0, told.total_bytes)),
            Some(Flaw::BudgetStands) => {
                Ok(*self.first_budget.lock().expect("no test panics with it").get_or_insert(told))
            }
            _ => Ok(told),
        }
    }
}

impl DeviceUnderTest for Toys {
    type Backend = Toy;

    fn name(&self) -> String {
        let flaw = self.flaw.map_or("nothing".to_owned(), |flaw| format!("{flaw:?}"));
        format!("a toy with {flaw} broken{}", if self.told { "" } else { ", whose author says nothing" })
    }

    fn open(&self, _need: &Need) -> Result<Toy, Unavailable> {
        let sim = Sim::builder().total_bytes(1 << 30).completion(Completion::Manual).build();
        Ok(Toy::new(sim, self.flaw))
    }

    fn hold(&self, backend: &Toy, stream: StreamId) -> bool {
        if self.holds {
            backend.sim.busy(stream);
        }
        self.holds
    }

    fn unhold(&self, backend: &Toy, stream: StreamId) {
        backend.sim.complete(stream);
    }

    fn held_bytes(&self, backend: &Toy) -> Option<u64> {
        self.told.then(|| backend.sim.held_bytes())
    }

    fn live(&self, backend: &Toy) -> Option<Live> {
        let (segments, pages, ranges) = backend.sim.live();
        self.told.then_some(Live::new(segments, pages, ranges))
    }
}
