//! The books of the whole device: what is reserved, what freed memory waits for, the peaks, and the pages.
//!
//! Each book is a type with private fields. It changes through verbs that keep it consistent, and it can check itself.

pub(crate) mod headroom;
pub(crate) mod pages;
mod paging;
pub(crate) mod pending;
pub(crate) mod pools;
pub(crate) mod turns;
mod windows;

pub(crate) use headroom::Headroom;
pub(crate) use headroom::{Addresses, Ranges};
pub use pages::PageCall;
pub(crate) use pages::{Page, Pages};
pub(crate) use paging::Paging;
pub(crate) use pending::Pending;
pub use pending::Points;
pub use pending::Polled;
pub(crate) use pools::Pools;
pub(crate) use turns::{Standing, Turns};
pub(crate) use windows::{Part, Window, WindowPart, Windows};
