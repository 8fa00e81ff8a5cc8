//! Buffers, slices and views with a type of element: lengths are counted in elements, and end at what was asked for.
//!
//! | type | what it is | costs |
//! |---|---|---|
//! | [`TypedBuffer`] | a whole buffer as elements, which owns it | nothing beside the buffer |
//! | [`Slice`] | a range of a buffer, borrowed from it | nothing; it is copied like a reference |
//! | [`View`] | a range of a buffer that keeps the buffer alive | one counted reference on the host |
//!
//! All three have a parameter for the memory that they are made over, which is [`Buffer`] here and `AnyBuffer` in
//! `millpond-any`. They track nothing: work that uses a range is recorded on the buffer
//! ([`Buffer::record_stream`], [`Buffer::used_until`]) as ever, and the memory is granted again only when the whole
//! buffer is dropped.
//!
//! The elements are of any type that is [`Pod`]: integers, `f32`, `f64`, arrays of them, structures that derive it, and
//! `f16` and `bf16` of the crate `half` where that is built with its feature `bytemuck`.
//!
//! ```
//! use millpond::Allocator;
//! use millpond::typed::TypedBuffer;
//! use millpond_sim::Sim;
//!
//! let stream = Allocator::new(Sim::new()).create_stream()?;
//! let weights: TypedBuffer<f32, Sim> = stream.allocate_from(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! assert_eq!(weights.len(), 6);
//!
//! // A row, borrowed.
//! stream.upload_elements(&weights.slice(3..)?, &[7.0, 8.0, 9.0])?;
//! assert_eq!(stream.download_vec(&weights)?, [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]);
//!
//! // Two halves that may outlive each other; the buffer is dropped with the last of them.
//! let whole = weights.share();
//! let (first, second) = (whole.slice(..3)?, whole.slice(3..)?);
//! drop((whole, first));
//! assert_eq!(stream.download_vec(&second.cast::<u32>()?)?, [7.0f32, 8.0, 9.0].map(f32::to_bits));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffer;
mod error;
mod slice;
mod view;

pub use bytemuck::Pod;

pub use buffer::Typed;
pub use error::ViewError;
pub use slice::{Elements, Slice};
pub use view::View;

use millpond_backend::Backend;

use crate::buffer::Buffer;

/// A buffer of elements of a device of the backend `B`.
pub type TypedBuffer<T, B> = Typed<T, Buffer<B>>;

/// Memory that typed buffers, slices and views are made over. Buffers are such memory; a program has no need to
/// implement it.
pub trait Memory {
    /// Returns the requested size in bytes, at which every range ends.
    fn len(&self) -> u64;

    /// Returns whether it has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns its offset in its segment, in bytes.
    fn offset(&self) -> u64;

    /// Returns its device address, where there is one.
    fn address(&self) -> Option<u64>;
}

impl<B: Backend> Memory for Buffer<B> {
    fn len(&self) -> u64 {
        self.len()
    }

    fn offset(&self) -> u64 {
        self.offset()
    }

    fn address(&self) -> Option<u64> {
        self.address()
    }
}

/// Returns the size of an element in bytes. Elements without bytes do not compile, because a length in bytes would say
/// nothing about their number.
const fn size_of_element<T>() -> u64 {
    const { assert!(size_of::<T>() > 0, "an element has at least one byte") };
    size_of::<T>() as u64
}
