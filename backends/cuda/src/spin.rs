//! Kernels that take a given time and leave most of the device to others: work for measurements.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::{CUfunction, CUmodule};
use millpond_backend::StreamId;

use crate::device::CudaWith;
use crate::driver::Driver;
use crate::error::CudaError;
use crate::gear::{Gear, Plain};

/// One thread that reads the device's clock of nanoseconds until the time is over. The driver compiles it for the
/// device at hand.
const KERNEL: &CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 time)
{
    .reg .u64 %time, %begin, %now;
    .reg .pred %more;
    ld.param.u64 %time, [time];
    mov.u64 %begin, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %more, %now, %time;
    @%more bra AGAIN;
    ret;
}
";

/// A kernel of one thread that takes a given time: it occupies one multiprocessor, so that the streams of a program run
/// side by side as far as the device has room for them. It touches no memory. For measurements, where a fill of much
/// memory would keep the whole device busy. Dropping it waits for all work of the device.
pub struct Spinner<G: Gear = Plain> {
    cuda: CudaWith<G>,
    calls: Calls,
    module: CUmodule,
    kernel: CUfunction,
}

/// The driver's functions for kernels, which nothing else of this backend needs.
#[derive(Clone, Copy)]
struct Calls {
    load: unsafe extern "C" fn(*mut CUmodule, *const c_void) -> u32,
    unload: unsafe extern "C" fn(CUmodule) -> u32,
    find: unsafe extern "C" fn(*mut CUfunction, CUmodule, *const std::ffi::c_char) -> u32,
    launch: unsafe extern "C" fn(
        CUfunction,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        cudarc::driver::sys::CUstream,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> u32,
}

impl Calls {
    fn of(driver: &Driver) -> Result<Calls, CudaError> {
        let lacks = |symbol| CudaError::MissingSymbol { symbol };
        Ok(Calls {
            load: driver.cuModuleLoadData.ok_or(lacks("cuModuleLoadData"))?,
            unload: driver.cuModuleUnload.ok_or(lacks("cuModuleUnload"))?,
            find: driver.cuModuleGetFunction.ok_or(lacks("cuModuleGetFunction"))?,
            launch: driver.cuLaunchKernel.ok_or(lacks("cuLaunchKernel"))?,
        })
    }
}

// SAFETY: the module and the kernel are the driver's handles, which any thread may use while the module is loaded; it
// is unloaded when the value is dropped, and the device is held until then.
unsafe impl<G: Gear> Send for Spinner<G> {}
// SAFETY: as above; the driver's calls with them may be made by several threads at once.
unsafe impl<G: Gear> Sync for Spinner<G> {}

impl<G: Gear> fmt::Debug for Spinner<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spinner").field("cuda", &self.cuda).finish_non_exhaustive()
    }
}

impl<G: Gear> CudaWith<G> {
    /// Loads a kernel that takes a given time. Costs milliseconds, as the driver compiles it.
    ///
    /// # Errors
    ///
    /// [`CudaError::MissingSymbol`] if the driver launches no kernels, [`CudaError::Lost`], and the driver's errors.
    pub fn spinner(&self) -> Result<Spinner<G>, CudaError> {
        const LOAD: &str = "cuModuleLoadData";
        const FIND: &str = "cuModuleGetFunction";
        let device = &*self.device;
        let calls = Calls::of(device.driver)?;
        device.enter(LOAD)?;
        let _bound = device.bind_relaxed()?;
        let mut module = ptr::null_mut();
        // SAFETY: the text ends in a zero byte, and the driver copies what it needs; the other pointer is to a local.
        let code = unsafe { (calls.load)(&raw mut module, KERNEL.as_ptr().cast()) };
        device.check(LOAD, code)?;
        // From here on the module is unloaded in any case.
        let mut spinner = Spinner { cuda: self.clone(), calls, module, kernel: ptr::null_mut() };
        // SAFETY: the module is loaded, the name ends in a zero byte, and the pointer is to a field of this thread's.
        let code = unsafe { (calls.find)(&raw mut spinner.kernel, module, c"spin".as_ptr()) };
        device.check(FIND, code)?;
        Ok(spinner)
    }
}

impl<G: Gear> Spinner<G> {
    /// Queues a kernel that takes that time on a stream of the device. The device's clock counts in steps of up to a
    /// microsecond, and a launch takes some microseconds besides.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unregistered`], [`CudaError::OtherThread`], [`CudaError::Lost`], and the driver's errors.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn spin(&self, stream: StreamId, time: Duration) -> Result<(), CudaError> {
        const CALL: &str = "cuLaunchKernel";
        let device = &*self.cuda.device;
        device.enter(CALL)?;
        let stay = device.lane(stream).stay();
        let handle = device.usable(CALL, stream, &stay)?;
        let _bound = device.bind()?;
        let mut nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut parameters = [(&raw mut nanoseconds).cast::<c_void>()];
        let (kernel, none) = (self.kernel, ptr::null_mut());
        // SAFETY: the kernel is loaded and takes one number, which the driver copies before it returns; the stream is
        // alive, and stays so.
        let code = unsafe { (self.calls.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, handle, parameters.as_mut_ptr(), none) };
        device.check(CALL, code)
    }
}

impl<G: Gear> Drop for Spinner<G> {
    fn drop(&mut self) {
        let device = &*self.cuda.device;
        if let Ok(_bound) = device.bind_relaxed() {
            device.gear.before_waiting_for_all();
            // SAFETY: the call takes no pointer; the context is current.
            let code = unsafe { (device.driver.cuCtxSynchronize)() };
            device.keep("cuCtxSynchronize", code);
            // SAFETY: this value loaded the module, and its kernels are over.
            let code = unsafe { (self.calls.unload)(self.module) };
            device.keep("cuModuleUnload", code);
        }
    }
}
