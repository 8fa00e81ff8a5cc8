//! CUDA devices.

use std::time::Duration;

use millpond::text::{format_bytes, with_causes};
use millpond_any::options::CudaOptions;
use millpond_any::{AnyDevice, DriverError};
use millpond_backend::StreamId;
use millpond_conformance::{CudaDevice, Tested};
use millpond_cuda::{Alloc, Cuda, CudaBuilder, CudaError, DeviceInfo, Spinner};
use millpond_replay::Flight;

use super::{Broken, Choice, Device, Fact, Found, Opened, Peer, Recorded, Work};
use crate::failure::Failure;

/// The most pairs of `cuMemAlloc` and `cuMemFree` in a round: large ones take hundreds of microseconds.
const SYNC_MAX: u64 = 1000;

/// The most pairs of `cuMemAllocAsync` and `cuMemFreeAsync` in a round, which limits what the driver queues.
const ASYNC_MAX: u64 = 10_000;

fn nothing(error: &CudaError) -> Found {
    // The backend's errors name the remedy behind a semicolon.
    let text = with_causes(error);
    let (why, remedy) = text.split_once("; ").unwrap_or((&text, "check nvidia-smi, and update the NVIDIA driver"));
    Found::Nothing { why: why.into(), remedy: remedy.into() }
}

fn listed(info: &DeviceInfo) -> Result<Device, Broken> {
    let target = format!("cuda:{}", info.ordinal);
    match Cuda::open(info.ordinal) {
        Ok(backend) => Ok(Device { facts: facts(info), missing: missing(info), ..Device::of(&target, &backend) }),
        Err(error) => Err(Broken {
            target,
            name: info.name.clone(),
            facts: facts(info),
            why: with_causes(&error),
            remedy: "look at nvidia-smi, or use another device".into(),
        }),
    }
}

fn driver() -> Option<String> {
    Cuda::driver_version().ok().map(|(major, minor)| format!("CUDA {major}.{minor}"))
}

fn facts(info: &DeviceInfo) -> Vec<Fact> {
    let yes_or_no = |has: bool| if has { "yes" } else { "no" }.to_string();
    let (major, minor) = info.compute;
    let driver = driver().unwrap_or_else(|| "unknown".into());
    let peers: Vec<String> = info.peers.iter().map(|peer| format!("cuda:{peer}")).collect();
    vec![
        ("kind", "a GPU".into()),
        ("driver", driver),
        ("compute capability", format!("{major}.{minor}")),
        ("memory", format_bytes(info.total_bytes)),
        ("virtual memory", yes_or_no(info.virtual_memory)),
        ("memory pools", yes_or_no(info.memory_pools)),
        ("peers", if peers.is_empty() { "none".into() } else { peers.join(" ") }),
    ]
}

/// Returns what the device lacks, each with its consequence and its remedy.
fn missing(info: &DeviceInfo) -> Vec<String> {
    let lacks = [
        (
            info.virtual_memory,
            "virtual memory management: there are no pages, and paged falls back to classic; update the NVIDIA driver, \
             or use a device that has it",
        ),
        (info.memory_pools, "memory pools: alloc=async is refused; leave it out, or update the NVIDIA driver"),
    ];
    lacks.into_iter().filter(|(has, _)| !has).map(|(_, text)| text.to_string()).collect()
}

fn open(builder: &CudaBuilder) -> Result<Cuda, Failure> {
    builder.clone().build().map_err(|error| absent(&error))
}

impl Choice for CudaOptions {
    const HELP: &'static str = "\
A CUDA device is named by its number, cuda:0, and takes options after a comma:
  alloc=async: segments come from the driver's own pool
  pages=none: without virtual memory, even where it has it";

    fn find() -> Found {
        match Cuda::devices() {
            Ok(devices) if devices.is_empty() => nothing(&CudaError::NoDevice { ordinal: 0, count: 0 }),
            Ok(devices) => Found::Devices(devices.iter().map(listed).collect()),
            Err(error) => nothing(&error),
        }
    }

    fn index(&self) -> Option<usize> {
        Some(self.ordinal())
    }

    fn driver(&self) -> Option<String> {
        driver()
    }

    fn opened(&self, _: &Recorded<'_>) -> Result<Opened, Failure> {
        let cuda = open(&self.builder())?;
        let small = cuda.clone();
        let small = move |time| match small.spinner() {
            Ok(spinner) => Ok(Box::new(Small { spinner, time }) as Box<dyn Flight<AnyDevice>>),
            Err(error) => Err(absent(&error)),
        };
        Ok(Opened { work: Some(Work::Small(Box::new(small))), ..Opened::new(cuda) })
    }

    /// Returns the driver's own allocators, without statistics: `cuMemAlloc`, and its memory pools where it has them.
    fn peers(&self) -> Result<Vec<Peer>, Failure> {
        let open = |alloc| open(&self.builder().alloc(alloc));
        let plain = open(Alloc::Sync)?;
        let pooled = if plain.info().memory_pools { Some(open(Alloc::Async)?) } else { None };
        let peer = |name, max_per_round, device: Cuda| {
            let pair = Box::new(move |bytes| device.allocate_and_free(bytes).map_err(|error| absent(&error)));
            Peer { name, max_per_round, pair }
        };
        let mut peers = vec![peer("cuMemAlloc and cuMemFree", SYNC_MAX, plain)];
        peers.extend(pooled.map(|device| peer("cuMemAllocAsync and cuMemFreeAsync", ASYNC_MAX, device)));
        Ok(peers)
    }

    fn tested(&self) -> Result<Tested, Failure> {
        let alloc = self.alloc.unwrap_or_default();
        Ok(Tested::Cuda(CudaDevice::new(self.ordinal()).alloc(alloc).pages(!self.no_pages)))
    }

    /// An opening while no other is held takes hundreds of milliseconds.
    fn held(&self) -> Result<Option<AnyDevice>, Failure> {
        Ok(Some(open(&self.builder())?.into()))
    }
}

/// Kernels of one thread that take a time.
struct Small {
    spinner: Spinner,
    time: Duration,
}

impl Flight<AnyDevice> for Small {
    fn begin(&mut self, stream: StreamId) -> Result<(), DriverError> {
        Ok(self.spinner.spin(stream, self.time)?)
    }
}

fn absent(error: &CudaError) -> Failure {
    Failure::Device(format!("--device cuda: {}; `millpond devices` lists what there is", with_causes(error)))
}
