//! The allocators of devices that were used so far.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::pond::Pond;
use crate::code::Failure;
use crate::devices::{DEVICES, place};
use crate::fork;

/// The allocator of each device, or null. One that is there stays as long as the process.
static PONDS: [AtomicPtr<Pond>; DEVICES] = [const { AtomicPtr::new(ptr::null_mut()) }; DEVICES];

/// Returns the allocator of a device if it was used before.
#[inline]
pub(super) fn of_device(device: i32) -> Result<Option<&'static Pond>, Failure> {
    // SAFETY: the pointer is null, or one that `keep` leaked.
    match unsafe { PONDS[place(device)?].load(Ordering::Acquire).as_ref() } {
        Some(pond) => Ok(Some(pond)),
        None => fork::DEVICES.check().map(|()| None),
    }
}

/// Returns the allocator of the device whose number a block has; `None` in a child of the process that made the block.
#[inline]
pub(crate) fn of_block(device: usize) -> Option<&'static Pond> {
    // SAFETY: as in `of_device`.
    match unsafe { PONDS[device].load(Ordering::Acquire).as_ref() } {
        None if !fork::DEVICES.is_inherited() => panic!("a block is of device {device}, which was never used"),
        pond => pond,
    }
}

/// Returns the allocators of all devices that were used.
pub(crate) fn all() -> impl Iterator<Item = &'static Pond> {
    // SAFETY: as in `of_device`.
    PONDS.iter().filter_map(|pond| unsafe { pond.load(Ordering::Acquire).as_ref() })
}

/// Returns whether a device was used.
pub(super) fn any() -> bool {
    all().next().is_some()
}

/// Keeps the allocator of the device of a place, which has none yet, as long as the process lives.
pub(super) fn keep(place: usize, pond: Pond) -> &'static Pond {
    let pond: &'static Pond = Box::leak(Box::new(pond));
    PONDS[place].store(ptr::from_ref(pond).cast_mut(), Ordering::Release);
    pond
}

/// Forgets the allocators of a parent process, in the child of a `fork`.
pub(crate) fn disown() {
    for pond in PONDS.iter().filter(|pond| !pond.load(Ordering::Acquire).is_null()) {
        pond.store(ptr::null_mut(), Ordering::Release);
    }
}
