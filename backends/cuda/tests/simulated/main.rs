//! The tests of the device's own methods, those with kernels, and the conformance suite, on the simulated driver: they
//! run without a GPU, and with two devices. A program of its own, because a process has one driver.

#![cfg(target_os = "linux")] // The simulated driver exists only there.
#![allow(unsafe_code)] // The contract's unsafe methods, and the driver's own functions.

#[path = "../kernels/aid.rs"]
mod aid;
#[path = "../device/budget.rs"]
mod budget;
#[path = "../device/capture.rs"]
mod capture;
#[path = "../kernels/graphs.rs"]
mod graphs;
#[path = "../device/interop.rs"]
mod interop;
#[path = "../device/lab.rs"]
mod lab;
#[path = "../device/leaving.rs"]
mod leaving;
mod machine;
#[path = "../device/opening.rs"]
mod opening;
#[path = "../device/pages.rs"]
mod pages;
#[path = "../device/peers.rs"]
mod peers;
#[path = "../device/pinned.rs"]
mod pinned;
#[path = "../device/shares.rs"]
mod shares;
#[path = "../device/side_by_side.rs"]
mod side_by_side;
#[path = "../kernels/spin.rs"]
mod spin;
#[path = "../device/streams.rs"]
mod streams;
mod suite;
#[path = "../device/time.rs"]
mod time;
#[path = "../device/transfers.rs"]
mod transfers;
#[path = "../device/turns.rs"]
mod turns;
