//! The driver and its devices.

use std::ffi::{c_char, c_int, c_uint};

use crate::driver::call;
use crate::driver::code::{Answer, Code};
use crate::driver::memory::memory;
use crate::ffi::pointers::{ConstText, Out};
use crate::{DEVICE_NAME, DEVICES, DmaBuf};

/// CUDA 12.8.
const VERSION: c_int = 12_080;

/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED` and `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`, the
/// attributes that tests change.
const RDMA_PAGES: c_uint = 110;
const DMA_BUF: c_uint = 124;

exported! {
    Nothing fn cuInit(flags: c_uint) |_device| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        call::initialize();
        Ok(())
    }

    Nothing fn cuDriverGetVersion(version: Out<c_int>) |_device| { version.put(VERSION) }

    Nothing fn cuGetErrorName(error: u32, text: Out<ConstText>) |_device| { put(text, Code(error).name()) }

    Nothing fn cuGetErrorString(error: u32, text: Out<ConstText>) |_device| { put(text, Code(error).text()) }

    Init fn cuDeviceGetCount(count: Out<c_int>) |_device| { count.put(DEVICES as c_int) }

    Init fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) |_device| { device.put(at(ordinal)? as c_int) }

    Init fn cuDeviceGetName(name: Out<c_char>, room: c_int, device: c_int) |_device| {
        name.put_text(&format!("{DEVICE_NAME} {}", at(device)?), room)
    }

    Init fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) |_device| { uuid.put(uuid_of(at(device)?)) }

    Init fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) |_device| { uuid.put(uuid_of(at(device)?)) }

    Init fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: c_int) |_device| {
        bytes.put(memory().read().devices[at(device)?].bytes)
    }

    Init fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) |_device| {
        let device = at(device)?;
        value.put(match attribute {
            RDMA_PAGES => c_int::from(memory().read().devices[device].rdma),
            DMA_BUF => c_int::from(memory().read().devices[device].dma_buf != DmaBuf::None),
            _ => attribute_of(attribute)?,
        })
    }

    Init fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) |_device| {
        can.put(c_int::from(at(device)? != at(peer)?))
    }

    Init fn cuDeviceGetP2PAttribute(value: Out<c_int>, attribute: c_uint, from: c_int, to: c_int) |_device| {
        if at(from)? == at(to)? {
            return Err(Code::INVALID_DEVICE);
        }
        match attribute {
            1 => value.put(0),
            2..=5 => value.put(c_int::from(attribute == 2)),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// Returns the ordinal of a `CUdevice`.
pub(super) fn at(device: c_int) -> Result<usize, Code> {
    usize::try_from(device).ok().filter(|device| *device < DEVICES).ok_or(Code::INVALID_DEVICE)
}

fn put(out: Out<ConstText>, text: Option<&'static std::ffi::CStr>) -> Answer {
    out.put(text.map_or(ConstText::NONE, ConstText::new))?;
    text.map(|_| ()).ok_or(Code::INVALID_VALUE)
}

fn uuid_of(device: usize) -> [u8; 16] {
    let mut uuid = *b"millpond-cuda-00";
    uuid[15] += device as u8;
    uuid
}

/// Returns an attribute of the simulator by its number in `CUdevice_attribute`. Sizes and counts that work would be
/// fitted to are modest; every ability that is not simulated is absent.
fn attribute_of(attribute: c_uint) -> Result<c_int, Code> {
    Ok(match attribute {
        0 | 145.. => return Err(Code::INVALID_VALUE),
        1..=3 => 1024,        // Threads of a block.
        5..=7 => 65_535,      // Blocks of a grid.
        8 => 48 << 10,        // Shared memory of a block.
        10 => 32,             // Threads of a warp.
        13 | 36 => 1_000_000, // Clocks in kHz.
        14 => 512,            // Alignment of textures.
        16 => 4,              // Processors.
        19 | 31 | 41 => 1,    // Maps host memory; concurrent kernels; one address space with the host.
        39 => 2048,           // Threads of a processor.
        40 => 2,              // Copy engines.
        75 => 8,              // Compute capability, major.
        76 => 0,              // Compute capability, minor.
        78 => 1,              // Priorities of streams.
        102 | 103 | 115 => 1, // Virtual memory; pages as file descriptors; memory pools.
        _ => 0,
    })
}
