//! The budget that the driver reports.

use millpond_backend::{Backend, ClassId, Fault};
use millpond_vulkan::{Planned, VulkanError};

use super::lab::open;
use crate::lab::{error, skip};

#[test]
fn a_budget_is_within_the_heap() {
    let Some(device) = open() else { return };
    let Some(budget) = Backend::budget(&*device) else {
        return skip("budget", "the device has no VK_EXT_memory_budget");
    };
    assert!(device.caps().budget && device.caps().oversubscribes);
    for (index, class) in device.caps().classes.iter().enumerate() {
        let class_id = ClassId(index as u16);
        let told = budget.budget(class_id).unwrap();
        let heap = device.heap_budget(class_id).unwrap();
        assert_eq!(told.total_bytes, class.total_bytes);
        assert_eq!(told.total_bytes, heap.total_bytes);
        assert!(told.free_bytes > 0 && told.free_bytes <= heap.budget_bytes, "{told:?} {heap:?}");
        assert!(heap.budget_bytes <= heap.total_bytes, "{heap:?}");
        assert_eq!(told.others_bytes, None);
    }
    device.fail_nth(1, Fault::Other);
    assert!(matches!(error(budget.budget(ClassId::DEVICE)), VulkanError::Planned(Planned { .. })));
}
