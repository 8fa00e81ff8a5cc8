//! The tests of the device's own surface once more, and the conformance suite, on the simulated driver: where there is
//! no GPU, and with two devices.

#![cfg(target_os = "linux")] // Where the simulated driver is.
#![allow(unsafe_code)] // The contract's unsafe methods, and the driver's own functions.

#[path = "../device/capture.rs"]
mod capture;
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
#[path = "../device/pinned.rs"]
mod pinned;
#[path = "../device/streams.rs"]
mod streams;
mod suite;
#[path = "../device/time.rs"]
mod time;
#[path = "../device/transfers.rs"]
mod transfers;
