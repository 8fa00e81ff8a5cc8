//! Aligned buffers: the block is longer than what was asked for, and the buffer begins inside it.
//!
//! The core knows nothing of this. It grants a block of an ordinary size, so a freed block serves later requests of any
//! alignment, and the cost is that of an ordinary request. What it wastes is the padding.

use std::panic::Location;

use millpond_backend::Backend;
use millpond_core::units::QUANTUM;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::state::State;
use crate::stream::Stream;

/// The largest alignment of [`Stream::allocate_aligned`], in bytes: 1 GiB, the largest page of any processor.
pub const ALIGNMENT_MAX: u64 = 1 << 30;

/// Where in its block a buffer begins: at the first multiple of an alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Start {
    /// The logarithm of the alignment, or 0 for a buffer that begins where its block does.
    log: u8,
}

impl Start {
    /// Where the block begins.
    pub(crate) const OF_BLOCK: Self = Self { log: 0 };

    /// Returns the alignment in bytes.
    pub(crate) fn alignment(self) -> u64 {
        1 << self.log
    }
}

impl<B: Backend> Stream<B> {
    /// Allocates at least `bytes` bytes that begin at a multiple of `alignment`: for images, scratch memory of
    /// acceleration structures, or direct I/O.
    ///
    /// Every buffer begins at a multiple of 512 bytes from the start of its segment, whether it was allocated here or
    /// not, and every segment begins at a multiple of its class's
    /// [`alignment`](millpond_backend::Class::alignment). For a larger alignment, a longer block is taken, by
    /// `alignment` less 512 bytes, and the buffer begins at the first multiple in it. So each such buffer wastes less
    /// than its alignment, all of it until it is dropped, and statistics, events and recordings show a request of the
    /// longer size. The cost is that of [`allocate`](Self::allocate), and any free block may serve the request.
    ///
    /// What is aligned is the [`address`](Buffer::address) on CUDA and the simulated device, and the
    /// [`offset`](Buffer::offset) in the segment on Vulkan and on devices without addresses. The buffer keeps its place
    /// when it [grows](Buffer::grow).
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let stream = Allocator::new(Sim::new()).create_stream()?;
    /// let _first = stream.allocate(512)?;
    /// let scratch = stream.allocate_aligned(100_000, 64 << 10)?;
    /// assert_eq!(scratch.len(), 100_000);
    /// assert!(scratch.address().is_some_and(|address| address.is_multiple_of(64 << 10)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Alignment`] unless `alignment` is a power of two of at most 1 GiB
    /// ([`ALIGNMENT_MAX`](crate::ALIGNMENT_MAX)); otherwise those of [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_aligned(&self, bytes: u64, alignment: u64) -> Result<Buffer<B>, Error<B::Error>> {
        if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
            return Err(Error::Alignment { alignment, max: ALIGNMENT_MAX });
        }
        let start = Start { log: alignment.ilog2() as u8 };
        let padding = self.lane().owner().padding(start);
        if bytes == 0 || padding == 0 {
            return self.allocate(bytes);
        }
        let site = Location::caller();
        let allocated = self.allocate_at_site(bytes.saturating_add(padding), site);
        let mut buffer = allocated.map_err(|error| match error {
            Error::TooLarge { .. } => Error::TooLarge { requested: bytes },
            Error::OutOfMemory(refused) => Error::OutOfMemory(Box::new(refused.aligned(bytes, alignment))),
            error => error,
        })?;
        buffer.begin_at(start, bytes);
        Ok(buffer)
    }
}

impl<B: Backend> State<B> {
    /// Returns by how many bytes a block has to be longer than a buffer that begins there.
    pub(crate) fn padding(&self, start: Start) -> u64 {
        let blocks = match self.backend.aligns_offsets() {
            true => QUANTUM,
            false => QUANTUM.min(self.backend.caps().class(self.class).alignment),
        };
        start.alignment().saturating_sub(blocks)
    }
}
