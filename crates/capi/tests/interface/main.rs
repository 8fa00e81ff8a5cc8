//! The C interface: what its headers say, and programs in C.

mod borrowed;
mod header;
mod programs;
