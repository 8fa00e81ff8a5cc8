//! Snapshots: those that PyTorch writes, those of allocators, and bytes that are none.

mod any_bytes;
mod formats;
mod hostile;
mod own;
mod shared;
mod viewer;
