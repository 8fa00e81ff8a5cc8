//! The configuration parser: PyTorch's grammar, strictly.
//!
//! A configuration is a list of pairs, `key:value,key:value`. A value is a word or a list of pairs in brackets,
//! `key:[a:b,c:d]`. White space around words and separators is ignored. An empty text sets nothing.
//!
//! The keys are those of `PYTORCH_CUDA_ALLOC_CONF`, plus `policy`, `growth`, `slack` and `scrub`, which are Millpond's
//! own. PyTorch skips separators without a check and so accepts some malformed text; here every departure from the
//! grammar is an error that says where it is and what is accepted. Keys that control parts of PyTorch that Millpond
//! does not have are accepted, their values are checked, and they are reported in [`Parsed::ignored`].
//!
//! ```
//! use millpond_core::conf;
//!
//! let options = conf::parse("max_split_size_mb:64, roundup_power2_divisions:[256:1,512:2,>:8]").unwrap();
//! assert_eq!(options.max_split_bytes, Some(64 << 20));
//!
//! let error = conf::parse("max_split_size_mb:64,expandable_segments:true").unwrap_err();
//! assert_eq!(error.position, 41);
//! ```

mod error;
mod grammar;
mod keys;
mod value;
mod write;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use error::{ConfError, ConfErrorKind};
pub use write::write;

use crate::settings::Options;

/// The content of a configuration text.
#[derive(Clone, PartialEq, Debug)]
pub struct Parsed {
    /// The base options, with the text's values set over them.
    pub options: Options,
    /// The keys of the text that have no effect here, in the text's order, under their CUDA names. Their values were
    /// checked nevertheless.
    pub ignored: Vec<&'static str>,
}

/// Returns the keys that a text may name, in alphabetical order except for the HIP spellings, which follow the CUDA
/// ones. It costs nothing.
pub fn keys() -> impl Iterator<Item = &'static str> {
    keys::names()
}

/// Returns the options that `text` asks for, over the defaults.
///
/// The cost is a few allocations and time proportional to the text.
///
/// # Errors
///
/// Returns an error at the first departure from the grammar, or for the first value out of its range.
pub fn parse(text: &str) -> Result<Options, ConfError> {
    parse_over(Options::default(), text).map(|parsed| parsed.options)
}

/// Returns the options that `text` asks for, over `base`: what the text does not name stays as it is there.
///
/// # Errors
///
/// Returns an error as [`parse`] does, and also for a large segment size above a limit that `base` sets, since such a
/// limit would then be out of its range.
pub fn parse_over(base: Options, text: &str) -> Result<Parsed, ConfError> {
    keys::apply(base, &grammar::pairs(text)?)
}
