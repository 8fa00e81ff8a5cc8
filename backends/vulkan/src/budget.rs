//! The budget: how much memory is left, as the driver reports it (`VK_EXT_memory_budget`).

use ash::vk;
use millpond_backend::ClassId;
use millpond_kit::Misuse;

use crate::error::VulkanError;
use crate::memory::Memory;
use crate::open::Driver;

/// The driver's report on the heap that a class is taken from. Other classes may share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapBudget {
    /// The heap's index.
    pub heap: u32,
    /// The size of the heap in bytes.
    pub total_bytes: u64,
    /// Bytes of it that this process can use before allocations fail or slow down, including those that it uses
    /// already.
    pub budget_bytes: u64,
    /// Bytes of it that this process uses, through Millpond or not. Some drivers (lavapipe) count those of all
    /// processes.
    pub used_bytes: u64,
}

/// Asks the driver for the budget of the heap of a class.
pub(crate) fn heap_budget(driver: &Driver, memory: &Memory, class: ClassId) -> Result<HeapBudget, VulkanError> {
    let call = "vkGetPhysicalDeviceMemoryProperties2";
    memory.caps.class(class);
    if !driver.enabled.memory_budget {
        let missing = "VK_EXT_memory_budget is not there or not enabled";
        return Err(Misuse::Unsupported { call, missing: Some(missing) }.into());
    }
    driver.enter(call)?;
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut asked = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    // SAFETY: the physical device belongs to the instance, and has the extension of the chained structure.
    unsafe { driver.instance.raw.get_physical_device_memory_properties2(driver.probe.physical, &mut asked) };
    let memory_type = memory.facts(class).memory_type as usize;
    let heap = driver.probe.memory.memory_types[memory_type].heap_index;
    Ok(HeapBudget {
        heap,
        total_bytes: driver.probe.memory.memory_heaps[heap as usize].size,
        budget_bytes: budget.heap_budget[heap as usize],
        used_bytes: budget.heap_usage[heap as usize],
    })
}
