//! What the conformance suite cannot ask: the CUDA device's own surface. On device 0 of this machine, and on device 1 where
//! there is one; skipped, loudly, where there is no driver.

#![allow(clippy::unwrap_used)] // A test that cannot go on says so by panicking.

mod capture;
mod interop;
mod lab;
mod leaving;
mod opening;
mod pages;
mod streams;
mod time;
mod transfers;
