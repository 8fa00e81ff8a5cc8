//! Tests of the lent device, by what they are about.

#[path = "../../../../backends/wgpu/tests/common/mod.rs"]
mod backend;
mod bounds;
mod common;
mod errors;
mod fresh;
mod holds;
mod indirect;
mod mapped;
mod programs;
