//! Allocators as C names them: a number in the form of a pointer, which is never followed.
//!
//! The number has a mark that no address has, which copy of the library made it, how often its place in a table was
//! used before, and the place. So allocators that were destroyed are noticed, and so are those of another copy and of a
//! parent process, and almost everything that never was one, without reading memory that may be gone.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::code::{Code, Failure};
use crate::fork;
use crate::kind::Served;

/// The most allocators that exist at a time. From the lowest bit on, a handle has its place, the generation, the copy
/// of the library, and the mark.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 12;
const GENERATION_BITS: u32 = 24;
const COPY_BITS: u32 = 20;

const GENERATION: u64 = ((1 << GENERATION_BITS) - 1) << PLACE_BITS;
const COPY_SHIFT: u32 = PLACE_BITS + GENERATION_BITS;
const MARK_SHIFT: u32 = COPY_SHIFT + COPY_BITS;

/// The upper 8 bits of every handle. Addresses of programs have all of them equal on the machines that there are.
const MARK: u64 = 0x4D;

/// The name of a place whose allocator a parent process has. No handle is equal to it.
const INHERITED: u64 = u64::MAX;

/// A place of the table.
struct Place {
    /// The handle of the allocator, or of the next one here; 0 before the first.
    name: AtomicU64,
    /// The allocator, or null. A place that has one owns it.
    served: AtomicPtr<Served>,
}

static TABLE: [Place; PLACES] =
    [const { Place { name: AtomicU64::new(0), served: AtomicPtr::new(ptr::null_mut()) } }; PLACES];

/// Returns the number of this copy of the library. A process may have several, in a program and in libraries that it
/// loads. Their tables do not overlap, and each is at least as long as the 64 KiB that are divided by here. So copies
/// within 64 GiB of each other differ, and of others all but one pair in a million.
fn copy() -> u64 {
    const _: () = assert!(size_of::<[Place; PLACES]>() >= 1 << 16);
    ((&raw const TABLE).addr() as u64 >> 16) & ((1 << COPY_BITS) - 1)
}

/// `millpond_allocator` of the header: a name, to which nothing points.
#[repr(C)]
pub struct CAllocator {
    _nothing: [u8; 0],
}

/// An allocator's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    /// Returns the name of the first allocator in a place.
    fn first(place: usize) -> Handle {
        Handle(MARK << MARK_SHIFT | copy() << COPY_SHIFT | place as u64)
    }

    /// Returns the name of the next allocator in the same place.
    fn next(self) -> Handle {
        Handle(self.0 & !GENERATION | (self.0 + (1 << PLACE_BITS)) & GENERATION)
    }

    /// Returns the place, which may have another allocator.
    #[inline]
    fn place(self) -> &'static Place {
        &TABLE[self.0 as usize % PLACES]
    }

    #[cold]
    fn unknown(self) -> Failure {
        if self.0 == 0 {
            return Failure::new(Code::BadAllocator, "the allocator is a null pointer");
        }
        if self.0 >> MARK_SHIFT != MARK {
            let text = format!("{:#x} is not an allocator: pass what millpond_create wrote", self.0);
            return Failure::new(Code::BadAllocator, text);
        }
        if self.0 >> COPY_SHIFT != MARK << COPY_BITS | copy() {
            let text = "another copy of libmillpond made the allocator, and each serves its own: load one copy";
            return Failure::new(Code::BadAllocator, text);
        }
        if self.place().name.load(Ordering::Acquire) == INHERITED {
            return fork::inherited();
        }
        Failure::new(Code::BadAllocator, "the allocator was destroyed")
    }
}

/// Returns the handle that a pointer of the caller's is.
pub(crate) fn handle_of(pond: *mut CAllocator) -> Handle {
    Handle(pond.addr() as u64)
}

/// Returns a handle as the pointer that the caller gets.
pub(crate) fn pointer_of(handle: Handle) -> *mut CAllocator {
    ptr::without_provenance_mut(handle.0 as usize)
}

/// Puts an allocator into the table. Looks at each place up to the first vacant one: microseconds, beside milliseconds
/// for an allocator.
pub(crate) fn enter(served: Box<Served>) -> Result<Handle, Failure> {
    let served = Box::into_raw(served);
    let claim = |place: &Place| {
        let vacant = ptr::null_mut();
        place.served.compare_exchange(vacant, served, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let Some(at) = TABLE.iter().position(claim) else {
        // SAFETY: the pointer is that of the box above, and no place has it.
        drop(unsafe { Box::from_raw(served) });
        let text = format!("there are {PLACES} allocators already, which is the most: destroy one");
        return Err(Failure::bad_argument(text));
    };
    let handle = match TABLE[at].name.load(Ordering::Acquire) {
        0 => Handle::first(at),
        next => Handle(next),
    };
    TABLE[at].name.store(handle.0, Ordering::Release);
    Ok(handle)
}

/// Returns an allocator.
///
/// # Safety
///
/// Nothing calls [`leave`] with the handle while the reference is in use.
#[inline]
pub(crate) unsafe fn look_up<'a>(handle: Handle) -> Result<&'a Served, Failure> {
    let place = handle.place();
    if place.name.load(Ordering::Acquire) != handle.0 {
        return Err(handle.unknown());
    }
    let served = place.served.load(Ordering::Acquire);
    // SAFETY: the place owns the allocator until `leave` takes it out, which does not happen meanwhile, as the caller
    // promises. A place whose name is the handle was filled before the handle was given out.
    unsafe { served.as_ref() }.ok_or_else(|| handle.unknown())
}

/// Takes an allocator out of the table. The handle is not valid any more. Of several threads that do this at once, one
/// gets the allocator.
pub(crate) fn leave(handle: Handle) -> Result<Box<Served>, Failure> {
    let place = handle.place();
    // A place that was never used has the name 0, and so has a null pointer.
    let renamed = handle.0 != 0
        && place.name.compare_exchange(handle.0, handle.next().0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let served = if renamed { place.served.swap(ptr::null_mut(), Ordering::AcqRel) } else { ptr::null_mut() };
    if served.is_null() {
        return Err(handle.unknown());
    }
    // SAFETY: `enter` made the pointer of a box, and one thread alone renames the place of a handle and takes it out.
    Ok(unsafe { Box::from_raw(served) })
}

/// Makes the handles of all allocators invalid, in the child of a `fork`. Their places stay taken.
pub(crate) fn disown() {
    for place in TABLE.iter().filter(|place| !place.served.load(Ordering::Acquire).is_null()) {
        place.name.store(INHERITED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Box<Served> {
        Box::new(Served::open("sim", Some("")).expect("the simulated device"))
    }

    #[test]
    fn what_left_is_told_even_when_its_place_is_used_again() {
        let first = enter(served()).unwrap();
        // SAFETY: nothing destroys it meanwhile.
        assert!(unsafe { look_up(first) }.is_ok());
        drop(leave(first).unwrap());
        let handles: Vec<_> = (0..3).map(|_| enter(served()).unwrap()).collect();
        assert!(!handles.contains(&first));
        for stale in [leave(first).map(drop), unsafe_look_up(first)] {
            let failure = stale.unwrap_err();
            assert_eq!((failure.code, failure.text.as_str()), (Code::BadAllocator, "the allocator was destroyed"));
        }
        handles.into_iter().for_each(|handle| drop(leave(handle).unwrap()));
    }

    #[test]
    fn foreign_pointers_are_told_without_being_read() {
        let local = 0_u64;
        let foreign = [0, 8, u64::MAX, MARK << MARK_SHIFT | 0xFF_FFFF, ptr::from_ref(&local).addr() as u64, MARK];
        for number in foreign {
            assert_eq!(unsafe_look_up(Handle(number)).unwrap_err().code, Code::BadAllocator, "{number:#x}");
        }
    }

    #[test]
    fn a_handle_names_its_copy_of_the_library_and_never_comes_back() {
        let handle = enter(served()).unwrap();
        let other = Handle(handle.0 ^ 1 << COPY_SHIFT);
        for failed in [unsafe_look_up(other), leave(other).map(drop)] {
            assert!(failed.unwrap_err().text.starts_with("another copy of libmillpond"));
        }
        let next = handle.next();
        assert!(next != handle && next.place().name.load(Ordering::Acquire) == handle.0, "the place is the same");
        let before_the_last = Handle(handle.0 | GENERATION);
        assert_eq!(before_the_last.next().0, handle.0 & !GENERATION, "the other bits stay");
        drop(leave(handle).unwrap());
        assert_eq!(leave(next).map(drop).unwrap_err().text, "the allocator was destroyed", "it is not given out yet");
    }

    fn unsafe_look_up(handle: Handle) -> Result<(), Failure> {
        // SAFETY: the reference is dropped at once, and no other thread destroys it.
        unsafe { look_up(handle) }.map(drop)
    }
}
