//! The last request of each thread that was out of memory.

use std::cell::RefCell;
use std::ffi::CString;

use super::types::Oom;
use crate::boundary::{self, Out};
use crate::code::Failure;

thread_local! {
    /// The last request of this thread that was out of memory, with its explanation.
    static LAST: RefCell<Option<(Oom, CString)>> = const { RefCell::new(None) };
}

/// Keeps the numbers of a request that ran out of memory, and its text without the first line, which repeats them.
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
