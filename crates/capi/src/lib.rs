#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // The C boundary: pointers of callers, and buffers that are freed by address.

mod addresses;
pub mod api;
mod boundary;
mod code;
mod device;
mod devices;
mod fork;
mod handles;
mod kind;
mod last_error;
mod places;
mod pools;
mod scopes;
mod served;
pub mod shared;
pub mod shortage;
pub mod source;
mod statistics;
mod streams;
pub mod table;
pub mod torch;
mod watch;

pub use code::Code;
