//! The driver's functions, each looked up by name once, so that a missing one is an error and not a panic.
//!
//! The library is opened here and not by cudarc, which opens it only where no crate of the program has it link the
//! driver. Both then have the same library: the loader opens a file once.
//!
//! They return their codes as plain numbers. The enumeration of the bindings must not be used for values that come from
//! a driver: a driver that is newer than the bindings may return a code that the enumeration lacks, which would be
//! undefined behaviour.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

#[cfg(feature = "testing")]
use cudarc::driver::sys::CUhostFn;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmemGenericAllocationHandle, CUmodule, CUstream, CUuuid,
};
use libloading::Library;

/// The oldest driver that this backend supports, as `cuDriverGetVersion` counts: CUDA 12.0.
pub(crate) const OLDEST: i32 = 12_000;

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;

/// The reason why the driver of this machine cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// The library is not there.
    NoLibrary,
    /// The library lacks a function.
    NoFunction(&'static str),
    /// The driver has no device.
    NoDevice,
    /// The driver's version is below [`OLDEST`].
    TooOld { version: i32 },
    /// A call failed with a code.
    Refused { call: &'static str, code: u32 },
}

/// `CUmemLocation` for a device. The three structures are written out here because their layout is the same in every
/// version of CUDA, and the fields' names in the bindings are not.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageLocation {
    kind: c_uint,
    device: CUdevice,
}

/// `CUmemAllocationProp`: what a page is made for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageProperties {
    kind: c_uint,
    handles: c_uint,
    location: PageLocation,
    /// `win32HandleMetaData`, a pointer, which stays null.
    metadata: usize,
    compression: u8,
    rdma: u8,
    rest: [u8; 6],
}

/// `CUmemAccessDesc`: the device that may read and write.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageAccess {
    location: PageLocation,
    flags: c_uint,
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR: c_uint = 1;

impl PageLocation {
    fn of(device: CUdevice) -> PageLocation {
        // `CU_MEM_LOCATION_TYPE_DEVICE`.
        PageLocation { kind: 1, device }
    }
}

impl PageProperties {
    /// Returns what makes pages on a device. If they are `shareable`, other processes can have them as file
    /// descriptors. If `rdma` is set, network cards can be given access to them.
    pub(crate) fn new(device: CUdevice, shareable: bool, rdma: bool) -> PageProperties {
        PageProperties {
            // `CU_MEM_ALLOCATION_TYPE_PINNED`.
            kind: 1,
            handles: if shareable { FILE_DESCRIPTOR } else { 0 },
            location: PageLocation::of(device),
            metadata: 0,
            compression: 0,
            rdma: u8::from(rdma),
            rest: [0; 6],
        }
    }

    /// Returns whether other processes can have the pages as file descriptors.
    #[cfg(unix)]
    pub(crate) fn is_shareable(&self) -> bool {
        self.handles == FILE_DESCRIPTOR
    }
}

impl PageAccess {
    /// Returns what opens memory for a device. 3 is `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    pub(crate) fn of(device: CUdevice) -> PageAccess {
        PageAccess { location: PageLocation::of(device), flags: 3 }
    }
}

/// Declares the table once: every function is a field of its own name, with the driver's signature.
macro_rules! functions {
    (
        needed { $($(#[$meta:meta])* $name:ident($($argument:ty),*);)* }
        optional { $($maybe:ident($($maybe_argument:ty),*);)* }
    ) => {
        /// The driver functions that this backend calls. The library stays loaded for the life of the process, so the
        /// pointers stay valid.
        #[allow(non_snake_case)] // The driver's names.
        pub(crate) struct Driver {
            $($(#[$meta])* pub(crate) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
            $(pub(crate) $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) -> u32>,)*
        }

        impl Driver {
            fn look_up(library: &Library) -> Result<Driver, Unusable> {
                for symbol in THROUGH_CUDARC {
                    needed::<*const ()>(library, symbol)?;
                }
                Ok(Driver {
                    $($(#[$meta])* $name: needed(library, stringify!($name))?,)*
                    $($maybe: function(library, stringify!($maybe)),)*
                })
            }
        }

        /// The names of all functions that the driver must have.
        #[cfg(test)]
        pub(crate) const NEEDED: &[&str] = &[$($(#[$meta])* stringify!($name)),*];
    };
}

functions! {
    needed {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(u32, *mut *const c_char);
        cuGetErrorString(u32, *mut *const c_char);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceGetUuid(*mut CUuuid, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDeviceGetAttribute(*mut c_int, u32, CUdevice);
        cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        cuCtxGetCurrent(*mut CUcontext);
        cuCtxSetCurrent(CUcontext);
        cuCtxSynchronize();
        cuCtxEnablePeerAccess(CUcontext, c_uint);
        cuStreamCreate(*mut CUstream, c_uint);
        cuStreamDestroy_v2(CUstream);
        cuStreamSynchronize(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuStreamIsCapturing(CUstream, *mut c_uint);
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
        #[cfg(feature = "testing")]
        cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
        cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        cuMemHostUnregister(*mut c_void);
        cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        cuMemGetAllocationGranularity(*mut usize, *const PageProperties, c_uint);
        cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        cuMemAddressFree(CUdeviceptr, usize);
        cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const PageProperties, c_ulonglong);
        cuMemRelease(CUmemGenericAllocationHandle);
        cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        cuMemSetAccess(CUdeviceptr, usize, *const PageAccess, usize);
        cuMemUnmap(CUdeviceptr, usize);
    }
    optional {
        cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
        cuMemFreeAsync(CUdeviceptr, CUstream);
        cuMemExportToShareableHandle(*mut c_void, CUmemGenericAllocationHandle, c_uint, c_ulonglong);
        cuMemGetHandleForAddressRange(*mut c_void, CUdeviceptr, usize, c_uint, c_ulonglong);
        cuMemImportFromShareableHandle(*mut CUmemGenericAllocationHandle, *mut c_void, c_uint);
        cuStreamGetId(CUstream, *mut c_ulonglong);
        cuModuleLoadData(*mut CUmodule, *const c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void
        );
    }
}

/// Further functions that cudarc calls for this backend, when it opens a context and when it releases it.
const THROUGH_CUDARC: [&str; 2] = ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"];

/// The names of the driver's library. They are among those that cudarc tries, in the same order: what is found here
/// cudarc finds, and does not panic.
const NAMES: [&str; 2] = if cfg!(windows) { ["cuda.dll", "nvcuda.dll"] } else { ["libcuda.so", "libcuda.so.1"] };

/// Returns the driver's library, which stays loaded for the life of the process, or `None` if it is not there.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if LIBRARY.get().is_none() {
        // SAFETY: loading a driver's library runs its initialisation, which is what it is made for.
        let found = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        return Some(LIBRARY.get_or_init(|| found));
    }
    LIBRARY.get()
}

/// Returns the function of that name, if the driver has it.
fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: `F` is the signature in the table, which is the one in the driver's header.
    unsafe { library.get::<F>(name) }.ok().map(|symbol| *symbol)
}

/// Returns the function of that name, or an error if the driver lacks it.
fn needed<F: Copy>(library: &Library, symbol: &'static str) -> Result<F, Unusable> {
    function(library, symbol).ok_or(Unusable::NoFunction(symbol))
}

/// Returns an error unless the driver is new enough.
fn new_enough(version: i32) -> Result<(), Unusable> {
    if version >= OLDEST { Ok(()) } else { Err(Unusable::TooOld { version }) }
}

impl Driver {
    /// Returns the driver of this machine, loaded and initialised. Takes hundreds of milliseconds the first time.
    pub(crate) fn load() -> Result<&'static Driver, Unusable> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let driver = Driver::look_up(library().ok_or(Unusable::NoLibrary)?)?;
        driver.start()?;
        Ok(DRIVER.get_or_init(|| driver))
    }
    /// Initialises the driver and checks its version.
    fn start(&self) -> Result<(), Unusable> {
        // SAFETY: the call takes no pointer, and 0 is the only flag that is defined.
        match unsafe { (self.cuInit)(0) } {
            0 => new_enough(self.version()?),
            NO_DEVICE => Err(Unusable::NoDevice),
            code => Err(Unusable::Refused { call: "cuInit", code }),
        }
    }

    /// Returns the version, as CUDA counts: 12000 for 12.0.
    pub(crate) fn version(&self) -> Result<i32, Unusable> {
        const CALL: &str = "cuDriverGetVersion";
        let mut version = 0;
        // SAFETY: the pointer is to a local number.
        match unsafe { (self.cuDriverGetVersion)(&raw mut version) } {
            0 => Ok(version),
            code => Err(Unusable::Refused { call: CALL, code }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_refused() {
        assert_eq!(new_enough(11_080), Err(Unusable::TooOld { version: 11_080 }));
        assert!(new_enough(12_000).is_ok() && new_enough(13_010).is_ok());
    }

    #[test]
    fn what_is_written_out_has_the_layout_of_the_bindings() {
        use cudarc::driver::sys;
        assert_eq!(size_of::<PageLocation>(), size_of::<sys::CUmemLocation>());
        assert_eq!(size_of::<PageAccess>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(size_of::<PageProperties>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(align_of::<PageProperties>(), align_of::<sys::CUmemAllocationProp>());
        let offset = std::mem::offset_of!(sys::CUmemAllocationProp, allocFlags);
        assert_eq!(std::mem::offset_of!(PageProperties, compression), offset);
        assert_eq!(std::mem::offset_of!(PageAccess, flags), std::mem::offset_of!(sys::CUmemAccessDesc, flags));
        assert_eq!(FILE_DESCRIPTOR, sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0);
    }

    #[test]
    fn no_function_is_needed_twice() {
        let mut names = NEEDED.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NEEDED.len());
    }
}
