//! The memory of processes, as NVML, the driver's management library, reports it.

use std::sync::OnceLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use crate::error::CudaError;
use crate::probe::DeviceInfo;

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

/// Returns a device's unique number as NVML writes it.
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

/// A process and its bytes, where they are reported.
type Process = (u32, Option<u64>);

/// Returns the bytes of this process and those of all others, as far as the list has them. `held` bytes are known to
/// belong to this process.
fn shares_of(processes: &[Process], own: u32, held: u64) -> (Option<u64>, Option<u64>) {
    // Where this process is not in the list, one of those in it is this one under another number. The same holds where
    // the number of this process is in the list with fewer bytes than this process holds.
    let is_own = |&&(process, bytes): &&Process| process == own && bytes.is_none_or(|bytes| bytes >= held);
    let Some(&(_, bytes)) = processes.iter().find(is_own) else { return (None, None) };
    (bytes, processes.iter().filter(|&&(process, _)| process != own).map(|&(_, bytes)| bytes).sum())
}

/// Returns the bytes of the device that this process holds, where NVML reports them.
pub(crate) fn process_bytes(info: &DeviceInfo, held: u64) -> Result<Option<u64>, CudaError> {
    Ok(shares_of(&processes(info)?, std::process::id(), held).0)
}

/// Returns the bytes of the device that are in use.
pub(crate) fn used_bytes(info: &DeviceInfo) -> Result<u64, CudaError> {
    Ok(device(info)?.memory_info().map_err(told)?.used)
}

/// Returns the bytes of this process and those of all others, as far as NVML reports them.
pub(crate) fn shares(info: &DeviceInfo, held: u64) -> (Option<u64>, Option<u64>) {
    processes(info).map_or((None, None), |processes| shares_of(&processes, std::process::id(), held))
}

fn device(info: &DeviceInfo) -> Result<nvml_wrapper::Device<'static>, CudaError> {
    nvml()?.device_by_uuid(uuid(info)).map_err(told)
}

/// Lists every process on the device once.
fn processes(info: &DeviceInfo) -> Result<Vec<Process>, CudaError> {
    let device = device(info)?;
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
            shareable_pages: true,
            rdma_pages: true,
            dma_buf: true,
            memory_pools: true,
            peers: Vec::new(),
        };
        assert_eq!(uuid(&info), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn shares_are_told_where_this_process_is_in_the_list() {
        let (ours, others) = ((7, Some(100)), (9, Some(30)));
        assert_eq!(shares_of(&[ours, others, (11, Some(5))], 7, 80), (Some(100), Some(35)));
        assert_eq!(shares_of(&[ours], 7, 100), (Some(100), Some(0)));
        assert_eq!(shares_of(&[ours, (9, None)], 7, 80), (Some(100), None), "one of the others is not told");
        assert_eq!(shares_of(&[(7, None), others], 7, 80), (None, Some(30)));
        assert_eq!(shares_of(&[others], 7, 0), (None, None), "this one goes by another number");
        assert_eq!(shares_of(&[ours, others], 7, 101), (None, None), "another one goes by this one's number");
        assert_eq!(shares_of(&[], 7, 0), (None, None));
    }

    #[test]
    fn no_library_is_an_error_that_says_what_to_do() {
        if let Err(error) = nvml() {
            assert!(error.to_string().contains("install"), "{error}");
        }
    }
}
