//! The C interface: what its headers say, and programs in C.

mod header;
mod programs;
