//! Slices: owned, typed memory of an allocator for cudarc, and the streams of an application that use it.
//!
//! The room refuses to know kernels, and where memory comes from: both are the caller's and the allocator's.

mod arguments;
mod owned;
mod streams;
mod uses;
mod views;

pub use arguments::OnStream;
pub use owned::Slice;
pub use streams::{SliceAllocator, SliceStream};
pub use views::{SliceView, SliceViewMut};
