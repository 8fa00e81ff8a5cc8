//! Tests that cross crates, and what they share.
//!
//! The tests themselves are in `tests/`; here is what more than one of them needs: the naive model and the allocator
//! beside it, programs made of operations, and the rules that `tests/tidy/rules.rs` applies to the whole repository.

pub mod lexer;
pub mod mix;
pub mod model;
pub mod mutants;
pub mod pair;
pub mod program;
pub mod tidy;
pub mod workspace;
