//! Names for things that cross the contract.

use core::fmt;

/// A memory class of a device: an index into [`Caps::classes`](crate::Caps::classes).
///
/// Class 0 is always the device's own memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClassId(pub u16);

impl ClassId {
    /// The device's own memory, present in every backend.
    pub const DEVICE: ClassId = ClassId(0);
}

/// A stream of one backend: a CUDA stream, a Vulkan or wgpu queue, a lane of the simulated device.
///
/// Dense numbers from 0 in the order of registration, and **never reused**, whatever the driver does with its own
/// handles: a number that came back would attach old points to new work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// A moment of one stream: a number that only rises. Tick 0 lies before all work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// Before any work: reached from the start on every stream.
    pub const ZERO: Tick = Tick(0);
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// "Everything on that stream up to here."
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Point {
    /// Whose work.
    pub stream: StreamId,
    /// Up to which tick, inclusive.
    pub tick: Tick,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tick {}", self.stream, self.tick)
    }
}
