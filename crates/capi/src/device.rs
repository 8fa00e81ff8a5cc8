//! What the interface needs of a device beyond the contract: its streams by the driver's own handles.

use millpond_backend::{Backend, StreamId};
use millpond_cuda::cudarc::driver::sys::CUstream;
use millpond_cuda::{Cuda, CudaBuilder};
use millpond_sim::Sim;

use crate::code::{Code, Failure};
use crate::fork;

/// A device whose streams C programs can pass.
pub(crate) trait Device: Backend {
    /// Whether the handle of a stream may come back, for another stream, once the stream was released.
    const HANDLES_COME_BACK: bool;

    /// Returns the stream of a handle of the program's.
    ///
    /// The handle is that of a stream of this device, which lives until [`close`](Device::close) or until the device
    /// is dropped: the header asks that of the program.
    fn open(&self, native: u64) -> Result<StreamId, Failure>;

    /// Returns the handle of a stream.
    fn native(&self, stream: StreamId) -> Result<u64, Failure>;

    /// Ends the use of a stream.
    fn close(&self, stream: StreamId) -> Result<(), Failure>;

    /// Returns memory that the program has allocated as a segment. Its release leaves the memory to the program.
    ///
    /// # Safety
    ///
    /// There are that many bytes of this device at the address. They overlap no other segment, and stay until this one
    /// is released.
    unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Self::Segment, Self::Error>;

    /// Returns the length of a segment in bytes.
    fn length(segment: &Self::Segment) -> u64;

    /// Lets kernels of another device of the same kind touch the memory of this one.
    fn open_to(&self, other: u32) -> Result<(), Failure>;
}

impl Device for Cuda {
    const HANDLES_COME_BACK: bool = true;

    fn open(&self, native: u64) -> Result<StreamId, Failure> {
        /// `CU_STREAM_PER_THREAD`.
        const PER_THREAD: u64 = 2;
        if native == PER_THREAD {
            return Err(Failure::bad_argument(
                "CU_STREAM_PER_THREAD means another stream on each thread, so memory of it could not be told apart; \
                 create a stream",
            ));
        }
        // SAFETY: the header asks the program for what this call does.
        Ok(unsafe { self.register_raw(native as CUstream) }?)
    }

    fn native(&self, stream: StreamId) -> Result<u64, Failure> {
        Ok(self.raw_stream(stream)? as u64)
    }

    fn close(&self, stream: StreamId) -> Result<(), Failure> {
        Ok(self.unregister(stream)?)
    }

    unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Self::Segment, Self::Error> {
        // SAFETY: as the caller promises.
        unsafe { self.adopt_memory(address, bytes) }
    }

    fn length(segment: &Self::Segment) -> u64 {
        segment.bytes()
    }

    fn open_to(&self, other: u32) -> Result<(), Failure> {
        Ok(Cuda::open_to(self, other as usize)?)
    }
}

impl Device for Sim {
    const HANDLES_COME_BACK: bool = false;

    fn open(&self, native: u64) -> Result<StreamId, Failure> {
        match u32::try_from(native).map(StreamId) {
            Ok(stream) if self.has_stream(stream) => Ok(stream),
            _ => Err(Failure::bad_argument(format!(
                "the simulated device has no stream {native:#x}: pass NULL, or what millpond_stream_create wrote"
            ))),
        }
    }

    fn native(&self, stream: StreamId) -> Result<u64, Failure> {
        Ok(u64::from(stream.0))
    }

    /// A simulated stream needs nothing.
    fn close(&self, _stream: StreamId) -> Result<(), Failure> {
        Ok(())
    }

    unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Self::Segment, Self::Error> {
        self.adopt_memory(address, bytes)
    }

    fn length(segment: &Self::Segment) -> u64 {
        segment.bytes()
    }

    /// No device can tell whose memory it touches.
    fn open_to(&self, _other: u32) -> Result<(), Failure> {
        Ok(())
    }
}

/// A device's name, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Sim(u32),
    Cuda(usize),
}

impl Name {
    /// Parses the name of a device.
    pub(crate) fn parse(text: &str) -> Result<Name, Failure> {
        let (backend, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        match (backend, number) {
            ("sim", None) => Ok(Name::Sim(0)),
            ("sim", Some(number)) => match number.parse() {
                Ok(number) if number < SIMS => Ok(Name::Sim(number)),
                _ => Err(Failure::bad_argument(format!(
                    "`{text}` names no simulated device: they are sim, and sim:0 to sim:{}",
                    SIMS - 1
                ))),
            },
            ("cuda", None) => Ok(Name::Cuda(0)),
            ("cuda", Some(number)) => number.parse().map(Name::Cuda).map_err(|_| {
                Failure::bad_argument(format!("`{text}` names no CUDA device: write its number, as in cuda:0"))
            }),
            ("vulkan" | "wgpu", _) => {
                let text = format!("{backend} gives memory no addresses, by which C frees it: use its Rust interface");
                Err(Failure::new(Code::Unsupported, text))
            }
            _ => Err(Failure::bad_argument(format!(
                "`{text}` is no device: there are cuda:0 and so on, and sim:0 and so on"
            ))),
        }
    }
}

/// The number of simulated devices with addresses of their own.
const SIMS: u32 = 64;

/// The first address of simulated device 0, as the CUDA driver's often are, and the bytes from each to the next.
const SIM_START: u64 = 0x7_0000_0000;
const SIM_STEP: u64 = 1 << 40;

/// Returns a simulated device, whose stream 0 stands for the default stream. Devices of different numbers have
/// different addresses.
pub(crate) fn open_sim(number: u32) -> Result<Sim, Failure> {
    let sim = Sim::new();
    sim.place_next(SIM_START + u64::from(number) * SIM_STEP);
    match sim.create_stream() {
        Ok(StreamId(0)) => Ok(sim),
        Ok(other) => panic!("the first stream of a simulated device is {other}"),
        Err(error) => Err(Failure::new(Code::Driver, error.to_string())),
    }
}

/// Opens a device of CUDA's, unless the driver is that of a parent process.
pub(crate) fn open_cuda(device: CudaBuilder) -> Result<Cuda, Failure> {
    fork::CUDA.check()?;
    let cuda = device.build()?;
    fork::CUDA.note();
    Ok(cuda)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        let names = [
            ("sim", Name::Sim(0)),
            ("sim:63", Name::Sim(63)),
            ("cuda", Name::Cuda(0)),
            ("cuda:0", Name::Cuda(0)),
            ("cuda:13", Name::Cuda(13)),
        ];
        for (text, name) in names {
            assert_eq!(Name::parse(text), Ok(name), "{text}");
        }
        for text in
            ["", "sim:", "sim:64", "sim:bytes=1GiB", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "CUDA:0", "rocm:0"]
        {
            assert_eq!(Name::parse(text).map_err(|failure| failure.code), Err(Code::BadArgument), "{text}");
        }
        for text in ["vulkan", "vulkan:0", "wgpu"] {
            assert_eq!(Name::parse(text).map_err(|failure| failure.code), Err(Code::Unsupported), "{text}");
        }
    }
}
