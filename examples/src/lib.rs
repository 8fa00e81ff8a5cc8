//! The examples are the numbered files beside this folder; see the README. Here the top README's own example is tested.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
