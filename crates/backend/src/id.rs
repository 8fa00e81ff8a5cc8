//! The ids of things that backends and the allocator both use.

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
/// The numbers are dense, from 0 in the order of registration, and **never reused**, whatever the driver does with its
/// own handles: a number that was reused would connect old points with new work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// A moment in the work of one stream: a number that only rises. Tick 0 is before all work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment before any work, reached from the start on every stream.
    pub const ZERO: Tick = Tick(0);
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A stream and a tick: everything on that stream up to here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Point {
    /// The stream.
    pub stream: StreamId,
    /// The tick up to which the work is included, with the tick itself.
    pub tick: Tick,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tick {}", self.stream, self.tick)
    }
}
