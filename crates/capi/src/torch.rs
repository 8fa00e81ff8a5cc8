//! The functions of PyTorch's `CUDAPluggableAllocator`, which the header documents, and the allocators behind them: one
//! for each device, made at its first use, for as long as the process lives.
//!
//! # Safety
//!
//! As for [`crate::api`].

#![allow(clippy::missing_safety_doc)] // The header has it, and so has the module.

use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::devices::{DEVICES, is_simulated, place};
use crate::fork;
use crate::handles::{self, CAllocator, Handle, pointer_of};
use crate::served::{Served, on};
use crate::watch;

/// The handle of each device's allocator, or 0.
static PONDS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// Held by a thread that makes an allocator.
static MAKING: Mutex<()> = Mutex::new(());

/// Returns whether an allocator is one of these, which are never destroyed.
pub(crate) fn has(handle: Handle) -> bool {
    handle.0 != 0 && PONDS.iter().any(|pond| pond.load(Ordering::Acquire) == handle.0)
}

/// Returns the handle of a device's allocator, which is made at its first use.
#[inline]
fn handle(device: c_int) -> Result<Handle, Failure> {
    let pond = &PONDS[place(device)?];
    match pond.load(Ordering::Acquire) {
        0 => make(pond, device),
        handle => Ok(Handle(handle)),
    }
}

#[cold]
fn make(pond: &AtomicU64, device: c_int) -> Result<Handle, Failure> {
    watch::begin_devices()?;
    let _making = MAKING.lock();
    let made = pond.load(Ordering::Acquire);
    if made != 0 {
        return Ok(Handle(made));
    }
    let name = if is_simulated()? { format!("sim:{device}") } else { format!("cuda:{device}") };
    let handle = handles::enter(Box::new(Served::open(&name, None)?))?;
    pond.store(handle.0, Ordering::Release);
    Ok(handle)
}

/// Returns the allocator of a handle of [`PONDS`].
#[inline]
fn served(handle: Handle) -> Result<&'static Served, Failure> {
    // SAFETY: `millpond_destroy` refuses the allocators of this module, and nothing else destroys any.
    unsafe { handles::look_up(handle) }
}

/// Returns the allocators that were made so far.
fn all() -> impl Iterator<Item = Result<&'static Served, Failure>> {
    let handles = PONDS.iter().map(|pond| pond.load(Ordering::Acquire));
    handles.filter(|&handle| handle != 0).map(|handle| served(Handle(handle)))
}

/// Runs the body of a function that cannot return an error: a failure is printed, and kept as the thread's last error.
#[inline(always)]
fn or_print<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    boundary::outcome(body).unwrap_or_else(|failure| {
        boundary::told(&failure);
        // Where standard error is closed, there is no other way to tell.
        let _ = writeln!(std::io::stderr(), "millpond: {}", failure.text);
        otherwise
    })
}

/// Allocates, as `CUDAPluggableAllocator` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    or_print(ptr::null_mut(), || {
        let bytes = u64::try_from(size).map_err(|_| Failure::bad_argument(format!("{size} bytes are asked for")))?;
        let address = on!(served(handle(device)?)?, of => of.allocate(bytes, stream.addr() as u64)?);
        Ok(ptr::with_exposed_provenance_mut(address as usize))
    })
}

/// Frees, as `CUDAPluggableAllocator` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_free(address: *mut c_void, _size: isize, device: c_int, _stream: *mut c_void) {
    or_print((), || {
        if address.is_null() {
            return Ok(());
        }
        let address = address.addr() as u64;
        match PONDS[place(device)?].load(Ordering::Acquire) {
            0 => Err(Failure::not_a_block(address)),
            // What a child drops of its parent's is gone from the child alone.
            _ if fork::DEVICES.is_inherited() => Ok(()),
            handle => on!(served(Handle(handle))?, of => of.free(address)),
        }
    });
}

/// Records that a block is used on another stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    or_print((), || {
        if address.is_null() {
            return Ok(());
        }
        let (address, stream) = (address.addr() as u64, stream.addr() as u64);
        for served in all() {
            let served = served?;
            if on!(served, of => of.has(address)) {
                return on!(served, of => of.record_stream(address, stream));
            }
        }
        Err(Failure::not_a_block(address))
    });
}

/// Empties the caches of all devices in use.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_empty_cache() {
    or_print((), || {
        // Each device is tried, whatever becomes of the others.
        let emptied: Vec<_> = all().map(|served| served?.empty_cache()).collect();
        emptied.into_iter().collect()
    });
}

/// Limits the reserved bytes of a device to a share of its memory.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_memory_fraction(fraction: f64, device: c_int) {
    or_print((), || {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Failure::bad_argument(format!("the share {fraction} is not from 0 to 1")));
        }
        on!(served(handle(device)?)?, of => of.allocator.set_memory_fraction(fraction));
        Ok(())
    });
}

/// Returns the allocator of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_allocator(device: c_int, out: *mut *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(pointer_of(handle(device)?));
        Ok(())
    })
}
