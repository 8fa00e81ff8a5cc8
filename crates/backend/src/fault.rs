//! The kinds of failure, coarsely.

/// The kinds of driver failure that the allocator distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// There is no memory (or address space) left for this request. A release of some may help.
    OutOfMemory,
    /// The device is lost, and no further call can succeed.
    Lost,
    /// The stream cannot do this at this moment or for this thread, without a failure: its work is being recorded into
    /// a graph, for example. The allocator avoids the operation where it can: a stream that cannot wait for the memory
    /// of another gets memory of its own.
    NotNow,
    /// Any other failure. The request fails, and the allocator's state remains valid.
    Other,
}

/// What a driver has too little of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Shortage {
    /// Memory, as far as the driver says.
    Memory,
    /// Addresses: of ranges (Vulkan's `sparseAddressSpaceSize`), or of buffers that work names by address.
    Addresses,
    /// Allocations, however small (Vulkan's `maxMemoryAllocationCount`).
    Allocations,
    /// Bytes in one allocation, however much memory is left (Vulkan's `maxMemoryAllocationSize`).
    Piece,
}

/// A driver's error. It should keep the driver's own value: the allocator passes it on to the user unchanged.
pub trait BackendError: core::error::Error + Send + Sync + 'static {
    /// Returns the coarse kind, which decides what the allocator does next. It should be [`Fault::OutOfMemory`] only
    /// when that is certain.
    fn fault(&self) -> Fault;

    /// Returns what the driver has too little of, for an error with [`Fault::OutOfMemory`]. The allocator acts alike on
    /// all of them. If it is not memory, its own error says so, with the text of this one. The default is memory.
    fn shortage(&self) -> Shortage {
        Shortage::Memory
    }
}
