//! The device's context on the calling thread: making it current, and leaving the thread as it was.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUcontext;

use crate::driver::Driver;
use crate::error::Code;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// A guard that makes the device's context current on this thread. When it is dropped, the context that was current
/// before is current again, because engines read the current device from it. A thread that had no context keeps this
/// one.
pub(crate) struct Bound {
    driver: &'static Driver,
    /// The context to restore, or null if there is none.
    previous: CUcontext,
    /// Keeps the guard on its thread, because contexts are current per thread.
    thread: PhantomData<*const ()>,
}

/// A guard under which the thread may make calls that are unsafe during captures of other threads: allocating memory,
/// querying events. Nothing of this backend is in those captures, so the calls do not disturb them.
pub(crate) struct Relaxed {
    driver: &'static Driver,
    mode: u32,
    thread: PhantomData<*const ()>,
}

impl Bound {
    /// Makes a context current. On failure returns the driver call and its code.
    pub(crate) fn new(driver: &'static Driver, context: CUcontext) -> Result<Bound, (&'static str, Code)> {
        let current = current(driver).map_err(|code| ("cuCtxGetCurrent", code))?;
        if current == context {
            return Ok(Bound { driver, previous: ptr::null_mut(), thread: PhantomData });
        }
        // SAFETY: the context is alive: the caller holds it.
        let code = unsafe { (driver.cuCtxSetCurrent)(context) };
        if code != 0 {
            return Err(("cuCtxSetCurrent", Code(code)));
        }
        Ok(Bound { driver, previous: current, thread: PhantomData })
    }
}

/// Returns the context that is current on this thread, or null.
pub(crate) fn current(driver: &Driver) -> Result<CUcontext, Code> {
    let mut current: CUcontext = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer.
    let code = Code(unsafe { (driver.cuCtxGetCurrent)(&raw mut current) });
    if code == Code::SUCCESS { Ok(current) } else { Err(code) }
}

/// Makes the previous context current again, unless there was none.
pub(crate) fn restore(driver: &Driver, previous: CUcontext) {
    if !previous.is_null() {
        // SAFETY: it was current a moment ago. If other code has destroyed it in the meantime, the driver refuses, and
        // there is nothing to restore.
        unsafe { (driver.cuCtxSetCurrent)(previous) };
    }
}

/// A context that is shared with cudarc. Dropping its last reference makes it current for a moment; the drop of this
/// type then restores the previous context.
#[derive(Clone)]
pub(crate) struct Shared {
    driver: &'static Driver,
    context: Option<Arc<CudaContext>>,
}

impl Shared {
    pub(crate) fn new(driver: &'static Driver, context: Arc<CudaContext>) -> Shared {
        Shared { driver, context: Some(context) }
    }
}

impl Deref for Shared {
    type Target = Arc<CudaContext>;

    fn deref(&self) -> &Arc<CudaContext> {
        self.context.as_ref().expect("the context is there until the drop")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(last) = self.context.take().and_then(Arc::into_inner) {
            let previous = current(self.driver);
            drop(last);
            if let Ok(previous) = previous {
                restore(self.driver, previous);
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        restore(self.driver, self.previous);
    }
}

impl Relaxed {
    /// Makes such calls possible on this thread.
    pub(crate) fn new(driver: &'static Driver) -> Relaxed {
        let mut mode = RELAXED;
        // SAFETY: the pointer is to a local number that holds a mode of the header's, which is exchanged for the
        // thread's.
        unsafe { (driver.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        Relaxed { driver, mode, thread: PhantomData }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above, with the mode that the thread had.
        unsafe { (self.driver.cuThreadExchangeStreamCaptureMode)(&raw mut self.mode) };
    }
}
