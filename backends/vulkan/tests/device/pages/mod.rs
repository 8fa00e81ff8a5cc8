//! Virtual memory and the memory budget, on the devices of this machine, checked by the validation layer.
//!
//! Where the device lacks a capability the tests print a line and pass, unless `MILLPOND_REQUIRE` names it.

mod bad_input;
mod budget;
mod lab;
mod moves;
mod release;
mod swarm;
