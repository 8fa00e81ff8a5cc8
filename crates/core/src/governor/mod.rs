//! How much memory is created, and how large its pages are: numbers in, numbers out.

pub(crate) mod pace;
pub(crate) mod sizes;
