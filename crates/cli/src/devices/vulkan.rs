//! Vulkan devices.

use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme, AllocatorCreateDesc};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use millpond::text::{format_bytes, with_causes};
use millpond_any::options::VulkanOptions;
use millpond_backend::ClassId;
use millpond_conformance::{Tested, VulkanDevice};
use millpond_vulkan::ash::vk::{MemoryRequirements, PhysicalDeviceType, QueueFlags};
use millpond_vulkan::{DeviceInfo, FamilyInfo, Vulkan, VulkanError};

use super::{Broken, Choice, Device, Fact, Found, Opened, Peer, Recorded};
use crate::failure::Failure;

/// The remedy where a device cannot be opened and its error does not name one.
const REMEDY: &str = "update its driver or use another device";

fn listed(info: &DeviceInfo) -> Result<Device, Broken> {
    let target = format!("vulkan:{}", info.index);
    let broken = |why: String, remedy: &str| Broken {
        target: target.clone(),
        name: info.name.clone(),
        facts: facts(info),
        why,
        remedy: remedy.into(),
    };
    if let Some(missing) = info.missing {
        return Err(broken(format!("it lacks {missing}"), REMEDY));
    }
    match Vulkan::open(info.index) {
        Ok(backend) => Ok(Device { facts: facts(info), missing: missing(info), ..Device::of(&target, &backend) }),
        Err(error) => Err(broken(with_causes(&error), REMEDY)),
    }
}

fn facts(info: &DeviceInfo) -> Vec<Fact> {
    let kind = match info.kind {
        PhysicalDeviceType::DISCRETE_GPU => "a GPU with memory of its own",
        PhysicalDeviceType::INTEGRATED_GPU => "a GPU that shares the host's memory",
        PhysicalDeviceType::VIRTUAL_GPU => "a virtual GPU",
        PhysicalDeviceType::CPU => "software: used only if named",
        _ => "unknown",
    };
    let mut facts = vec![
        ("kind", kind.to_string()),
        ("driver", info.driver.clone()),
        ("Vulkan", info.api_version.clone()),
        ("vendor and model", format!("{:#06x}, {:#06x}", info.vendor_id, info.device_id)),
    ];
    let families = info.queue_families.iter().enumerate().map(|(family, facts)| describe(family, facts));
    facts.push(("queue families", families.collect::<Vec<_>>().join("; ")));
    let heap = |heap: &millpond_vulkan::HeapInfo| {
        format!("{} {}", format_bytes(heap.bytes), if heap.device_local { "device" } else { "host" })
    };
    facts.push(("heaps", info.heaps.iter().map(heap).collect::<Vec<_>>().join("; ")));
    facts
}

fn describe(family: usize, facts: &FamilyInfo) -> String {
    let kinds = [
        (QueueFlags::GRAPHICS, "graphics"),
        (QueueFlags::COMPUTE, "compute"),
        (QueueFlags::TRANSFER, "transfer"),
        (QueueFlags::SPARSE_BINDING, "sparse"),
    ];
    let has = kinds.iter().filter(|(flag, _)| facts.flags.contains(*flag)).map(|(_, name)| *name);
    format!("{family}: {} of {}", facts.count, has.collect::<Vec<_>>().join(" "))
}

/// Returns what the device lacks, each with its consequence and its remedy.
fn missing(info: &DeviceInfo) -> Vec<String> {
    let lacks = [
        (
            info.sparse,
            "sparse buffers: there are no pages, and paged falls back to classic; install a driver that has them, in \
             software Mesa 25",
        ),
        (
            info.budget,
            "VK_EXT_memory_budget: nobody reports how much memory is left; set a limit, or install a driver that has \
             it, in software Mesa 25",
        ),
    ];
    lacks.into_iter().filter(|(has, _)| !has).map(|(_, text)| text.to_string()).collect()
}

fn open(options: &VulkanOptions) -> Result<Vulkan, Failure> {
    options.open().map_err(|error| absent(&error))
}

impl Choice for VulkanOptions {
    const HELP: &'static str = "\
A Vulkan device is named by its number, vulkan:0, and takes options after a comma:
  validation: run the validation layer, whose errors end the command
  pages=none: without virtual memory, even where it has it";

    fn find() -> Found {
        match Vulkan::devices() {
            Ok(devices) => Found::Devices(devices.iter().map(listed).collect()),
            Err(error) => {
                // The backend's errors name the remedy behind a semicolon.
                let text = with_causes(&error);
                let (why, remedy) = text.split_once("; ").unwrap_or((&text, "install a Vulkan driver"));
                Found::Nothing { why: why.into(), remedy: remedy.into() }
            }
        }
    }

    fn index(&self) -> Option<usize> {
        VulkanOptions::index(self).ok()
    }

    fn driver(&self) -> Option<String> {
        let index = VulkanOptions::index(self).ok()?;
        Vulkan::devices().ok()?.into_iter().find(|info| info.index == index).map(|info| info.driver)
    }

    fn opened(&self, _: &Recorded<'_>) -> Result<Opened, Failure> {
        let device = open(self)?;
        // The log outlives the device, and has what the layer says of its end.
        let log = device.validation().cloned();
        let objection = move || {
            let errors = log?.errors();
            let first = errors.first()?;
            Some(format!("the validation layer objects {} times: {first}", errors.len()))
        };
        Ok(Opened { objection: Box::new(objection), ..Opened::new(device) })
    }

    /// Returns gpu-allocator, which hands out parts of blocks of memory without a buffer, a stream or statistics, and
    /// the driver's own calls.
    fn peers(&self) -> Result<Vec<Peer>, Failure> {
        let mut blocks = Blocks::new(open(self)?)?;
        let pair = Box::new(move |bytes| blocks.pair(bytes));
        let device = open(self)?;
        let bare = Box::new(move |bytes| device.allocate_and_free(ClassId::DEVICE, bytes).map_err(|e| absent(&e)));
        Ok(vec![
            Peer { name: "gpu-allocator, memory alone", max_per_round: u64::MAX, pair },
            Peer { name: "vkAllocateMemory, memory alone", max_per_round: 1000, pair: bare },
        ])
    }

    fn tested(&self) -> Result<Tested, Failure> {
        let index = self.index().map_err(|error| absent(&error))?;
        Ok(Tested::Vulkan(VulkanDevice::new(index).validation(self.validation).sparse(!self.no_pages)))
    }
}

/// gpu-allocator on a device. The field order drops the allocator before the device.
struct Blocks {
    allocator: gpu_allocator::vulkan::Allocator,
    _device: Vulkan,
}

impl Blocks {
    fn new(device: Vulkan) -> Result<Self, Failure> {
        let description = AllocatorCreateDesc {
            instance: device.raw_instance().clone(),
            device: device.raw_device().clone(),
            physical_device: device.physical_device(),
            debug_settings: AllocatorDebugSettings::default(),
            buffer_device_address: device.enabled().buffer_device_address,
            allocation_sizes: AllocationSizes::default(),
        };
        let allocator = gpu_allocator::vulkan::Allocator::new(&description).map_err(|error| refused(&error))?;
        Ok(Self { allocator, _device: device })
    }

    fn pair(&mut self, bytes: u64) -> Result<(), Failure> {
        let allocation = self.allocator.allocate(&AllocationCreateDesc {
            name: "peer",
            requirements: MemoryRequirements { size: bytes, alignment: 256, memory_type_bits: u32::MAX },
            location: MemoryLocation::GpuOnly,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        });
        let allocation = allocation.map_err(|error| refused(&error))?;
        self.allocator.free(allocation).map_err(|error| refused(&error))
    }
}

fn refused(error: &AllocationError) -> Failure {
    Failure::Device(format!("gpu-allocator: {}", with_causes(error)))
}

fn absent(error: &VulkanError) -> Failure {
    Failure::Device(format!("--device vulkan: {}; `millpond devices` lists what there is", with_causes(error)))
}
