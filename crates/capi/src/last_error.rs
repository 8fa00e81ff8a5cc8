//! The text of the last error, one for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps a text as that of this thread's last error. A thread that is ending keeps none.
#[cold]
pub(crate) fn set(text: &str) {
    // A text for C ends at its first 0.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let _ = LAST.try_with(|last| last.replace(Some(text)));
}

/// Returns the text. It is valid until the next [`set`] on this thread, or until the thread ends.
pub(crate) fn get() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}
