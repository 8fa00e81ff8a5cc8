//! A segment: one buffer, and bindings of its ranges.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use millpond_backend::ClassId;
use millpond_kit::{Misuse, Remedy, is_inside};

use super::account::Account;
use crate::error::WgpuError;
use crate::open::Backing;
use crate::probe::WORD;

/// A segment of a wgpu device: one buffer.
///
/// It is owned, as the contract requires. A segment that is dropped rather than released still counts in
/// [`Wgpu::held_bytes`](crate::Wgpu::held_bytes); its buffer is freed once nothing else refers to it.
pub struct Segment {
    account: Arc<Account>,
    buffer: wgpu::Buffer,
    bytes: u64,
    class: ClassId,
    /// The Vulkan segment behind the buffer, if it is not wgpu's own.
    backing: Option<Arc<Backing>>,
    /// Bytes of memory of its own: 0 if it is a range of addresses.
    own_bytes: u64,
}

impl Segment {
    pub(crate) fn new(
        account: &Arc<Account>,
        buffer: wgpu::Buffer,
        bytes: u64,
        class: ClassId,
        backing: Option<Arc<Backing>>,
    ) -> Segment {
        account.add(bytes);
        Segment { account: Arc::clone(account), buffer, bytes, class, backing, own_bytes: bytes }
    }

    /// Destroys the buffer, even if bind groups still refer to it. wgpu frees the memory when the device is done with
    /// it.
    pub(crate) fn destroy(self) {
        if let Some(backing) = &self.backing {
            backing.release();
        }
        self.buffer.destroy();
        self.account.subtract(self.own_bytes);
    }

    /// Lets wgpu have the buffer for itself, which frees the memory once all work that was recorded with it is done,
    /// submitted or not.
    pub(crate) fn let_go(self) {
        if let Some(backing) = &self.backing {
            backing.release();
        }
        self.account.subtract(self.own_bytes);
    }

    /// Returns the buffer, for your own bind groups and commands. Clones of it do not keep the memory beyond the
    /// segment's release: wgpu refuses work that uses one later, when it is submitted.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Returns its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the class it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Returns the range as a binding for a bind group. Costs nothing.
    ///
    /// Blocks start at multiples of 512 and no device requires more than 256, so the start of a block can always be
    /// bound. Bind the requested bytes (`Buffer::len`), rounded up to a multiple of 4. The size of the block
    /// (`Buffer::capacity`) is a multiple of 512, and its remaining bytes hold what the previous user of the memory
    /// left there.
    ///
    /// **One usage per buffer and dispatch.** wgpu checks whole buffers: a dispatch that reads one block through a
    /// read-only binding and writes another one of the same segment through a read-write binding is refused, even if
    /// they share no byte. Either declare all bindings `read_write`, or take the blocks from the class
    /// [`EXCLUSIVE`](crate::EXCLUSIVE) with the policy `direct`, so that each has a buffer of its own.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`], [`Misuse::OutOfRange`], [`Misuse::Misaligned`] for an offset that is no multiple of
    /// the device's `min_storage_buffer_offset_alignment` or a size that is no multiple of 4, and
    /// [`WgpuError::BindingTooLarge`].
    pub fn binding(&self, offset: u64, size: u64) -> Result<wgpu::BufferBinding<'_>, WgpuError> {
        const CALL: &str = "binding";
        Misuse::if_empty(CALL, size)?;
        self.inside(CALL, offset, size)?;
        aligned(CALL, "offset", offset, self.account.offset_alignment)?;
        aligned(CALL, "size", size, WORD)?;
        self.bound(offset, size)
    }

    /// Returns a range as a binding, which begins and ends where one can. The buffer behind a segment ends with a whole
    /// word, where the segment may end within it.
    fn bound(&self, offset: u64, size: u64) -> Result<wgpu::BufferBinding<'_>, WgpuError> {
        let max = self.account.max_binding_bytes;
        if size > max {
            return Err(WgpuError::BindingTooLarge { bytes: size, max });
        }
        Ok(wgpu::BufferBinding { buffer: &self.buffer, offset, size: NonZeroU64::new(size) })
    }

    /// Returns a binding that covers a range which may begin and end at any byte, and the number of bytes in it before
    /// the range, for a shader that takes its first element as a number. Costs nothing.
    ///
    /// wgpu binds only from multiples of `min_storage_buffer_offset_alignment` (256, or less where the adapter says so)
    /// and in whole words of 4 bytes, so part of a block usually cannot be bound alone. The binding starts up to 255
    /// bytes before the range and ends up to 3 bytes after it. These bytes belong to the neighbours of the range, in
    /// the same block, and the shader leaves them alone. A shader has no type smaller than 4 bytes unless the device
    /// has `SHADER_F16`, so it takes two halves or four bytes out of a word.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`], [`Misuse::OutOfRange`] and [`WgpuError::BindingTooLarge`], the last for the bytes of the
    /// binding.
    pub fn window(&self, offset: u64, size: u64) -> Result<(wgpu::BufferBinding<'_>, u64), WgpuError> {
        Misuse::if_empty("window", size)?;
        self.inside("window", offset, size)?;
        let before = offset % self.account.offset_alignment;
        let bytes = (before + size).next_multiple_of(WORD);
        self.bound(offset - before, bytes).map(|binding| (binding, before))
    }

    /// Returns an error if a range leaves the segment.
    pub(crate) fn inside(&self, call: &'static str, offset: u64, bytes: u64) -> Result<(), Misuse> {
        if is_inside(offset, bytes, self.bytes) {
            return Ok(());
        }
        Err(Misuse::OutOfRange { call: Some(call), role: None, offset, bytes, segment_bytes: self.bytes })
    }

    /// Returns an error if the segment belongs to another device.
    pub(crate) fn of(&self, account: &Account, call: &'static str) -> Result<(), Misuse> {
        let (other, own) = (self.account.serial, account.serial);
        if other == own {
            return Ok(());
        }
        Err(Misuse::Foreign { call, own, other, remedy: Remedy::DownloadAndUpload("wgpu") })
    }
}

#[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
impl Segment {
    /// Creates a range of addresses, which has no memory of its own.
    pub(crate) fn range(
        account: &Arc<Account>,
        buffer: wgpu::Buffer,
        bytes: u64,
        class: ClassId,
        backing: Arc<Backing>,
    ) -> Segment {
        Segment { account: Arc::clone(account), buffer, bytes, class, backing: Some(backing), own_bytes: 0 }
    }

    /// Returns the Vulkan segment behind a segment that pages are mapped into.
    pub(crate) fn backing(&self) -> &Arc<Backing> {
        match &self.backing {
            Some(backing) => backing,
            None => panic!("{self:?} is a buffer of wgpu's own: no page can be there"),
        }
    }
}

/// Returns an error if a value is no multiple of `multiple`.
pub(crate) fn aligned(call: &'static str, what: &'static str, value: u64, multiple: u64) -> Result<(), Misuse> {
    if value.is_multiple_of(multiple) {
        return Ok(());
    }
    Err(Misuse::Misaligned { call, what: Some(what), value, multiple, multiple_is: None })
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("device", &self.account.serial)
            .field("bytes", &self.bytes)
            .field("class", &self.class.0)
            .finish()
    }
}
