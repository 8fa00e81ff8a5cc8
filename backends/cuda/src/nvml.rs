//! What NVML, the driver's management library, tells of processes.

use std::sync::OnceLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use crate::{Cuda, CudaError, DeviceInfo};

fn nvml() -> Result<&'static Nvml, CudaError> {
    static NVML: OnceLock<Nvml> = OnceLock::new();
    if let Some(nvml) = NVML.get() {
        return Ok(nvml);
    }
    let nvml = Nvml::init().map_err(told)?;
    Ok(NVML.get_or_init(|| nvml))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn told(error: NvmlError) -> CudaError {
    CudaError::Nvml { reason: error.to_string() }
}

/// A device's unique number as NVML writes it.
fn uuid(info: &DeviceInfo) -> String {
    let mut text = String::from("GPU-");
    for (at, byte) in info.uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

impl Cuda {
    /// Bytes of the device that this process holds, as NVML counts: with the context's own, which `cuMemGetInfo` does
    /// not tell apart. `None` where NVML does not tell, as in containers that number processes anew.
    ///
    /// # Errors
    ///
    /// [`CudaError::Nvml`].
    pub fn process_bytes(&self) -> Result<Option<u64>, CudaError> {
        let own = std::process::id();
        let processes = self.processes()?;
        Ok(processes.into_iter().find(|&(process, _)| process == own).and_then(|(_, bytes)| bytes))
    }

    /// Bytes that other processes hold, if all of them are told.
    pub(crate) fn others_bytes(&self) -> Option<u64> {
        let own = std::process::id();
        let processes = self.processes().ok()?;
        // Where this process is not in the list, one of the others in it is this one under another number.
        if !processes.iter().any(|&(process, _)| process == own) {
            return None;
        }
        processes.into_iter().filter(|&(process, _)| process != own).map(|(_, bytes)| bytes).sum()
    }

    /// Every process on the device, once, with its bytes where they are told.
    fn processes(&self) -> Result<Vec<(u32, Option<u64>)>, CudaError> {
        let device = nvml()?.device_by_uuid(uuid(self.info())).map_err(told)?;
        let mut processes = device.running_compute_processes().map_err(told)?;
        processes.extend(device.running_graphics_processes().map_err(told)?);
        processes.sort_unstable_by_key(|process| process.pid);
        processes.dedup_by_key(|process| process.pid);
        let bytes = |used: &UsedGpuMemory| match used {
            UsedGpuMemory::Used(bytes) => Some(*bytes),
            UsedGpuMemory::Unavailable => None,
        };
        Ok(processes.iter().map(|process| (process.pid, bytes(&process.used_gpu_memory))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_nvml_names_them() {
        let info = DeviceInfo {
            ordinal: 0,
            name: String::new(),
            uuid: std::array::from_fn(|at| at as u8 * 17),
            total_bytes: 0,
            compute: (9, 0),
            virtual_memory: true,
            memory_pools: true,
            peers: Vec::new(),
        };
        assert_eq!(uuid(&info), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn no_library_is_an_error_that_says_what_to_do() {
        if let Err(error) = nvml() {
            assert!(error.to_string().contains("install"), "{error}");
        }
    }
}
