//! The errors of making a lent device.

use millpond_wgpu::WgpuError;
use wgpu::BufferUsages;

use crate::home::LENT;

/// The reason why no device could be lent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LentError {
    /// The segments of the backend lack a usage, or have one that lent buffers must not have: wgpu checks the usages
    /// of segments, and would allow it to all of them.
    #[error("segments have the usages {usage:?} and need STORAGE, with none beyond {LENT:?}: build with `usage(LENT)`")]
    Usage {
        /// The usages of the segments.
        usage: BufferUsages,
    },
    /// The allocator created no stream.
    #[error(transparent)]
    Stream(#[from] millpond::Error<WgpuError>),
}
