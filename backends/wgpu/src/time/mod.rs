//! Time: submits, and what is done.

mod completion;
#[cfg_attr(
    not(all(feature = "vulkan", not(target_vendor = "apple"), not(target_family = "wasm"))),
    path = "no_hint.rs"
)]
mod hint;
mod state;
mod submit;

#[cfg(test)]
pub(crate) use hint::Hint;
pub(crate) use state::Time;
