//! vulkano's lock of a queue.

use std::sync::Arc;

use millpond_vulkan::QueueLock;
use vulkano::device::Queue;

/// Has Millpond use a queue under the lock under which vulkano uses it.
pub(crate) struct Lock(Arc<Queue>);

impl Lock {
    pub(crate) fn new(queue: &Arc<Queue>) -> Self {
        Self(Arc::clone(queue))
    }
}

impl QueueLock for Lock {
    fn locked(&self, work: &mut dyn FnMut()) {
        self.0.with(|_guard| work());
    }

    /// vulkano's lock cannot be tried.
    fn try_locked(&self, _work: &mut dyn FnMut()) -> bool {
        false
    }
}
