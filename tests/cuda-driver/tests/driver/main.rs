//! The CUDA simulator, through the bindings that the CUDA backend uses. No GPU is needed, and none is touched.

#![allow(unsafe_code)] // The bindings are a foreign interface.
#![cfg(target_os = "linux")]

mod aid;
mod capture;
mod faults;
mod memory;
mod pages;
mod streams;
mod whole;
