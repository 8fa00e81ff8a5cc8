//! The live blocks of all devices, in one tree of addresses.
//!
//! A block is an entry of the tree, which has the number of the buffer, and above it that of the device. A context is
//! the address of the entry with its lowest bit set.

use std::num::NonZeroU64;
use std::ptr;
use std::sync::OnceLock;

use millpond::{Buffer, RawBuffer};
use millpond_backend::Backend;

use super::types::{Block, Place};
use crate::addresses::{self, Addresses};
use crate::code::{Code, Failure};
use crate::places::misplaced;
use crate::served;

/// What 0 bytes are.
pub(super) const NOTHING: Block = Block { address: ptr::null_mut(), context: ptr::null_mut() };

/// This bit is set in contexts and clear in addresses.
const CONTEXT: usize = 1;

/// The lowest bit of the device's number in an entry.
const DEVICE_SHIFT: u32 = 58;

/// A buffer's number with that of its device.
#[derive(Clone, Copy)]
pub(crate) struct Marked(NonZeroU64);

impl Marked {
    /// Returns `None` if the number of the buffer leaves no room for that of the device: with 33 million streams.
    #[inline]
    fn new(raw: RawBuffer, device: u32) -> Option<Marked> {
        let bits = raw.to_bits();
        (bits.get() >> DEVICE_SHIFT == 0).then(|| Marked(bits | u64::from(device) << DEVICE_SHIFT))
    }

    /// Returns the number of the device.
    #[inline]
    pub(crate) fn device(self) -> usize {
        (self.0.get() >> DEVICE_SHIFT) as usize
    }

    /// Returns the number of the buffer.
    #[inline]
    pub(crate) fn raw(self) -> RawBuffer {
        match NonZeroU64::new(self.0.get() & ((1 << DEVICE_SHIFT) - 1)) {
            Some(bits) => RawBuffer::from_bits(bits),
            None => unreachable!("a buffer's number is not 0"),
        }
    }

    /// Returns where the block lies, as the header has it.
    pub(super) fn place(self, (address, bytes): (u64, u64)) -> Place {
        Place { address, bytes, device: self.device() as i32, reserved: 0 }
    }
}

/// The live blocks of all devices.
#[inline]
fn blocks() -> &'static Addresses {
    static BLOCKS: OnceLock<Addresses> = OnceLock::new();
    BLOCKS.get_or_init(Addresses::new)
}

/// Enters a buffer, and returns its address and its context.
#[inline]
pub(super) fn enter<B: Backend>(buffer: Buffer<B>, device: u32) -> Result<Block, Failure> {
    let address = buffer.address().unwrap_or(0);
    let Some(entry) = blocks().entry(address).filter(|_| address != 0) else { return Err(misplaced(address)) };
    let raw = buffer.into_raw();
    let Some(marked) = Marked::new(raw, device) else {
        return Err(Failure::new(Code::Unsupported, "there are too many streams for the numbers of blocks"));
    };
    let context = entry.place() | CONTEXT;
    entry.put(RawBuffer::from_bits(marked.0));
    Ok(Block {
        address: ptr::with_exposed_provenance_mut(address as usize),
        context: ptr::with_exposed_provenance_mut(context),
    })
}

/// Returns whether a number is a context, and not an address.
#[inline]
pub(super) fn is_context(block: usize) -> bool {
    block & CONTEXT != 0
}

/// Returns the failure of a number that names no live block.
#[cold]
pub(super) fn unknown(block: usize) -> Failure {
    if !is_context(block) {
        return Failure::not_a_block(block as u64);
    }
    Failure::new(Code::NotABlock, format!("the block of the context {block:#x} was freed before"))
}

/// Takes a block out of the tree, by its address or its context.
#[inline]
pub(super) fn take(block: usize) -> Result<Marked, Failure> {
    let taken = if is_context(block) {
        // SAFETY: the header asks for a context that `alloc` returned, which is the place of an entry.
        unsafe { addresses::take_at(block & !CONTEXT) }
    } else {
        blocks().take(block as u64)
    };
    taken.map(|raw| Marked(raw.to_bits())).ok_or_else(|| unknown(block))
}

/// Returns the live block at an address.
pub(crate) fn known(address: u64) -> Option<Marked> {
    blocks().get(address).map(|raw| Marked(raw.to_bits()))
}

/// Returns the last live block that begins at an address or before it, with its start.
pub(super) fn at_or_before(address: u64) -> Option<(u64, Marked)> {
    blocks().at_or_before(address).map(|(start, raw)| (start, Marked(raw.to_bits())))
}

/// Takes the live block at an address out of the tree. Of several threads that do this at once, one gets the block.
pub(crate) fn take_out(address: u64) -> Option<Marked> {
    blocks().take(address).map(|raw| Marked(raw.to_bits()))
}

/// The live blocks of the device of this number, which are in the tree of all devices.
pub(crate) struct OfDevice(pub(crate) u32);

impl OfDevice {
    /// Returns a block's number if it is of this device.
    fn own(&self, marked: Marked) -> Option<RawBuffer> {
        (marked.device() == self.0 as usize).then(|| marked.raw())
    }
}

impl served::Blocks for OfDevice {
    #[inline]
    fn enter<B: Backend>(&self, buffer: Buffer<B>) -> Result<u64, Failure> {
        Ok(enter(buffer, self.0)?.address.addr() as u64)
    }

    fn get(&self, address: u64) -> Option<RawBuffer> {
        known(address).and_then(|marked| self.own(marked))
    }

    /// Between the look and the taking no other thread may free the block, so that it stays one of this device.
    #[inline]
    fn take(&self, address: u64) -> Option<RawBuffer> {
        self.get(address)?;
        take_out(address).map(Marked::raw)
    }

    fn at_or_before(&self, address: u64) -> Option<(u64, RawBuffer)> {
        let (start, marked) = at_or_before(address)?;
        Some((start, self.own(marked)?))
    }
}

/// Returns a live block, by its address or its context.
pub(super) fn look_up(block: usize) -> Result<Marked, Failure> {
    let found = if is_context(block) {
        // SAFETY: as in `take`.
        unsafe { addresses::get_at(block & !CONTEXT) }
    } else {
        blocks().get(block as u64)
    };
    found.map(|raw| Marked(raw.to_bits())).ok_or_else(|| unknown(block))
}
