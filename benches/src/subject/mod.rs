//! The subjects of the measurements: this allocator, its peers, and floors that no allocator can go below.

#[cfg(feature = "peers")]
mod cubecl;
#[cfg(feature = "erased")]
mod erased;
mod floor;
mod millpond;
#[cfg(feature = "peers")]
mod offset;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use ::millpond::settings::Policy;

#[cfg(feature = "peers")]
pub use self::cubecl::Cubecl;
#[cfg(feature = "erased")]
pub use self::erased::Erased;
pub use self::floor::{Malloc, MutexPair};
pub use self::millpond::{CLASSIC, EXPANDABLE, Millpond, PAGED};
#[cfg(feature = "peers")]
pub use self::offset::{Offset, SharedOffset};

/// The bytes of the device that every subject allocates from: 2 TiB, which is what offset-allocator's 32 bits reach in
/// units of 512 bytes, and more than any workload needs.
pub const DEVICE_BYTES: u64 = 512 * (u32::MAX as u64);

/// An allocator, or a floor, that is measured.
pub trait Subject {
    /// A block, as a user of the allocator would keep it.
    type Block;

    /// Allocates a block of at least `bytes` bytes.
    ///
    /// # Panics
    ///
    /// If it has none, as a measurement of refusals would mean nothing.
    fn allocate(&mut self, bytes: u64, stream: u16) -> Self::Block;

    /// Frees a block.
    fn free(&mut self, block: Self::Block);

    /// Returns the number of driver calls since it was made, or `None` if it does not count them.
    fn driver_calls(&self) -> Option<u64> {
        None
    }
}

/// The names of the subjects.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// This allocator.
    Millpond(Policy),
    /// The crate `offset-allocator` over one range: no lock, no streams, no statistics.
    Offset,
    /// `offset-allocator` behind one mutex for all threads.
    SharedOffset,
    /// CubeCL's `MemoryManagement` over a storage that only counts.
    Cubecl,
    /// This allocator on a device of `millpond-any`.
    Erased(Policy),
    /// A mutex locked and unlocked for each operation.
    MutexPair,
    /// 64 bytes of host memory, whatever size is requested.
    Malloc,
}

impl Kind {
    /// Returns its name in the record.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Kind::Millpond(policy) => format!("millpond {}", policy.variant_name()).into(),
            Kind::Offset => "offset-allocator".into(),
            Kind::SharedOffset => "mutex + offset-allocator".into(),
            Kind::Cubecl => "cubecl".into(),
            Kind::Erased(policy) => format!("any {}", policy.variant_name()).into(),
            Kind::MutexPair => "mutex pair".into(),
            Kind::Malloc => "malloc 64 B".into(),
        }
    }
}
