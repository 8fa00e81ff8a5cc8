//! Virtual memory and the memory budget, on whatever device there is, with the validation layer watching.
//!
//! Where the device lacks a power the tests say so and pass, unless `MILLPOND_REQUIRE` names it.
#![allow(unsafe_code)] // The contract's unsafe methods, as the allocator calls them.

mod bad_input;
mod budget;
mod lab;
mod moves;
mod release;
mod swarm;
