//! What went wrong, coarsely.

/// The kinds of driver failure that the allocator tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// There is no memory (or address space) left for this request: releasing some may help.
    OutOfMemory,
    /// The device is gone; no further call can succeed.
    Lost,
    /// The stream cannot do this at this moment or for this thread, and nothing is wrong: its work is being recorded
    /// into a graph, for example. The allocator does without where it can: it has a stream that cannot wait for
    /// another's memory use memory of its own.
    NotNow,
    /// Anything else; the request fails, the allocator's state is unharmed.
    Other,
}

/// A driver's error. Keep the driver's own value in it: the allocator passes it through to the user unchanged.
pub trait BackendError: core::error::Error + Send + Sync + 'static {
    /// The coarse kind, which decides what the allocator does next. Say [`Fault::OutOfMemory`] only when certain.
    fn fault(&self) -> Fault;
}
