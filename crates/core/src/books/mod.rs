//! The books of the whole device: what is reserved, what freed memory waits for, the peaks, and the pages.
//!
//! Each book changes through verbs that keep it consistent, and it can check itself. Others at most read its fields.

mod groups;
pub(crate) mod headroom;
mod idle;
pub(crate) mod pages;
mod paging;
pub(crate) mod pending;
pub(crate) mod pools;
mod scopes;
pub(crate) mod turns;
mod windows;

pub(crate) use groups::Groups;
pub use groups::{GroupState, Member};
pub(crate) use headroom::{Addresses, Headroom, Ranges};
pub(crate) use idle::{Idle, Watch};
pub use pages::PageCall;
pub(crate) use pages::Pages;
pub(crate) use paging::Paging;
pub(crate) use pending::Pending;
pub use pending::{Points, Polled};
pub(crate) use pools::Pools;
pub(crate) use scopes::{Highs, Scopes};
pub(crate) use turns::{Standing, Turns};
pub(crate) use windows::{Part, Window, WindowPart, Windows};
