//! The simulated device as a device under test. It supports everything that the suite can ask for.

use std::fmt::Write as _;

use millpond_backend::{Closing, Fault, PageCaps, Point, Reuse, StreamId};
use millpond_sim::{CallKind, Completion, CostModel, Sim, StreamOrder};

use crate::device::{DeviceUnderTest, Live, Need, Unavailable};

/// The memory size of the suite's simulated devices, in bytes.
const TOTAL_BYTES: u64 = 1 << 30;

/// The byte that fills their memory when it comes from the driver. It stands for arbitrary contents.
const FRESH: u8 = 0x5F;

/// The pages of simulated devices unless said otherwise: those of CUDA.
const PAGES: PageCaps = PageCaps::new(2 << 20);

/// The bytes of addresses that simulated devices have for ranges unless said otherwise.
const ADDRESS_BYTES: u64 = 1 << 47;

/// A simulated device of one kind, of 1 GiB unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimDevice {
    closing: Closing,
    reuse: Reuse,
    completion: Completion,
    pages: Option<PageCaps>,
    stream_wait: bool,
    order: StreamOrder,
    total_bytes: u64,
    address_bytes: u64,
}

impl SimDevice {
    /// Creates a device that closes ticks, promises reuse and completes work in these ways. It has pages of 2 MiB that
    /// may be mapped twice, and its streams can wait for each other.
    pub const fn new(closing: Closing, reuse: Reuse, completion: Completion) -> Self {
        let order = StreamOrder::Always;
        let (pages, stream_wait, total_bytes, address_bytes) = (Some(PAGES), true, TOTAL_BYTES, ADDRESS_BYTES);
        Self { closing, reuse, completion, pages, stream_wait, order, total_bytes, address_bytes }
    }

    /// Creates a device with this number of bytes that closes ticks itself, reuses in order and completes its work at
    /// once.
    pub const fn immediate(total_bytes: u64) -> Self {
        Self { total_bytes, ..Self::new(Closing::Backend, Reuse::InOrder, Completion::Immediate) }
    }

    /// Returns the same device with these pages, or without pages.
    pub const fn pages(self, pages: Option<PageCaps>) -> Self {
        Self { pages, ..self }
    }

    /// Returns the same device with pages of another granularity, in bytes, a power of two. They may be mapped twice.
    pub const fn granularity(self, granularity: u64) -> Self {
        self.pages(Some(PageCaps::new(granularity)))
    }

    /// Returns the same device with pages of 2 MiB that can be mapped at only one place at a time.
    pub const fn without_aliasing(self) -> Self {
        self.pages(Some(PAGES.with_aliasing(false)))
    }

    /// Returns the same device with another value of [`PageCaps::mappings`], if it has pages.
    pub const fn mappings(self, mappings: u64) -> Self {
        let pages = match self.pages {
            Some(pages) => Some(pages.with_mappings(mappings)),
            None => None,
        };
        Self { pages, ..self }
    }

    /// Returns the same device with this many bytes of addresses for ranges, which it does not report.
    pub const fn addresses(self, address_bytes: u64) -> Self {
        Self { address_bytes, ..self }
    }

    /// Returns the same device without waits between streams on the device, so that they wait for each other through
    /// the host.
    pub const fn without_stream_wait(self) -> Self {
        Self { stream_wait: false, ..self }
    }

    /// Returns the same device with streams that keep order at other addresses of the same memory by submits alone,
    /// like those of wgpu. Its ticks are closed by submits, and it reuses in order.
    pub const fn tracking(self) -> Self {
        let pages = match self.pages {
            Some(pages) => Some(pages.with_alias_reuse(Reuse::AfterSubmit)),
            None => None,
        };
        let (closing, reuse) = (Closing::Submit, Reuse::InOrder);
        Self { order: StreamOrder::Tracked, pages, closing, reuse, ..self }
    }

    /// Returns the same device with streams that keep order only after barriers, like those of Vulkan.
    pub const fn with_barriers(self) -> Self {
        Self { order: StreamOrder::Barriers, ..self }
    }

    /// Returns every kind of device: both ways of closing ticks, all three of reuse, and all three of completing work.
    /// Also returns the kinds of virtual memory and of order within a stream, on devices whose work does not complete
    /// at once.
    pub fn all() -> Vec<SimDevice> {
        let mut all = Vec::new();
        for closing in [Closing::Backend, Closing::Submit] {
            for reuse in [Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone] {
                for completion in [Completion::Immediate, Completion::Manual, Completion::Seeded(1)] {
                    all.push(Self::new(closing, reuse, completion));
                }
            }
        }
        let manual = Self::new(Closing::Backend, Reuse::InOrder, Completion::Manual);
        let seeded = Self { completion: Completion::Seeded(7), ..manual };
        let submits = Self { closing: Closing::Submit, ..seeded };
        all.extend([
            manual.without_aliasing(),
            manual.without_stream_wait(),
            seeded.without_aliasing().without_stream_wait(),
            submits.without_aliasing(),
            submits.without_stream_wait(),
            seeded.granularity(64 << 10),
            manual.granularity(4 << 20),
            manual.pages(None),
            manual.tracking(),
            seeded.tracking(),
            seeded.tracking().without_stream_wait(),
            manual.with_barriers(),
            submits.with_barriers(),
        ]);
        all
    }
}

impl DeviceUnderTest for SimDevice {
    type Backend = Sim;

    fn name(&self) -> String {
        let mut name = String::from("simulated");
        match self.pages {
            Some(pages) if pages.granularity != PAGES.granularity => {
                let _ = write!(name, ", pages of {} KiB", pages.granularity >> 10);
            }
            None => name.push_str(", no pages"),
            Some(_) => {}
        }
        if self.pages.is_some_and(|pages| !pages.aliasing) {
            name.push_str(", no aliasing");
        }
        if let Some(pages) = self.pages.filter(|pages| pages.mappings != PAGES.mappings) {
            let _ = write!(name, ", {} mappings", pages.mappings);
        }
        if self.address_bytes != ADDRESS_BYTES {
            let _ = write!(name, ", {} MiB of addresses", self.address_bytes >> 20);
        }
        if !self.stream_wait {
            name.push_str(", no stream waits");
        }
        match self.order {
            StreamOrder::Always => {}
            StreamOrder::Tracked => name.push_str(", order by buffers and submits"),
            StreamOrder::Barriers => name.push_str(", order by barriers"),
        }
        let Self { closing, reuse, completion, .. } = self;
        let _ = write!(name, ", closing by {closing:?}, reuse {reuse:?}, completion {completion:?}");
        name
    }

    fn open(&self, _need: &Need) -> Result<Sim, Unavailable> {
        let sim = Sim::builder()
            .total_bytes(self.total_bytes)
            .cost(CostModel::free())
            .fresh(FRESH)
            .closing(self.closing)
            .reuse(self.reuse)
            .completion(self.completion)
            .stream_order(self.order)
            .needs_barrier(self.order == StreamOrder::Barriers)
            .pages(self.pages)
            .address_space_bytes(self.address_bytes)
            .stream_wait(self.stream_wait)
            .build();
        Ok(sim)
    }

    fn twin(&self, backend: &Sim) -> Option<Sim> {
        Some(backend.clone())
    }

    fn hold(&self, backend: &Sim, stream: StreamId) -> bool {
        backend.busy(stream);
        true
    }

    fn unhold(&self, backend: &Sim, stream: StreamId) {
        self.submit(backend, stream);
        backend.complete(stream);
    }

    fn advance(&self, backend: &Sim, stream: StreamId) {
        backend.complete_one(stream);
    }

    fn fail_nth(&self, backend: &Sim, nth: u64, fault: Fault) -> bool {
        backend.fail_any(nth, fault);
        true
    }

    fn fallible_calls(&self, backend: &Sim) -> Option<u64> {
        let calls = backend.calls();
        Some(CallKind::ALL.iter().filter(|kind| kind.fallible()).map(|&kind| calls.of(kind)).sum())
    }

    fn held_bytes(&self, backend: &Sim) -> Option<u64> {
        Some(backend.held_bytes())
    }

    fn live(&self, backend: &Sim) -> Option<Live> {
        let (segments, pages, ranges) = backend.live();
        Some(Live::new(segments, pages, ranges))
    }

    fn comes_after(backend: &Sim, stream: StreamId, point: Point) -> Option<bool> {
        Some(backend.comes_after(stream, point))
    }

    fn place_barrier(backend: &Sim, stream: StreamId) {
        backend.place_barrier(stream);
    }

    fn violations(&self, backend: &Sim) -> Vec<String> {
        backend.violations().iter().map(ToString::to_string).collect()
    }
}
