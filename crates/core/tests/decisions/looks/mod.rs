//! Operations of other threads during a plan: before any of its looks at a shard, and between any two of its steps.
//!
//! An account of all memory is kept beside the allocator: no two live blocks share a byte, nothing is granted before
//! its time, nothing goes back to the driver while work may use it, and nothing is lost.

mod account;
mod cases;
mod clock;
mod counts;
mod every_look;
mod scene;
mod seeded;
mod world;
