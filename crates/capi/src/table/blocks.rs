//! Blocks: allocated, freed, used on other streams, found.
//!
//! A block is an entry in one tree of addresses for all devices. The entry has the number of the buffer, and above it
//! that of the device. A context is the address of the entry with its lowest bit set.

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::num::NonZeroU64;
use std::ptr;
use std::sync::OnceLock;

use millpond::{Buffer, RawBuffer};
use millpond_backend::Backend;

use super::pond::{Pond, on};
use super::ponds;
use super::types::{Block, Oom, Place, Pool};
use crate::addresses::{self, Addresses};
use crate::boundary::{self, Out};
use crate::code::{Code, Failure};
use crate::fork;
use crate::places::{misplaced, place_within};

/// What 0 bytes are.
pub(super) const NOTHING: Block = Block { address: ptr::null_mut(), context: ptr::null_mut() };

/// The bit that tells a context from an address.
const CONTEXT: usize = 1;

/// The lowest bit of the device's number in an entry.
const DEVICE_SHIFT: u32 = 58;

/// A buffer's number with that of its device.
#[derive(Clone, Copy)]
pub(super) struct Marked(NonZeroU64);

impl Marked {
    /// Returns `None` if the number of the buffer leaves no room for that of the device: with 33 million streams.
    #[inline]
    fn new(raw: RawBuffer, device: u32) -> Option<Marked> {
        let bits = raw.to_bits();
        (bits.get() >> DEVICE_SHIFT == 0).then(|| Marked(bits | u64::from(device) << DEVICE_SHIFT))
    }

    #[inline]
    fn device(self) -> usize {
        (self.0.get() >> DEVICE_SHIFT) as usize
    }

    #[inline]
    pub(super) fn raw(self) -> RawBuffer {
        match NonZeroU64::new(self.0.get() & ((1 << DEVICE_SHIFT) - 1)) {
            Some(bits) => RawBuffer::from_bits(bits),
            None => unreachable!("a buffer's number is not 0"),
        }
    }

    fn place(self, (address, bytes): (u64, u64)) -> Place {
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

/// Returns the failure of a number that names no live block.
#[cold]
fn unknown(block: usize) -> Failure {
    if block & CONTEXT == 0 {
        return Failure::not_a_block(block as u64);
    }
    Failure::new(Code::NotABlock, format!("the block of the context {block:#x} was freed before"))
}

/// Takes a block out of the tree.
#[inline]
fn take(block: usize) -> Result<Marked, Failure> {
    let taken = if block & CONTEXT != 0 {
        // SAFETY: the header asks for a context that `alloc` returned, which is the place of an entry.
        unsafe { addresses::take_at(block & !CONTEXT) }
    } else {
        blocks().take(block as u64)
    };
    taken.map(|raw| Marked(raw.to_bits())).ok_or_else(|| unknown(block))
}

/// Returns the live block at an address.
pub(super) fn known(address: u64) -> Option<Marked> {
    blocks().get(address).map(|raw| Marked(raw.to_bits()))
}

/// Takes the live block at an address out of the tree. Of several threads that do this at once, one gets the block.
pub(super) fn take_out(address: u64) -> Option<Marked> {
    blocks().take(address).map(|raw| Marked(raw.to_bits()))
}

/// Returns a live block.
fn look_up(block: usize) -> Result<Marked, Failure> {
    let found = if block & CONTEXT != 0 {
        // SAFETY: as in `take`.
        unsafe { addresses::get_at(block & !CONTEXT) }
    } else {
        blocks().get(block as u64)
    };
    found.map(|raw| Marked(raw.to_bits())).ok_or_else(|| unknown(block))
}

pub(super) unsafe extern "C" fn alloc(device: i32, stream: *mut c_void, bytes: u64, pool: *const Pool) -> Block {
    let allocated = boundary::outcome(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        if let Some(pool) = unsafe { pool.as_ref() }
            && *pool != Pool::default()
        {
            return on!(ponds::get(device)?, of => of.allocate_in(*pool, bytes, stream.addr() as u64));
        }
        on!(ponds::get(device)?, of => of.allocate(bytes, stream.addr() as u64))
    });
    allocated.unwrap_or_else(failed)
}

/// Keeps the text of a failure, and returns its code in the place of a context.
#[cold]
fn failed(failure: Failure) -> Block {
    let code = boundary::told(&failure) as i32;
    Block { address: ptr::null_mut(), context: ptr::without_provenance_mut(code as usize) }
}

pub(super) unsafe extern "C" fn alloc_at(
    device: i32,
    stream: *mut c_void,
    bytes: u64,
    address: *mut c_void,
    pool: *const Pool,
) -> Block {
    let allocated = boundary::outcome(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let pool = unsafe { pool.as_ref() }.filter(|&&pool| pool != Pool::default()).copied();
        let address = address.addr() as u64;
        on!(ponds::get(device)?, of => of.allocate_at(pool, bytes, stream.addr() as u64, address))
    });
    allocated.unwrap_or_else(failed)
}

pub(super) unsafe extern "C" fn free(block: *mut c_void) -> i32 {
    boundary::status(|| {
        if block.is_null() {
            return Ok(());
        }
        let marked = take(block.addr())?;
        // What a child drops of its parent's is gone from the child alone.
        let Some(pond) = ponds::of_block(marked.device()) else { return Ok(()) };
        on!(pond, of => of.free(marked.raw()));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn record_stream(block: *mut c_void, stream: *mut c_void) -> i32 {
    boundary::status(|| {
        if block.is_null() {
            return Ok(());
        }
        let marked = look_up(block.addr())?;
        on!(pond_of(marked)?, of => of.record_stream(marked, stream.addr() as u64))
    })
}

pub(super) unsafe extern "C" fn find(block: *const c_void, out: *mut Place) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let (marked, named) = (look_up(block.addr())?, block.addr());
        out.put(
            match named & CONTEXT {
                0 => within(marked, named as u64, named as u64)?,
                _ => on!(pond_of(marked)?, of => of.allocator.place_raw(marked.raw())).map(|place| marked.place(place)),
            }
            .ok_or_else(|| unknown(named))?,
        );
        Ok(())
    })
}

pub(super) unsafe extern "C" fn at(address: *const c_void, out: *mut Place) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(around(address.addr() as u64)?);
        Ok(())
    })
}

/// Returns where the live block lies that has an address in it.
pub(super) fn around(address: u64) -> Result<Place, Failure> {
    let found = blocks().at_or_before(address);
    let found = found.map(|(start, raw)| within(Marked(raw.to_bits()), start, address)).transpose()?;
    found.flatten().ok_or_else(|| Failure::not_a_block(address))
}

/// Returns where a block lies that the tree had at a start, if it is live and an address lies in it.
fn within(marked: Marked, start: u64, address: u64) -> Result<Option<Place>, Failure> {
    let found = (start, marked.raw());
    let place = on!(pond_of(marked)?, of => place_within(&of.allocator, found, address));
    Ok(place.map(|place| marked.place(place)))
}

/// Returns the allocator of a block, unless that is a parent process's.
fn pond_of(marked: Marked) -> Result<&'static Pond, Failure> {
    ponds::of_block(marked.device()).ok_or_else(fork::inherited)
}

thread_local! {
    /// The last request of this thread that was out of memory, with its explanation.
    static LAST: RefCell<Option<(Oom, CString)>> = const { RefCell::new(None) };
}

/// Keeps the numbers of a request that was out of memory. Of the text, the lines behind the first are kept, as the
/// first one has the numbers.
#[cold]
pub(super) fn remember(numbers: Oom, text: &str) {
    let lines = text.split_once('\n').map_or("", |(_, lines)| lines);
    let lines = CString::new(lines.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending keeps none.
    let _ = LAST.try_with(|last| last.replace(Some((numbers, lines))));
}

pub(super) unsafe extern "C" fn oom(out: *mut Oom) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let last = LAST.try_with(|last| {
            last.borrow().as_ref().map(|(numbers, lines)| Oom { explanation: lines.as_ptr(), ..*numbers })
        });
        let none = || Failure::bad_argument("no request of this thread was out of memory");
        out.put(last.ok().flatten().ok_or_else(none)?);
        Ok(())
    })
}
