//! Pages: virtual memory by sparse binding.

mod binds;
mod notes;
mod page;
mod space;

pub(crate) use binds::Binds;
pub use page::Page;
pub(crate) use space::{Pages, Sparse};
