//! Which devices there are, and how each is opened. Programs in C name them by a text. Frameworks name them by a number
//! alone: they are CUDA's, unless the environment puts simulated ones in their place.

use millpond_backend::{Backend as _, StreamId};
use millpond_cuda::{Cuda, CudaBuilder};
use millpond_sim::Sim;

use crate::code::{Code, Failure};
use crate::fork;

/// The environment variable that puts simulated devices in the place of CUDA's.
const DEVICE: &str = "MILLPOND_TORCH_DEVICE";

/// The environment variable of PyTorch's that keeps pages from being shared, if it is 0.
pub(crate) const SHARES_PAGES: &str = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";

/// The most devices of frameworks. A machine has fewer.
pub(crate) const DEVICES: usize = 64;

/// The number of simulated devices with addresses of their own.
const SIMS: u32 = 64;

/// The first address of simulated device 0, as the CUDA driver's often are, and the bytes from each to the next.
const SIM_START: u64 = 0x7_0000_0000;
const SIM_STEP: u64 = 1 << 40;

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

/// Returns the place of a device in a table of [`DEVICES`].
#[inline]
pub(crate) fn place(device: i32) -> Result<usize, Failure> {
    let place = usize::try_from(device).ok().filter(|&place| place < DEVICES);
    place.ok_or_else(|| Failure::bad_argument(format!("{device} is no device: they have numbers from 0 to 63")))
}

/// Returns whether the environment puts simulated devices in the place of CUDA's.
pub(crate) fn is_simulated() -> Result<bool, Failure> {
    match std::env::var(DEVICE).as_deref() {
        Err(_) | Ok("cuda") => Ok(false),
        Ok("sim") => Ok(true),
        Ok(other) => Err(Failure::bad_argument(format!("{DEVICE} is `{other}`, and must be cuda or sim"))),
    }
}

/// Returns whether pages are created so that other processes can have them: unless the environment says, as to
/// PyTorch's own allocator, that they are not.
pub(crate) fn shares_pages() -> bool {
    std::env::var(SHARES_PAGES).as_deref() != Ok("0")
}

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
