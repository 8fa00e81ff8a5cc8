//! See the crate's README.
