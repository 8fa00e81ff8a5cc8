//! Work that touches memory, on the thread of its stream.

use std::ptr;

use crate::driver::code::Answer;
use crate::driver::memory::{Memory, Reach};

/// Copies bytes; the ranges may overlap. Fails, and touches nothing, if either range is not open to the work.
pub(crate) fn copy(memory: &Memory, to: u64, from: u64, bytes: u64, reach: Reach) -> Answer {
    memory.admits(to, bytes, reach, true)?;
    memory.admits(from, bytes, reach, false)?;
    // SAFETY: inside the reserve the table, which is locked, has both ranges open. Outside it they are the program's
    // own, and the program that queued the copy guarantees that they are valid until it has run.
    unsafe { ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
    Ok(())
}

/// Writes bytes that were copied from the program when the work was queued.
pub(crate) fn write(memory: &Memory, to: u64, data: &[u8], reach: Reach) -> Answer {
    memory.admits(to, data.len() as u64, reach, true)?;
    // SAFETY: as in `copy`; the source is a slice.
    unsafe { ptr::copy(data.as_ptr(), to as *mut u8, data.len()) };
    Ok(())
}

/// Writes a pattern of 1, 2 or 4 bytes again and again, `bytes` bytes in total.
pub(crate) fn set(memory: &Memory, to: u64, pattern: &[u8], bytes: u64, reach: Reach) -> Answer {
    memory.admits(to, bytes, reach, true)?;
    for offset in (0..bytes).step_by(pattern.len()) {
        if pattern.len() == 1 {
            // SAFETY: as in `copy`; of the program's own memory only what it has registered is admitted here.
            unsafe { ptr::write_bytes(to as *mut u8, pattern[0], bytes as usize) };
            break;
        }
        // SAFETY: as above; the range is a whole number of patterns, which the exported functions check.
        unsafe { ptr::copy(pattern.as_ptr(), (to + offset) as *mut u8, pattern.len()) };
    }
    Ok(())
}

/// Copies bytes of the program that an asynchronous copy is going to need.
pub(crate) fn take(from: u64, bytes: u64) -> Box<[u8]> {
    let mut taken = Box::<[u8]>::new_uninit_slice(bytes as usize);
    // SAFETY: the program that asked for the copy guarantees that the range is readable during the call; the box is as
    // long.
    unsafe {
        ptr::copy_nonoverlapping(from as *const u8, taken.as_mut_ptr().cast(), bytes as usize);
        taken.assume_init()
    }
}
