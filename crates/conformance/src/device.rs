//! What the suite needs from a backend's author: a function that opens the device, and controls for tests where the
//! device has any.

use std::fmt;
use std::sync::MutexGuard;

use millpond_backend::{Backend, Caps, Fault, Point, StreamId, Tick};

/// The needs of a scenario, stated before its allocator exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Need {
    /// The most streams that will be opened.
    pub streams: u32,
    /// Whether bytes are written and read.
    pub bytes: bool,
    /// Whether virtual memory is needed.
    pub pages: bool,
}

/// Why a device cannot be opened for a scenario: the driver or an ability is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unavailable(
    /// The reason, as a sentence for people.
    pub String,
);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The number of objects of a device that its callers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Live {
    /// Segments of all classes, without ranges of addresses.
    pub segments: u64,
    /// Pages.
    pub pages: u64,
    /// Ranges of addresses.
    pub ranges: u64,
}

impl Live {
    /// Creates the three numbers. A device that has no virtual memory has 0 pages and 0 ranges.
    pub const fn new(segments: u64, pages: u64, ranges: u64) -> Self {
        Self { segments, pages, ranges }
    }
}

/// A device that the suite is run on.
///
/// Only [`name`](Self::name) and [`open`](Self::open) must be written. Every other method is an ability that some
/// devices have. Scenarios that need a method with its default are skipped, with the reason.
pub trait DeviceUnderTest: Sync {
    /// The backend.
    type Backend: Backend;

    /// Returns the device's name, as results show it.
    fn name(&self) -> String;

    /// Opens the device anew, with no stream and no memory in use.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] if the device cannot be opened for the scenario, which is then skipped.
    fn open(&self, need: &Need) -> Result<Self::Backend, Unavailable>;

    /// Returns the name under which the environment may require the device (see [`required`]), for example `vulkan`.
    fn requirement(&self) -> Option<&'static str> {
        None
    }

    /// Returns a guard that a scenario keeps until it ends, so that no other scenario runs on the device at the same
    /// time. This is for devices that share something in the process, so that work [held](Self::hold) on one would
    /// block the calls of another, or that must not be opened on one thread while another uses them. `None` lets
    /// scenarios run side by side.
    fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        None
    }

    /// Returns another handle of the same device, where the backend is a handle. It outlives the allocator that owns
    /// the first. Where a scenario runs once for each driver call, further runs use it, and need not open the device.
    fn twin(&self, _backend: &Self::Backend) -> Option<Self::Backend> {
        None
    }

    /// Submits what was recorded on the stream. An error is ignored here: a device that cannot submit reports it again
    /// when the work is waited for.
    fn submit(&self, backend: &Self::Backend, stream: StreamId) {
        let _ = backend.submit(stream);
    }

    /// Queues work on the stream that runs until [`unhold`](Self::unhold), so that what is queued behind it stays in
    /// flight. Returns whether the device can do this.
    fn hold(&self, _backend: &Self::Backend, _stream: StreamId) -> bool {
        false
    }

    /// Ends what [`hold`](Self::hold) began on the stream. Work queued behind it may complete now.
    fn unhold(&self, _backend: &Self::Backend, _stream: StreamId) {}

    /// Lets the oldest queued work of the stream complete, on devices where a test decides when that is.
    fn advance(&self, _backend: &Self::Backend, _stream: StreamId) {}

    /// Makes the `nth` fallible driver call from now on fail, counted from 1. Returns whether the device can do this.
    fn fail_nth(&self, _backend: &Self::Backend, _nth: u64, _fault: Fault) -> bool {
        false
    }

    /// Forgets planned failures that have not occurred yet. A device implements this where the number of driver calls
    /// depends on its speed.
    fn forget_faults(&self, _backend: &Self::Backend) {}

    /// Returns the number of fallible driver calls made so far, where the device counts them as
    /// [`fail_nth`](Self::fail_nth) does.
    fn fallible_calls(&self, _backend: &Self::Backend) -> Option<u64> {
        None
    }

    /// Returns the bytes of the device's own memory that its callers hold, where the device knows this exactly. Makes
    /// no driver call that [`fail_nth`](Self::fail_nth) counts.
    fn held_bytes(&self, _backend: &Self::Backend) -> Option<u64> {
        None
    }

    /// Returns the number of segments, pages and ranges that the device's callers hold, where the device knows this
    /// exactly. Makes no driver call that [`fail_nth`](Self::fail_nth) counts. A device that grants more than it has
    /// and implements neither this nor [`held_bytes`](Self::held_bytes) cannot be certified, because leaks would not
    /// show.
    fn live(&self, _backend: &Self::Backend) -> Option<Live> {
        None
    }

    /// Returns whether the budget counts at once what this device hands out. It must, unless its author states that it
    /// cannot: a device in software may count what was written instead.
    fn budget_follows(&self, _backend: &Self::Backend) -> bool {
        true
    }

    /// Returns the number of bytes of which offsets and lengths of fills, copies and uploads must be multiples, as the
    /// backend's documentation states. The default is 1.
    fn transfer_alignment(&self) -> u64 {
        1
    }

    /// Returns the newest tick of the stream that is complete, where [`Backend::reached`] may return an older one while
    /// another thread asks: this may wait for that thread, and must not wait for the device. The shadow oracle asks it.
    /// A grant may say [`Complete`](millpond::Readiness::Complete) because its own stream is past a device-side wait,
    /// and the progress of the stream that was waited for must then be known as well.
    ///
    /// # Errors
    ///
    /// The backend's, as [`Backend::reached`] returns them.
    fn reached(backend: &Self::Backend, stream: StreamId) -> Result<Tick, <Self::Backend as Backend>::Error>
    where
        Self: Sized,
    {
        backend.reached(stream)
    }

    /// Returns whether all work recorded on the stream from now on begins only after the point because of device-side
    /// waits, where the device knows this. It is also `Some(true)` where the point is reached.
    fn comes_after(_backend: &Self::Backend, _stream: StreamId, _point: Point) -> Option<bool>
    where
        Self: Sized,
    {
        None
    }

    /// Places a barrier over all memory on the stream. It is called where a grant says
    /// [`NeedsBarrier`](millpond::Readiness::NeedsBarrier), before the memory is used. Devices implement this if their
    /// transfers do not place a barrier themselves.
    fn place_barrier(_backend: &Self::Backend, _stream: StreamId)
    where
        Self: Sized,
    {
    }

    /// Returns the breaches of the contract that the device itself has detected so far.
    fn violations(&self, _backend: &Self::Backend) -> Vec<String> {
        Vec::new()
    }
}

/// Returns whether the environment requires this device or ability: `MILLPOND_REQUIRE` is a list separated by commas,
/// for example `vulkan,wgpu,sparse,budget`.
pub fn required(name: &str) -> bool {
    let listed = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
    listed.split(',').any(|listed| listed.trim() == name)
}

/// Opens a device in its [turn](DeviceUnderTest::turn) and returns what it can do.
pub(crate) fn caps_of<D: DeviceUnderTest>(device: &D) -> Result<Caps, Unavailable> {
    let _turn = device.turn();
    device.open(&Need::default()).map(|backend| backend.caps().clone())
}

/// Returns what a device can do, for a test. Where there is no such device, the test's output reports that.
///
/// # Panics
///
/// If the environment requires the device and it cannot be opened.
pub fn caps_or_skip<D: DeviceUnderTest>(device: &D) -> Option<Caps> {
    match caps_of(device) {
        Ok(caps) => Some(caps),
        Err(why) => {
            let name = device.name();
            assert!(!device.requirement().is_some_and(required), "MILLPOND_REQUIRE demands {name}: {why}");
            eprintln!("SKIPPED: {name} is not there: {why}");
            None
        }
    }
}
