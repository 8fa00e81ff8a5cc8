//! What is known of a device before it is used: the facts that every wgpu device has, and those that its limits give.

use millpond_backend::{Caps, Class, ClassKind, Closing, Reuse};

/// The unit of buffers and copies in bytes: `wgpu::COPY_BUFFER_ALIGNMENT`.
pub(crate) const WORD: u64 = wgpu::COPY_BUFFER_ALIGNMENT;
/// The memory that the device is assumed to have where it is not known: 8 GiB.
pub(crate) const TOTAL_BYTES: u64 = 8 << 30;
/// The least alignment of segments in bytes. Each segment starts a buffer, so its start is a multiple of any number.
const ALIGNMENT: u64 = 512;

/// Returns the facts about a device with these limits.
pub(crate) fn caps(name: String, limits: &wgpu::Limits, total_bytes: u64) -> Caps {
    let class = |name: &str| Class {
        name: name.to_owned(),
        kind: ClassKind::Device,
        alignment: ALIGNMENT,
        max_segment_bytes: limits.max_buffer_size / WORD * WORD,
        total_bytes,
    };
    Caps {
        name,
        classes: vec![class("device"), class("exclusive")],
        reuse: Reuse::InOrder,
        // wgpu places barriers itself.
        needs_barrier: false,
        closing: Closing::Submit,
        release_waits: false,
        oversubscribes: false,
        pages: None,
        stream_wait: true,
        host_memory: false,
        transfer: true,
        budget: false,
    }
}
