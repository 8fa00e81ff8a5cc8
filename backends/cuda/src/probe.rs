//! The devices of this machine, found without a panic and without opening any of them.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUuuid};

use crate::code::Code;
use crate::driver::Driver;
use crate::{Cuda, CudaError};

/// The oldest driver that this backend supports, as `cuDriverGetVersion` counts: CUDA 12.0.
const OLDEST: i32 = 12_000;

/// The facts that can be known of a device without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The place by which it is opened.
    pub ordinal: usize,
    /// The name that its maker gave it.
    pub name: String,
    /// Its unique number.
    pub uuid: [u8; 16],
    /// Bytes of its own memory.
    pub total_bytes: u64,
    /// Its compute capability, major and minor.
    pub compute: (u32, u32),
    /// Whether it has virtual memory management.
    pub virtual_memory: bool,
    /// Whether it has memory pools: `cuMemAllocAsync`.
    pub memory_pools: bool,
    /// The places of the devices whose kernels can touch its memory if they are passed to
    /// [`CudaBuilder::peers`](crate::CudaBuilder::peers).
    pub peers: Vec<usize>,
}

impl Cuda {
    /// Lists the devices of this machine. The first call of a process loads the driver, which takes hundreds of
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`], [`CudaError::MissingSymbol`], [`CudaError::DriverTooOld`] and [`CudaError::NoDevice`]
    /// say what to do; else the driver's errors.
    pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
        let driver = Driver::load()?;
        (0..driver.count()?).map(|ordinal| driver.info(ordinal)).collect()
    }

    /// Returns the version of the installed driver, major and minor, as CUDA counts.
    ///
    /// # Errors
    ///
    /// The errors of [`devices`](Cuda::devices).
    pub fn driver_version() -> Result<(u32, u32), CudaError> {
        Driver::load()?.version().map(in_parts)
    }
}

fn in_parts(version: i32) -> (u32, u32) {
    let version = version.unsigned_abs();
    (version / 1000, version % 1000 / 10)
}

/// Returns an error unless the driver is new enough.
fn new_enough(found: i32) -> Result<(), CudaError> {
    if found >= OLDEST {
        return Ok(());
    }
    Err(CudaError::DriverTooOld { found: in_parts(found), needed: in_parts(OLDEST) })
}

impl Driver {
    /// Initialises the driver and checks its version.
    pub(crate) fn start(&self) -> Result<(), CudaError> {
        // SAFETY: the call takes no pointer, and 0 is the only flag that is defined.
        let code = Code(unsafe { (self.cuInit)(0) });
        if code == Code::NO_DEVICE {
            return Err(CudaError::NoDevice { ordinal: 0, count: 0 });
        }
        code.check("cuInit")?;
        new_enough(self.version()?)
    }

    fn version(&self) -> Result<i32, CudaError> {
        let mut version = 0;
        // SAFETY: the pointer is to a local number.
        Code(unsafe { (self.cuDriverGetVersion)(&raw mut version) }).check("cuDriverGetVersion")?;
        Ok(version)
    }

    fn count(&self) -> Result<usize, CudaError> {
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a local number.
        Code(unsafe { (self.cuDeviceGetCount)(&raw mut count) }).check("cuDeviceGetCount")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the driver's handle of a device.
    pub(crate) fn device(&self, ordinal: usize) -> Result<CUdevice, CudaError> {
        let count = self.count()?;
        let missing = CudaError::NoDevice { ordinal, count };
        let place = c_int::try_from(ordinal).ok().filter(|_| ordinal < count).ok_or(missing)?;
        let mut device: CUdevice = 0;
        // SAFETY: the pointer is to a local number, and the place was checked to exist.
        Code(unsafe { (self.cuDeviceGet)(&raw mut device, place) }).check("cuDeviceGet")?;
        Ok(device)
    }

    pub(crate) fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: the pointer is to a local number; the attribute is one of the header's.
        Code(unsafe { (self.cuDeviceGetAttribute)(&raw mut value, attribute as u32, device) })
            .check("cuDeviceGetAttribute")?;
        Ok(value)
    }

    /// Returns the bytes of the device's own memory.
    pub(crate) fn total_bytes(&self, device: CUdevice) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a local number.
        Code(unsafe { (self.cuDeviceTotalMem_v2)(&raw mut bytes, device) }).check("cuDeviceTotalMem")?;
        Ok(bytes as u64)
    }

    /// Returns the facts of a device.
    pub(crate) fn info(&self, ordinal: usize) -> Result<DeviceInfo, CudaError> {
        use CUdevice_attribute as A;
        let device = self.device(ordinal)?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer is to a local structure of the header's layout.
        Code(unsafe { (self.cuDeviceGetUuid)(&raw mut uuid, device) }).check("cuDeviceGetUuid")?;
        let compute = |attribute| self.attribute(device, attribute).map(i32::unsigned_abs);
        let has = |attribute| self.attribute(device, attribute).map(|value| value != 0);
        Ok(DeviceInfo {
            ordinal,
            name: self.name(device)?,
            uuid: uuid.bytes.map(|byte| byte.cast_unsigned()),
            total_bytes: self.total_bytes(device)?,
            compute: (
                compute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                compute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            virtual_memory: has(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
            memory_pools: has(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?,
            peers: self.peers(device, ordinal)?,
        })
    }

    /// Returns the places of the other devices that can reach a device's memory.
    fn peers(&self, device: CUdevice, ordinal: usize) -> Result<Vec<usize>, CudaError> {
        let mut peers = Vec::new();
        for place in (0..self.count()?).filter(|&place| place != ordinal) {
            if self.can_reach(self.device(place)?, device)? {
                peers.push(place);
            }
        }
        Ok(peers)
    }

    /// Returns whether kernels of `peer` can touch the memory of `owner`.
    pub(crate) fn can_reach(&self, peer: CUdevice, owner: CUdevice) -> Result<bool, CudaError> {
        let mut can = 0;
        // SAFETY: the pointer is to a local number.
        let code = unsafe { (self.cuDeviceCanAccessPeer)(&raw mut can, peer, owner) };
        Code(code).check("cuDeviceCanAccessPeer")?;
        Ok(can != 0)
    }

    fn name(&self, device: CUdevice) -> Result<String, CudaError> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the pointer is to 256 local characters, and the last stays 0 because only 255 are offered.
        Code(unsafe { (self.cuDeviceGetName)(name.as_mut_ptr(), 255, device) }).check("cuDeviceGetName")?;
        // SAFETY: the array ends with a 0.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_named_with_both_versions() {
        let error = new_enough(11_080).expect_err("CUDA 11.8 is too old");
        assert!(error.to_string().contains("CUDA 11.8") && error.to_string().contains("12.0"), "{error}");
        assert!(new_enough(12_000).is_ok() && new_enough(13_010).is_ok());
    }

    #[test]
    fn looking_never_panics() {
        match Cuda::devices() {
            Ok(devices) => assert!(devices.iter().enumerate().all(|(at, device)| device.ordinal == at)),
            Err(error) => {
                let told = ["install", "update", "look", "driver"].iter().any(|word| error.to_string().contains(word));
                assert!(told, "the error says nothing of what to do: {error}");
            }
        }
    }

    #[test]
    fn no_function_is_needed_twice() {
        let mut names = crate::driver::NEEDED.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), crate::driver::NEEDED.len());
    }
}
