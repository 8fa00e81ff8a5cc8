//! What the allocator promises, with kernels that run: on device 0 of this machine, skipped with a message where there
//! is no driver. This is a program of its own, because a test beside these that waits for the whole device would wait
//! for their kernels, and would make the driver delay them.

#![allow(unsafe_code)] // The contract's unsafe methods, and the driver's own functions.

mod aid;
mod graphs;
#[path = "../device/lab.rs"]
#[expect(dead_code, reason = "these tests need neither a second device nor all short forms")]
mod lab;
mod machine;
mod spin;
#[path = "../device/turns.rs"]
mod turns;
