//! What the suite asks of a backend's author: a way to open the device, and some strings to pull where there are any.

use std::fmt;
use std::sync::MutexGuard;

use millpond_backend::{Backend, Fault, Point, StreamId};

/// What a scenario needs of a device before its allocator exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// How many streams will be opened, at most.
    pub streams: u32,
    /// Bytes are written and read: a simulated device must keep them.
    pub bytes: bool,
    /// Virtual memory.
    pub pages: bool,
}

/// Why a device cannot be opened for a scenario: the driver is missing, or a power is.
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

/// What of a device is in others' hands, by count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Live {
    /// Segments of all classes, without ranges of addresses.
    pub segments: u64,
    /// Pages.
    pub pages: u64,
    /// Ranges of addresses.
    pub ranges: u64,
}

/// A device that the suite is run on.
///
/// Only [`name`](Self::name) and [`open`](Self::open) must be written. Every other method is a power that some devices
/// have; a scenario that needs one is skipped, with the reason, where the method was left as it is.
pub trait DeviceUnderTest: Sync {
    /// The backend.
    type Backend: Backend;

    /// What people call it, in results.
    fn name(&self) -> String;

    /// Opens the device anew, with no stream and no memory in anybody's hands.
    ///
    /// # Errors
    ///
    /// [`Unavailable`], which skips the scenario.
    fn open(&self, need: &Need) -> Result<Self::Backend, Unavailable>;

    /// The name under which the environment may demand the device, as [`required`] tells: `vulkan`, say.
    fn requirement(&self) -> Option<&'static str> {
        None
    }

    /// What a scenario keeps until it ends, so that no other runs on the device meanwhile: for devices that share
    /// something in the process, so that work [held](Self::hold) on one would hold up another's calls. `None` lets
    /// scenarios run side by side.
    fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        None
    }

    /// Another handle of the same device, where the backend is one: it outlives the allocator that owns the first.
    fn twin(&self, _backend: &Self::Backend) -> Option<Self::Backend> {
        None
    }

    /// Submits what was recorded on the stream. A device that cannot will say so again to whoever waits for the work.
    fn submit(&self, backend: &Self::Backend, stream: StreamId) {
        let _ = backend.submit(stream);
    }

    /// Queues work on the stream that runs until [`unhold`](Self::unhold), so that what is queued behind it stays in
    /// flight. Answers whether the device can.
    fn hold(&self, _backend: &Self::Backend, _stream: StreamId) -> bool {
        false
    }

    /// Ends what [`hold`](Self::hold) began on the stream. What was queued behind it may complete now.
    fn unhold(&self, _backend: &Self::Backend, _stream: StreamId) {}

    /// Lets the oldest queued work of the stream complete, on devices where a test decides when that is.
    fn advance(&self, _backend: &Self::Backend, _stream: StreamId) {}

    /// Makes the `nth` fallible driver call, counted from 1 and from now, fail. Answers whether the device can.
    fn fail_nth(&self, _backend: &Self::Backend, _nth: u64, _fault: Fault) -> bool {
        false
    }

    /// Forgets planned failures that have not struck. To be written where the number of driver calls depends on how
    /// fast the device is.
    fn forget_faults(&self, _backend: &Self::Backend) {}

    /// How many fallible driver calls were made so far, where the device counts them as
    /// [`fail_nth`](Self::fail_nth) does.
    fn fallible_calls(&self, _backend: &Self::Backend) -> Option<u64> {
        None
    }

    /// Bytes of the device's own memory in the allocator's hands, where the device can tell exactly. Makes no driver
    /// call that [`fail_nth`](Self::fail_nth) counts.
    fn held_bytes(&self, _backend: &Self::Backend) -> Option<u64> {
        None
    }

    /// How many segments, pages and ranges are in the allocator's hands, where the device can tell exactly. Makes no driver
    /// call that [`fail_nth`](Self::fail_nth) counts. A device that grants more than it has and tells neither this nor
    /// [`held_bytes`](Self::held_bytes) cannot be certified: nothing would show what it leaks.
    fn live(&self, _backend: &Self::Backend) -> Option<Live> {
        None
    }

    /// Whether the budget counts what this device hands out, at once. It must, unless its author says that it cannot: a
    /// device in software may count what was written instead.
    fn budget_follows(&self, _backend: &Self::Backend) -> bool {
        true
    }

    /// What offsets and lengths of fills, copies and uploads must be multiples of, in bytes, as the backend's documentation
    /// says. 1 unless it says otherwise.
    fn transfer_alignment(&self) -> u64 {
        1
    }

    /// Whether device-side waits let all work that is recorded on the stream from now on begin only after the point,
    /// where the device can tell. `Some(true)` also where the point is reached.
    fn comes_after(_backend: &Self::Backend, _stream: StreamId, _point: Point) -> Option<bool>
    where
        Self: Sized,
    {
        None
    }

    /// Breaches of the contract that the device itself has seen so far.
    fn violations(&self, _backend: &Self::Backend) -> Vec<String> {
        Vec::new()
    }
}

/// Whether the environment says that something must be there: `MILLPOND_REQUIRE` is a list with commas, as
/// `vulkan,wgpu,sparse,budget`.
pub fn required(name: &str) -> bool {
    let listed = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
    listed.split(',').any(|listed| listed.trim() == name)
}

/// Opens a device for a test. Where there is none, that is said loudly.
///
/// # Panics
///
/// If the environment says that the device must be there, and it is not.
pub fn open_or_skip<D: DeviceUnderTest>(device: &D) -> Option<D::Backend> {
    match device.open(&Need::default()) {
        Ok(backend) => Some(backend),
        Err(why) => {
            let name = device.name();
            assert!(!device.requirement().is_some_and(required), "MILLPOND_REQUIRE demands {name}: {why}");
            eprintln!("SKIPPED: {name} is not there: {why}");
            None
        }
    }
}
