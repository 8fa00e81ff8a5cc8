//! The simulated device, one part of the contract to a file.

#![allow(unsafe_code)] // Calls the contract's unsafe methods.

mod capacity;
mod completion;
mod cost;
mod faults;
mod pages;
mod races;
mod timeline;
mod transfer;
