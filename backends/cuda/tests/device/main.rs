//! What the conformance suite cannot ask: the CUDA device's own surface. On device 0 of this machine, and on device 1
//! where there is one; skipped, loudly, where there is no driver.

#![allow(unsafe_code)] // The contract's unsafe methods, and the driver's own functions.

mod budget;
mod capture;
mod interop;
mod lab;
mod leaving;
mod opening;
mod pages;
mod peers;
mod pinned;
mod side_by_side;
mod streams;
mod time;
mod transfers;
mod turns;

/// Tests run on what there is.
mod machine {
    pub(crate) const IS_SIMULATED: bool = false;

    pub(crate) fn prepare() {}
}
