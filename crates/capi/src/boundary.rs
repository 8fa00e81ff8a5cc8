//! What every function of the interface does first and last: reads the pointers of its caller, and turns its outcome,
//! an error or a panic, into a code.

use std::any::Any;
#[cfg(unix)]
use std::ffi::OsStr;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::code::{Code, Failure};
use crate::last_error;

/// Runs the body of a function and returns its code. An error's text becomes this thread's last error; so does that of
/// a panic, which ends here.
#[inline(always)]
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match outcome(body) {
        Ok(()) => Code::Ok as i32,
        Err(failure) => told(&failure) as i32,
    }
}

/// Runs a body and returns its result, or the failure that its panic is.
///
/// A panic leaves the allocator valid or noticeably broken, as it does for callers in Rust: what a body changes is
/// behind locks that its end opens.
#[inline(always)]
pub(crate) fn outcome<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(failure_of(&*panic)))
}

/// Keeps a failure's text for `millpond_last_error`, and returns its code.
#[cold]
pub(crate) fn told(failure: &Failure) -> Code {
    last_error::set(&failure.text);
    failure.code
}

#[cold]
fn failure_of(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message");
    Failure::new(Code::Internal, format!("a mistake of Millpond's own, please report it: {text}"))
}

/// Reads a text of the caller's.
///
/// # Safety
///
/// The pointer is null, or points to a text that ends with a 0 and does not change during the call.
pub(crate) unsafe fn text<'a>(what: &str, pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: it is not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Failure::bad_argument(format!("`{what}` is not UTF-8: {error}")))
}

/// Reads a path of the caller's: on Unix any bytes, elsewhere UTF-8.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn path<'a>(what: &str, pointer: *const c_char) -> Result<&'a Path, Failure> {
    #[cfg(unix)]
    if !pointer.is_null() {
        // SAFETY: it is not null, and the caller promises the rest.
        let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
        return Ok(Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)));
    }
    // SAFETY: as the caller promises.
    unsafe { text(what, pointer) }.map(Path::new)
}

/// A place of the caller's that receives a result.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Takes a place that must be given.
    ///
    /// # Safety
    ///
    /// The pointer is null, or valid for a write of a `T` during the call.
    #[inline(always)]
    pub(crate) unsafe fn required(what: &str, pointer: *mut T) -> Result<Out<T>, Failure> {
        if pointer.is_null() { Err(Failure::null(what)) } else { Ok(Out(pointer)) }
    }

    /// Takes a place that may be left out.
    ///
    /// # Safety
    ///
    /// As for [`required`](Out::required).
    pub(crate) unsafe fn optional(pointer: *mut T) -> Out<T> {
        Out(pointer)
    }

    /// Writes the result, unless the place was left out.
    #[inline(always)]
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: whoever made this promised that the place is valid for a write. What is there is not dropped: it
            // may be uninitialised, and C types have no drop.
            unsafe { self.0.write(value) };
        }
    }
}

/// Gives a text to the caller, who returns it to [`end_text`].
pub(crate) fn give_text(text: &str) -> *mut c_char {
    CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw()
}

/// Ends a text that [`give_text`] gave. A null pointer has no effect.
///
/// # Safety
///
/// The pointer is null or came from [`give_text`], and was not ended before.
pub(crate) unsafe fn end_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller promises, `give_text` made it with `into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}
