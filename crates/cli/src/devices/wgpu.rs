//! wgpu devices.

use millpond::text::with_causes;
use millpond_any::options::WgpuOptions;
use millpond_conformance::{Tested, WgpuDevice};
use millpond_wgpu::wgpu::{self, AdapterInfo, Buffer, BufferDescriptor, BufferUsages, DeviceType, PollType};
use millpond_wgpu::{Wgpu, WgpuError};

use super::{Broken, Choice, Device, Fact, Found, Opened, Peer, Recorded};
use crate::failure::Failure;

/// The most buffers of a peer in a round, as each is an allocation of the driver.
const BUFFERS_MAX: u64 = 50;

fn listed(index: usize, info: &AdapterInfo) -> Result<Device, Broken> {
    let target = format!("wgpu:{index}");
    match Wgpu::open(index) {
        Ok(backend) => {
            let mut facts = facts(info);
            let done = if backend.has_semaphore() { "a semaphore's counter" } else { "polls" };
            facts.push(("learns what is done by", done.into()));
            Ok(Device { facts, missing: MISSING.map(String::from).to_vec(), ..Device::of(&target, &backend) })
        }
        Err(error) => Err(Broken {
            target,
            name: info.name.clone(),
            facts: facts(info),
            why: with_causes(&error),
            remedy: "update its driver or use another device".into(),
        }),
    }
}

/// What every device of wgpu lacks.
const MISSING: [&str; 2] = [
    "virtual memory: wgpu has none, so there are no pages, and paged falls back to classic; the Vulkan backend has it",
    "a budget: wgpu does not report how much memory is left; set a limit, or use the Vulkan backend",
];

fn driver(info: &AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info).trim().into()
}

fn facts(info: &AdapterInfo) -> Vec<Fact> {
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => "a GPU with memory of its own",
        DeviceType::IntegratedGpu => "a GPU that shares the host's memory",
        DeviceType::VirtualGpu => "a virtual GPU",
        DeviceType::Cpu => "software: used only if named",
        DeviceType::Other => "unknown: used only if named",
    };
    vec![
        ("kind", kind.into()),
        ("driver", driver(info)),
        ("interface", info.backend.to_string()),
        ("vendor and model", format!("{:#06x}, {:#06x}", info.vendor, info.device)),
    ]
}

fn open(options: &WgpuOptions) -> Result<Wgpu, Failure> {
    options.open().map_err(|error| absent(&error))
}

impl Choice for WgpuOptions {
    const HELP: &'static str = "\
An adapter of wgpu is named the same way, wgpu:0:
  polls: poll wgpu for progress instead of a semaphore";

    fn find() -> Found {
        match Wgpu::adapters() {
            Ok(adapters) => {
                Found::Devices(adapters.iter().enumerate().map(|(index, info)| listed(index, info)).collect())
            }
            Err(error) => {
                let text = with_causes(&error);
                let (why, remedy) = text.split_once(": ").unwrap_or((&text, "install a driver that wgpu can use"));
                Found::Nothing { why: why.into(), remedy: remedy.into() }
            }
        }
    }

    fn index(&self) -> Option<usize> {
        // Without a number it is the first GPU, or else the first adapter.
        self.index.or_else(|| Some(Self::preferred().ok().and_then(|first| first.index).unwrap_or(0)))
    }

    fn driver(&self) -> Option<String> {
        Wgpu::adapters().ok()?.get(self.index()?).map(driver)
    }

    fn opened(&self, _: &Recorded<'_>) -> Result<Opened, Failure> {
        let device = open(self)?;
        let handle = device.clone();
        let objection = move || {
            let errors = handle.errors();
            let first = errors.first()?;
            Some(format!("wgpu objects {} times: {first}", errors.len()))
        };
        Ok(Opened { objection: Box::new(objection), ..Opened::new(device) })
    }

    /// Returns wgpu's own way of allocating: a buffer for each allocation.
    fn peers(&self) -> Result<Vec<Peer>, Failure> {
        let device = open(self)?;
        let pair = Box::new(move |bytes| pair(device.device(), bytes));
        Ok(vec![Peer { name: "wgpu, a buffer each time", max_per_round: BUFFERS_MAX, pair }])
    }

    fn tested(&self) -> Result<Tested, Failure> {
        let builder = self.builder().map_err(|error| absent(&error))?;
        Ok(Tested::Wgpu(WgpuDevice::new(&self.label(), builder)))
    }
}

/// Creates a buffer, drops it, and polls, so that wgpu releases it to the driver.
fn pair(device: &wgpu::Device, bytes: u64) -> Result<(), Failure> {
    let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    let made: Buffer =
        device.create_buffer(&BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false });
    drop(made);
    device.poll(PollType::Poll).map(drop).map_err(|error| Failure::Device(with_causes(&error)))
}

fn absent(error: &WgpuError) -> Failure {
    Failure::Device(format!("--device wgpu: {}; `millpond devices` lists what there is", with_causes(error)))
}
