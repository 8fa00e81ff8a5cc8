//! The devices of this machine, found without a panic and without opening any of them.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUuuid};

use crate::driver::Driver;
use crate::error::{Code, CudaError, in_parts};

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
    /// Whether its pages can be given to other processes as file descriptors, if it is opened for that:
    /// [`CudaBuilder::shareable_pages`](crate::CudaBuilder::shareable_pages).
    pub shareable_pages: bool,
    /// Whether network cards can be given access to its pages, as a registration for RDMA does. All its pages are made
    /// for that then.
    pub rdma_pages: bool,
    /// Whether the driver makes DMA buffers of its memory: [`Cuda::export_dma_buf`](crate::Cuda::export_dma_buf).
    pub dma_buf: bool,
    /// Whether it has memory pools: `cuMemAllocAsync`.
    pub memory_pools: bool,
    /// The places of the devices whose kernels can touch its memory if they are passed to
    /// [`CudaBuilder::peers`](crate::CudaBuilder::peers).
    pub peers: Vec<usize>,
}

/// Lists the devices of this machine.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    let driver = Driver::load()?;
    (0..driver.count()?).map(|ordinal| driver.info(ordinal)).collect()
}

/// Returns the version of the installed driver, major and minor.
pub(crate) fn driver_version() -> Result<(u32, u32), CudaError> {
    Ok(in_parts(Driver::load()?.version()?))
}

impl Driver {
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
            shareable_pages: has(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?,
            rdma_pages: has(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)?,
            dma_buf: has(A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)?,
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
    fn looking_never_panics() {
        match devices() {
            Ok(devices) => assert!(devices.iter().enumerate().all(|(at, device)| device.ordinal == at)),
            Err(error) => {
                let told = ["install", "update", "look", "driver"].iter().any(|word| error.to_string().contains(word));
                assert!(told, "the error says nothing of what to do: {error}");
            }
        }
    }
}
