//! What crosses crates: the allocator beside models of it, under faults, on threads, and on several devices.

mod bad_input;
mod budget;
mod contention;
mod determinism;
mod faults;
mod files;
mod frozen;
mod model;
mod page_stats;
mod paged;
mod pinned;
mod planted;
mod put_off;
mod sameness;
mod sleep;
mod threads;
