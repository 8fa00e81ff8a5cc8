//! All unsafe code: the functions that the library exports, the pointers that come in with them, the address space that
//! stands for the devices' memory, and the loader.

#![allow(unsafe_code)] // The only module of this package, besides its tests, that has any.

mod exports;
pub(crate) mod host;
pub(crate) mod library;
mod pointers;
pub(crate) mod reserve;
pub(crate) mod touch;
