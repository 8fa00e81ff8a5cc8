//! The core alone, stepped by hand: what it decides, and that its structures agree with each other.

mod appeals;
mod changes;
mod checkpoints;
mod claims;
mod contention;
mod driver;
mod grants;
mod interleave;
mod looks;
mod paged;
mod pools;
mod rules;
mod sourced;
mod swaps;
mod turns;
