//! The device that Burn trains on, and where its memory comes from.

use burn::tensor::wgpu::{MemoryConfiguration, WgpuSetup};
use cubecl::wgpu::{RuntimeOptions, WgpuDevice, try_init_device};
use millpond::Allocator;
use millpond_lent::{LENT, Lent};
use millpond_wgpu::Wgpu;
use millpond_wgpu::wgpu::{self, Backend, Backends, Features, MemoryHints};

/// One row of the table: who divides memory, and who gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the table calls it.
    pub title: &'static str,
    /// CubeCL's pools.
    pub pools: Pools,
    /// What is under them.
    pub under: Under,
}

/// The pools of CubeCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pools {
    /// Its default: pages that are divided.
    Adaptive,
    /// A page for each tensor, by size.
    Exclusive,
    /// None: each tensor is a buffer of the device, which is dropped with it.
    Off,
}

/// What gives buffers to CubeCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// wgpu, with nothing between.
    Bare,
    /// wgpu, through the lent device, which counts.
    Counted,
    /// Millpond with this setting, on buffers of wgpu, or on pages of Vulkan.
    Millpond(&'static str, bool),
}

/// All rows, in the order of the table.
pub const ROWS: [Row; 8] = [
    Row { name: "burn", title: "Burn as it is", pools: Pools::Adaptive, under: Under::Bare },
    Row { name: "counted", title: "the same, counted", pools: Pools::Adaptive, under: Under::Counted },
    Row { name: "exclusive", title: "Burn, exclusive pages", pools: Pools::Exclusive, under: Under::Counted },
    Row { name: "wgpu", title: "no pools, wgpu", pools: Pools::Off, under: Under::Counted },
    Row {
        name: "classic",
        title: "no pools, Millpond classic",
        pools: Pools::Off,
        under: Under::Millpond("policy:classic", false),
    },
    Row { name: "paged", title: "no pools, Millpond paged", pools: Pools::Off, under: Under::Millpond("", true) },
    Row {
        name: "tight",
        title: "no pools, Millpond tight",
        pools: Pools::Off,
        under: Under::Millpond("growth:tight", true),
    },
    Row {
        name: "both",
        title: "Burn's pools on Millpond paged",
        pools: Pools::Adaptive,
        under: Under::Millpond("", true),
    },
];

/// Opens the device of this place in wgpu's list for Vulkan and registers it with CubeCL, with the memory of a row.
///
/// # Errors
///
/// If there is no such device, or Millpond or CubeCL cannot use it.
pub fn open(row: &Row, index: usize) -> Result<(WgpuDevice, Option<Lent>, String), Box<dyn std::error::Error>> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapters = pollster::block_on(instance.enumerate_adapters(Backends::VULKAN));
    let adapter = adapters.into_iter().nth(index).ok_or("there is no such Vulkan device")?;
    // What CubeCL enables on a device that it opens itself, without what is experimental.
    let without = Features::MAPPABLE_PRIMARY_BUFFERS | Features::all_experimental_mask();
    let features = adapter.features().difference(without);
    let lent = match row.under {
        Under::Millpond(conf, true) => {
            let builder = Wgpu::builder().backends(Backends::VULKAN).adapter(index).features(features);
            let wgpu = builder.usage(LENT).vulkan_segments(true).build()?;
            Some(Lent::in_order(Allocator::builder(wgpu).conf(conf).build()?)?)
        }
        _ => None,
    };
    let (lent, (device, queue)) = match lent {
        Some(lent) => (Some(lent.clone()), (lent.device(), lent.queue())),
        None => {
            let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                required_features: features,
                required_limits: adapter.limits(),
                memory_hints: MemoryHints::MemoryUsage,
                ..Default::default()
            }))?;
            let lent = match row.under {
                Under::Bare => None,
                Under::Counted => Some(Lent::plain(device.clone(), queue.clone())),
                Under::Millpond(conf, _) => {
                    let wgpu = Wgpu::builder().usage(LENT).adopt(device.clone(), queue.clone());
                    Some(Lent::in_order(Allocator::builder(wgpu).conf(conf).build()?)?)
                }
            };
            let handles = lent.as_ref().map(|lent| (lent.device(), lent.queue()));
            (lent, handles.unwrap_or((device, queue)))
        }
    };
    let name = adapter.get_info().name;
    let setup = WgpuSetup { instance, adapter, device, queue, backend: Backend::Vulkan };
    let mut options = RuntimeOptions::default();
    if row.pools == Pools::Exclusive {
        options.memory_config = MemoryConfiguration::ExclusivePages;
    }
    Ok((try_init_device(setup, options)?, lent, name))
}
