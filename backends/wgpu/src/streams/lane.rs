//! A lane: the state that the backend keeps per stream. Its clock is read without a lock; its open encoder is guarded
//! by one.

use std::sync::Arc;

use parking_lot::Mutex;

use super::clock::Clock;

/// The state of one stream.
pub(crate) struct Lane {
    pub(crate) clock: Arc<Clock>,
    /// The recorded work. Locked while commands are recorded and while they are submitted, so that ticks are submitted
    /// in their order.
    pub(crate) work: Mutex<Work>,
}

/// The work that was recorded on a stream and not submitted yet.
#[derive(Default)]
pub(crate) struct Work {
    /// The open encoder, made when the first command is recorded.
    pub(crate) encoder: Option<wgpu::CommandEncoder>,
    /// Bytes of staging buffers that the encoder copies from.
    pub(crate) staged_bytes: u64,
}

impl Lane {
    pub(crate) fn new() -> Lane {
        Lane { clock: Arc::new(Clock::new()), work: Mutex::new(Work::default()) }
    }
}
