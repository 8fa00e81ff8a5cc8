//! See the crate's README.

pub mod golden;
