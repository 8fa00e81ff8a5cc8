//! Allocators as C names them: a number in the form of a pointer, which is never followed.
//!
//! The number has a mark that no address has, the allocator's place in a table, and how often that place was used
//! before. So an allocator that was destroyed is told, and so is almost everything that never was one, without reading
//! memory that may be gone.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::code::{Code, Failure};
use crate::served::Served;

/// The most allocators that exist at a time.
const PLACES: usize = 4096;

/// The upper 16 bits of every handle. Addresses of programs have all of them equal on the machines that there are.
const MARK: u64 = 0x4D50;

const PLACE_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;

/// A place of the table.
struct Place {
    /// How often the place was left.
    generation: AtomicU32,
    /// The allocator, or null. A place that has one owns it.
    served: AtomicPtr<Served>,
}

static TABLE: [Place; PLACES] =
    [const { Place { generation: AtomicU32::new(0), served: AtomicPtr::new(ptr::null_mut()) } }; PLACES];

/// The places that were used and are vacant, and the number of those that were ever used.
static VACANT: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// An allocator's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    fn new(place: usize, generation: u32) -> Handle {
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        Handle(MARK << 48 | generation << PLACE_BITS | place as u64)
    }

    /// Returns the place of an allocator that exists.
    #[inline]
    fn place(self) -> Result<&'static Place, Failure> {
        let at = (self.0 & ((1 << PLACE_BITS) - 1)) as usize;
        match TABLE.get(at) {
            Some(place) if Handle::new(at, place.generation.load(Ordering::Acquire)) == self => Ok(place),
            _ => Err(self.unknown()),
        }
    }

    #[cold]
    fn unknown(self) -> Failure {
        let text = match self.0 >> 48 {
            _ if self.0 == 0 => "the allocator is a null pointer".to_owned(),
            MARK => "the allocator was destroyed".to_owned(),
            _ => format!("{:#x} is not an allocator: pass what millpond_create wrote", self.0),
        };
        Failure::new(Code::BadAllocator, text)
    }
}

/// Puts an allocator into the table.
pub(crate) fn enter(served: Box<Served>) -> Result<Handle, Failure> {
    let mut vacant = VACANT.lock();
    let place = match vacant.0.pop() {
        Some(place) => place,
        None if vacant.1 < PLACES => {
            vacant.1 += 1;
            vacant.1 - 1
        }
        None => {
            let text = format!("there are {PLACES} allocators already, which is the most: destroy one");
            return Err(Failure::bad_argument(text));
        }
    };
    TABLE[place].served.store(Box::into_raw(served), Ordering::Release);
    Ok(Handle::new(place, TABLE[place].generation.load(Ordering::Acquire)))
}

/// Returns an allocator.
///
/// # Safety
///
/// Nothing calls [`leave`] with the handle while the reference is in use.
#[inline]
pub(crate) unsafe fn look_up<'a>(handle: Handle) -> Result<&'a Served, Failure> {
    let served = handle.place()?.served.load(Ordering::Acquire);
    // SAFETY: the place owns the allocator until `leave` takes it out, which does not happen meanwhile, as the caller
    // promises. A place whose generation is that of the handle was filled before the handle was made.
    unsafe { served.as_ref() }.ok_or_else(|| handle.unknown())
}

/// Takes an allocator out of the table. The handle is not valid any more. Of several threads that do this at once, one
/// gets the allocator.
pub(crate) fn leave(handle: Handle) -> Result<Box<Served>, Failure> {
    let mut vacant = VACANT.lock();
    let place = handle.place()?;
    let served = place.served.swap(ptr::null_mut(), Ordering::AcqRel);
    if served.is_null() {
        return Err(handle.unknown());
    }
    place.generation.fetch_add(1, Ordering::AcqRel);
    vacant.0.push((handle.0 & ((1 << PLACE_BITS) - 1)) as usize);
    // SAFETY: `enter` made the pointer of a box, and the swap under the lock took it out once.
    Ok(unsafe { Box::from_raw(served) })
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
        let foreign = [0, 8, u64::MAX, MARK << 48 | 0xFF_FFFF, ptr::from_ref(&local).addr() as u64, MARK];
        for number in foreign {
            assert_eq!(unsafe_look_up(Handle(number)).unwrap_err().code, Code::BadAllocator, "{number:#x}");
        }
    }

    fn unsafe_look_up(handle: Handle) -> Result<(), Failure> {
        // SAFETY: the reference is dropped at once, and no other thread destroys it.
        unsafe { look_up(handle) }.map(drop)
    }
}
