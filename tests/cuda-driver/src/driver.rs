//! The driver itself: its state, and its results.

pub(crate) mod call;
pub(crate) mod capture;
pub(crate) mod code;
pub(crate) mod dma_buf;
pub(crate) mod event;
pub(crate) mod gaps;
pub(crate) mod lane;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod slots;
pub(crate) mod stop;
pub(crate) mod thread;
pub(crate) mod work;
pub(crate) mod world;
