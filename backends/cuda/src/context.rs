//! Making the device's context current on the calling thread, and leaving the thread as it was.

use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys::CUcontext;

use crate::CudaError;
use crate::device::Device;
use crate::driver::Driver;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// While it lives the device's context is current on this thread. Whatever other context was current before is current
/// again afterwards: engines read the current device from it. A thread that had none keeps this one.
pub(crate) struct Bound {
    driver: &'static Driver,
    previous: Option<CUcontext>,
    /// Contexts are current per thread.
    thread: PhantomData<*const ()>,
}

/// While it lives the thread may call what is unsafe during captures of other threads: asking for memory, asking events.
/// Nothing of ours is in those captures, so it does them no harm.
pub(crate) struct Relaxed {
    driver: &'static Driver,
    mode: u32,
    thread: PhantomData<*const ()>,
}

impl Device {
    /// Makes the context current if it is not. Costs one driver call of 10 ns where it is.
    pub(crate) fn bind(&self) -> Result<Bound, CudaError> {
        let bound = Bound::new(self.driver, self.context.cu_ctx());
        bound.map_err(|(call, code)| match self.check(call, code) {
            Err(error) => error,
            Ok(()) => panic!("{call} failed with success"),
        })
    }

    /// As [`bind`](Device::bind), for calls that are prohibited while another thread captures.
    pub(crate) fn bind_relaxed(&self) -> Result<(Bound, Relaxed), CudaError> {
        let bound = self.bind()?;
        Ok((bound, Relaxed::new(self.driver)))
    }
}

impl Bound {
    /// Fails with the call and its code.
    pub(crate) fn new(driver: &'static Driver, context: CUcontext) -> Result<Bound, (&'static str, u32)> {
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: the pointer is to a local pointer.
        let code = unsafe { (driver.cuCtxGetCurrent)(&raw mut current) };
        if code != 0 {
            return Err(("cuCtxGetCurrent", code));
        }
        if current == context {
            return Ok(Bound { driver, previous: None, thread: PhantomData });
        }
        // SAFETY: the context is alive: the caller holds it.
        let code = unsafe { (driver.cuCtxSetCurrent)(context) };
        if code != 0 {
            return Err(("cuCtxSetCurrent", code));
        }
        let previous = Some(current).filter(|current| !current.is_null());
        Ok(Bound { driver, previous, thread: PhantomData })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // SAFETY: it was current when we came. If somebody destroyed it meanwhile the driver refuses, and there is
            // nothing to go back to.
            unsafe { (self.driver.cuCtxSetCurrent)(previous) };
        }
    }
}

impl Relaxed {
    fn new(driver: &'static Driver) -> Relaxed {
        let mut mode = RELAXED;
        // SAFETY: the pointer is to a local number, a mode of the header's, which is exchanged for the thread's.
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
