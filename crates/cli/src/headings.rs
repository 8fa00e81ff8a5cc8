//! The headings that pages of help have in common.

/// Where traces come from, on a page of help.
pub(crate) const INPUT: &str = "Input";
/// What a command runs on.
pub(crate) const DEVICE: &str = "Device";
/// How memory is managed, and how much of it there may be.
pub(crate) const POLICY: &str = "Policy";
/// How a program is run.
pub(crate) const LOAD: &str = "Load";
/// What is printed and written.
pub(crate) const OUTPUT: &str = "Output";
