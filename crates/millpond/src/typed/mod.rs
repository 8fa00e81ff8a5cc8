//! Buffers, slices and views with a type of element: lengths are counted in elements, and end at what was asked for.
//!
//! | type | what it is | costs |
//! |---|---|---|
//! | [`TypedBuffer`] | a whole buffer as elements, which owns it | nothing beside the buffer |
//! | [`Slice`] | a range of a buffer, borrowed from it | nothing; it is copied like a reference |
//! | [`View`] | a range of a buffer that keeps the buffer alive | one counted reference on the host |
//!
//! All three have a parameter for the memory that they are made over, which is [`Buffer`](crate::Buffer). They track
//! nothing: work that uses a range is recorded on the buffer ([`record_stream`](crate::Buffer::record_stream),
//! [`used_until`](crate::Buffer::used_until)) as always, and the memory is granted again only when the whole buffer is
//! dropped.
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
mod memory;
mod slice;
mod view;

pub use bytemuck::Pod;

pub use crate::error::view::ViewError;
pub use buffer::{Typed, TypedBuffer};
pub use memory::Memory;
pub use slice::{Elements, Slice};
pub use view::View;
