//! Pointers that come in through the exported functions.
//!
//! Every exported function is unsafe, and the header that it follows obliges its caller: a pointer is null or points to
//! the type that its argument names, and stays valid during the call. So the wrappers below, which are made from such
//! arguments only, are safe.

use std::ffi::{CStr, c_char, c_void};

use crate::driver::code::{Answer, Code};

/// A pointer to where a caller wants a result.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// A pointer to an argument of a caller.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

// Implemented by hand: the pointers can be copied whatever they point to.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> In<T> {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> Out<T> {
    /// Writes the result; a null pointer is an invalid value.
    pub(crate) fn put(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.offer(value);
        Ok(())
    }

    /// Writes the result if it is wanted.
    pub(crate) fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller of the exported function guarantees it: see at the top.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Fails where the caller gave no place, before anything is done whose result could not be written.
    pub(crate) fn must(self) -> Result<Out<T>, Code> {
        if self.0.is_null() { Err(Code::INVALID_VALUE) } else { Ok(self) }
    }

    /// Returns the value there.
    pub(crate) fn get(self) -> Result<T, Code>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

impl Out<c_void> {
    /// Returns the pointer as one to a type that another argument names.
    pub(crate) fn of<T>(self) -> Out<T> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    /// Writes as much of a text as fits into `room` characters, and a 0 behind it.
    pub(crate) fn put_text(self, text: &str, room: i32) -> Answer {
        let room = usize::try_from(room).ok().filter(|&room| room > 0).ok_or(Code::INVALID_VALUE)?;
        let start = self.must()?.0;
        let kept = &text.as_bytes()[..text.len().min(room - 1)];
        // SAFETY: the caller of the exported function has room for `room` characters there: see at the top.
        let place = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), kept.len() + 1) };
        place[..kept.len()].copy_from_slice(kept);
        place[kept.len()] = 0;
        Ok(())
    }
}

impl<T: Copy> In<T> {
    /// Returns the value there; a null pointer is an invalid value.
    pub(crate) fn get(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of the exported function guarantees it: see at the top.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Returns the values there, as an array of `count`.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>, Code> {
        (0..count).map(|index| In(self.0.wrapping_add(index)).get()).collect()
    }
}

/// A constant text of the driver's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct ConstText(*const c_char);

impl ConstText {
    pub(crate) const NONE: ConstText = ConstText(std::ptr::null());

    pub(crate) fn new(text: &'static CStr) -> ConstText {
        ConstText(text.as_ptr())
    }
}

/// A pointer that is passed on and never read.
pub(crate) type Opaque = *mut c_void;
