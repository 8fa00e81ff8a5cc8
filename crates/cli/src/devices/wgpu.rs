//! wgpu devices, and the options that `--device wgpu:...` takes.

use millpond_conformance::WgpuDevice;
use millpond_wgpu::wgpu::{self, AdapterInfo, Buffer, BufferDescriptor, BufferUsages, DeviceType, PollType};
use millpond_wgpu::{Wgpu, WgpuBuilder, WgpuError};

use super::{Broken, Choice, Device, Fact, Found, Job, Peer};
use crate::failure::{Failure, with_causes};

/// The most buffers of a peer in a round, as each is an allocation of the driver.
const BUFFERS_MAX: u64 = 50;

/// The choice of a wgpu adapter, and how its device is opened.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct WgpuOptions {
    /// The adapter's place in wgpu's list. If `None`, the first GPU, or else the first adapter.
    index: Option<usize>,
    /// Whether the device is opened without a semaphore, so that only polls of wgpu show what is done.
    polls: bool,
}

fn first_gpu(adapters: &[AdapterInfo]) -> Option<usize> {
    adapters.iter().position(|adapter| !matches!(adapter.device_type, DeviceType::Cpu | DeviceType::Other))
}

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
    "a budget: wgpu tells nobody how much memory is left; set a limit, or use the Vulkan backend",
];

fn facts(info: &AdapterInfo) -> Vec<Fact> {
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => "a GPU with memory of its own",
        DeviceType::IntegratedGpu => "a GPU that shares the host's memory",
        DeviceType::VirtualGpu => "a virtual GPU",
        DeviceType::Cpu => "software: used only where it is named",
        DeviceType::Other => "not told: used only where it is named",
    };
    vec![
        ("kind", kind.into()),
        ("driver", format!("{} {}", info.driver, info.driver_info).trim().into()),
        ("interface", info.backend.to_string()),
        ("vendor and model", format!("{:#06x}, {:#06x}", info.vendor, info.device)),
    ]
}

impl WgpuOptions {
    fn builder(&self) -> Result<WgpuBuilder, Failure> {
        let index = match self.index {
            Some(index) => index,
            None => first_gpu(&Wgpu::adapters().map_err(|error| absent(&error))?).unwrap_or(0),
        };
        Ok(Wgpu::builder().adapter(index).semaphore(!self.polls))
    }

    fn open(&self) -> Result<Wgpu, Failure> {
        self.builder()?.build().map_err(|error| absent(&error))
    }

    /// Returns the value of `--device` that chooses this device.
    fn label(&self) -> String {
        let index = self.index.map_or(String::new(), |index| format!(":{index}"));
        format!("wgpu{index}{}", if self.polls { ",polls" } else { "" })
    }
}

impl Choice for WgpuOptions {
    const HELP: &'static str = "\
An adapter of wgpu is named the same way, wgpu:0:
  polls                       wgpu alone is asked what is done, not a semaphore";

    type Tested = WgpuDevice;

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

    fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in text.split(',').filter(|_| !text.is_empty()) {
            let twice = match option {
                "polls" => std::mem::replace(&mut options.polls, true),
                number => match number.parse() {
                    Ok(index) => options.index.replace(index).is_some(),
                    Err(_) => {
                        return Err(format!(
                            "`{option}` is no option; write the adapter's number or polls, with a comma between them, \
                             such as wgpu:0,polls"
                        ));
                    }
                },
            };
            if twice {
                return Err(format!("`{option}` comes on top of another of its kind; write one"));
            }
        }
        Ok(options)
    }

    /// Returns the first adapter that is a GPU.
    fn preferred() -> Option<Self> {
        // On Linux, wgpu reaches GPUs through Vulkan alone, which has already been queried. Loading the drivers through
        // wgpu as well costs time, and some of them print warnings on standard error.
        #[cfg(all(feature = "vulkan", target_os = "linux"))]
        if !super::vulkan::has_gpu() {
            return None;
        }
        let index = first_gpu(&Wgpu::adapters().ok()?)?;
        Some(Self { index: Some(index), ..Self::default() })
    }

    /// Opens the device, runs a job on it, and checks the errors that wgpu reported meanwhile.
    fn run<J: Job>(&self, job: J) -> Result<J::Output, Failure> {
        let device = self.open()?;
        let handle = device.clone();
        let done = job.run(device);
        match handle.errors().first() {
            Some(first) => Err(Failure::Check(format!("wgpu objects {} times: {first}", handle.errors().len()))),
            None => done,
        }
    }

    /// Returns wgpu's own way of allocating: a buffer for each allocation.
    fn peers(&self) -> Result<Vec<Peer>, Failure> {
        let device = self.open()?;
        let pair = Box::new(move |bytes| pair(device.device(), bytes));
        Ok(vec![Peer { name: "wgpu, a buffer each time", max_per_round: BUFFERS_MAX, pair }])
    }

    fn tested<R>(&self, test: impl FnOnce(&WgpuDevice) -> R) -> Result<R, Failure> {
        Ok(test(&WgpuDevice::new(&self.label(), self.builder()?)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_which_adapter_and_how() {
        let parsed = |text| WgpuOptions::parse(text).expect(text);
        assert_eq!(parsed(""), WgpuOptions::default());
        assert_eq!(parsed("2"), WgpuOptions { index: Some(2), polls: false });
        assert_eq!((parsed("0,polls"), parsed("polls,0")), (parsed("0,polls"), parsed("0,polls")));
        assert_eq!([parsed("0,polls").label(), parsed("").label()], ["wgpu:0,polls", "wgpu"]);
        for text in ["x", "-1", "0,", "0,1", "polls,polls", "validation"] {
            let error = WgpuOptions::parse(text).expect_err(text);
            assert!(error.contains("is no option") || error.contains("comes on top"), "{text}: {error}");
        }
    }
}
