//! Functions of the program that a stream calls.

use std::cell::Cell;
use std::ffi::c_void;

use crate::driver::code::Code;

/// A function and its argument, as given to `cuLaunchHostFunc`.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: the caller of `cuLaunchHostFunc` knows that the function is called on a thread of the driver's.
unsafe impl Send for HostCall {}
// SAFETY: as above; a shared reference gives no access to the data except by the call.
unsafe impl Sync for HostCall {}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl HostCall {
    pub(crate) fn new(
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        data: *mut c_void,
    ) -> Result<HostCall, Code> {
        function.map(|function| HostCall { function, data }).ok_or(Code::INVALID_VALUE)
    }

    /// Calls the function on this thread.
    pub(crate) fn run(self) {
        INSIDE.set(true);
        // SAFETY: the program that queued the function guarantees that it may be called with this data when the stream
        // reaches it.
        unsafe { (self.function)(self.data) };
        INSIDE.set(false);
    }
}

/// Returns whether this thread is inside such a function, from where the driver must not be called.
pub(crate) fn inside() -> bool {
    INSIDE.get()
}
