//! The operations of a program that uses an allocator, as data: one language, one seeded generator, and the search for
//! a shorter program that fails in the same way.
//!
//! A [`Mix`] says how frequent each kind of operation is and how large blocks are; a [`Generator`] draws operations
//! from it while the program runs, because the next operation depends on the blocks that exist. Different checks run
//! the same operations: the [swarm](crate::swarm) under the shadow oracle, others beside a model of PyTorch's
//! allocator or with driver calls that fail. Each performs the operations that its check can follow, and says so where
//! it is given another.

mod generator;
mod mix;
mod operation;
mod shrink;

pub use generator::Generator;
pub use mix::{Kind, Mix, Sizes};
pub use operation::{Noted, Operation};
pub use shrink::{Shortest, shrink};

pub(crate) use generator::FAULT_WITHIN;
