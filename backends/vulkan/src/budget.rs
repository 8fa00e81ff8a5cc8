//! The budget: how much memory is left, as the driver reports it (`VK_EXT_memory_budget`).

use ash::vk;
use millpond_backend::{Budget, BudgetInfo, ClassId};

use crate::device::Device;
use crate::{Vulkan, VulkanError};

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

impl Device {
    fn heap_budget(&self, class: ClassId) -> Result<HeapBudget, VulkanError> {
        let call = "vkGetPhysicalDeviceMemoryProperties2";
        self.caps.class(class);
        if !self.enabled.memory_budget {
            let missing = "VK_EXT_memory_budget is not there or not enabled";
            return Err(VulkanError::Unsupported { call, missing });
        }
        self.enter(call)?;
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the physical device belongs to the instance, and has the extension of the chained structure.
        unsafe { self.instance.raw.get_physical_device_memory_properties2(self.probe.physical, &mut memory) };
        let memory_type = self.classes[usize::from(class.0)].memory_type as usize;
        let heap = self.probe.memory.memory_types[memory_type].heap_index;
        Ok(HeapBudget {
            heap,
            total_bytes: self.probe.memory.memory_heaps[heap as usize].size,
            budget_bytes: budget.heap_budget[heap as usize],
            used_bytes: budget.heap_usage[heap as usize],
        })
    }
}

impl Vulkan {
    /// Returns the driver's report on the heap of a class: the use of this process, where [`Budget::budget`] returns
    /// how much is left. Costs a driver call.
    ///
    /// # Errors
    ///
    /// [`VulkanError::Unsupported`] where the driver does not report it.
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn heap_budget(&self, class: ClassId) -> Result<HeapBudget, VulkanError> {
        self.device.heap_budget(class)
    }
}

impl Budget for Vulkan {
    type Error = VulkanError;

    /// Returns the budget of a class. The bytes of this process are those that the driver reports: some drivers
    /// (lavapipe) count those of all processes. Free is what the driver's budget leaves this process. The bytes of
    /// other processes are not reported: a budget is the driver's policy, and the heap less the budget is not what
    /// others hold.
    fn budget(&self, class: ClassId) -> Result<BudgetInfo, VulkanError> {
        let heap = self.device.heap_budget(class)?;
        Ok(BudgetInfo {
            free_bytes: heap.budget_bytes.saturating_sub(heap.used_bytes),
            total_bytes: heap.total_bytes,
            others_bytes: None,
            process_bytes: Some(heap.used_bytes),
        })
    }
}
