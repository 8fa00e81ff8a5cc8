//! Tests of the CUDA device's own methods, which the conformance suite cannot cover. They run on device 0 of this
//! machine, and on device 1 where there is one; without a driver they are skipped with a message.

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
#[cfg(unix)]
mod shares;
mod side_by_side;
mod streams;
mod time;
mod transfers;
mod turns;

/// The devices of this machine, as they are.
mod machine {
    pub(crate) const IS_SIMULATED: bool = false;

    pub(crate) fn prepare() {}
}
