//! Descriptor sets, which are reused once the work that used them is done.

use std::collections::VecDeque;

use millpond::backend::{Backend, Point, StreamId, Tick};
use millpond_vulkan::Vulkan;
use millpond_vulkan::ash::{Device, vk};

use super::super::Result;
use super::BINDINGS;

/// The number of sets in a pool.
const POOL_SETS: u32 = 64;

/// Sets with the ticks of their last uses. Like a block of the allocator, a set is free once its tick is reached.
#[derive(Default)]
pub(super) struct Sets {
    pools: Vec<vk::DescriptorPool>,
    spare: Vec<vk::DescriptorSet>,
    in_use: VecDeque<(Point, vk::DescriptorSet)>,
}

impl Sets {
    /// Returns a set that no work uses.
    pub(super) fn take(&mut self, device: &Vulkan, layout: vk::DescriptorSetLayout) -> Result<vk::DescriptorSet> {
        if let Some(&(point, set)) = self.in_use.front()
            && device.reached(point.stream)? >= point.tick
        {
            self.in_use.pop_front();
            return Ok(set);
        }
        if self.spare.is_empty() {
            self.grow(device.raw_device(), layout)?;
        }
        self.spare.pop().ok_or_else(|| "a new pool came without sets".into())
    }

    /// Marks the set as used by work of the stream that this tick covers.
    pub(super) fn used(&mut self, set: vk::DescriptorSet, stream: StreamId, tick: Tick) {
        self.in_use.push_back((Point { stream, tick }, set));
    }

    /// Puts back a set that was not used after all.
    pub(super) fn unused(&mut self, set: vk::DescriptorSet) {
        self.spare.push(set);
    }

    /// Returns the points after which the sets in use are free. The last point of each stream is among them.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> {
        self.in_use.iter().map(|&(point, _)| point)
    }

    /// Destroys the pools and with them the sets. No work may still use them.
    pub(super) fn destroy(&mut self, device: &Device) {
        for pool in self.pools.drain(..) {
            // SAFETY: made from this device, and the caller has waited for all work that uses its sets.
            unsafe { device.destroy_descriptor_pool(pool, None) };
        }
        self.spare.clear();
        self.in_use.clear();
    }

    fn grow(&mut self, device: &Device, layout: vk::DescriptorSetLayout) -> Result<()> {
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(POOL_SETS * BINDINGS)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(POOL_SETS).pool_sizes(&sizes);
        // SAFETY: the device is alive, and so is what the structure points to.
        let pool = unsafe { device.create_descriptor_pool(&info, None) }?;
        self.pools.push(pool);
        let layouts = [layout; POOL_SETS as usize];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool is new, has room for this number of sets of this layout, and no other caller has it.
        self.spare.extend(unsafe { device.allocate_descriptor_sets(&info) }?);
        Ok(())
    }
}
