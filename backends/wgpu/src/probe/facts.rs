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
    let class = |name: &str| {
        let class = Class::new(ClassKind::Device, name, total_bytes).with_alignment(ALIGNMENT);
        class.with_max_segment_bytes(limits.max_buffer_size / WORD * WORD)
    };
    // wgpu places barriers itself.
    Caps::new(name, vec![class("device"), class("exclusive")], Reuse::InOrder, Closing::Submit)
        .with_stream_wait(true)
        .with_transfer(true)
}
