//! Queues, and who may touch them when.

use std::fmt;
use std::sync::Arc;

use ash::vk;
use parking_lot::Mutex;

use crate::probe::transfers;

/// How access to a `VkQueue` is serialised, which Vulkan leaves to its users. An engine that submits to a queue itself
/// shares its own lock by implementing this.
///
/// The lock is the outermost: whoever submits, flushes binds or drops the last handle of a device waits for it with
/// locks of the device in hand, so an engine does none of that, and neither records nor transfers, while it holds it.
/// Allocating and freeing is fine: what these need of the queue they only [try](QueueLock::try_locked).
pub trait QueueLock: Send + Sync {
    /// Runs `work`, once, while nobody else uses the queue. Waits for whoever does.
    fn locked(&self, work: &mut dyn FnMut());

    /// Runs `work`, once, if nobody else uses the queue, and answers whether it has run. Never waits for another thread.
    ///
    /// A lock that cannot be tried answers `false`: memory that was given back then reaches the driver with the next
    /// submit, and a request that is refused memory is not made again with it.
    fn try_locked(&self, work: &mut dyn FnMut()) -> bool;
}

impl QueueLock for Mutex<()> {
    fn locked(&self, work: &mut dyn FnMut()) {
        let _guard = self.lock();
        work();
    }

    fn try_locked(&self, work: &mut dyn FnMut()) -> bool {
        let guard = self.try_lock();
        if guard.is_some() {
            work();
        }
        guard.is_some()
    }
}

/// A queue of a device.
pub(crate) struct Queue {
    pub(crate) raw: vk::Queue,
    pub(crate) family: u32,
    /// Which of its family, counted as it was opened or adopted.
    pub(crate) index: u32,
    pub(crate) flags: vk::QueueFlags,
    lock: Arc<dyn QueueLock>,
}

impl Queue {
    pub(crate) fn new(
        raw: vk::Queue,
        (family, index): (u32, u32),
        flags: vk::QueueFlags,
        lock: Option<Arc<dyn QueueLock>>,
    ) -> Queue {
        let lock = lock.unwrap_or_else(|| Arc::new(Mutex::new(())));
        Queue { raw, family, index, flags, lock }
    }

    /// Runs `work` while nobody else uses the queue.
    ///
    /// # Panics
    ///
    /// If the engine's lock does not run it.
    pub(crate) fn locked<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> T {
        let (mut work, mut result) = (Some(work), None);
        self.lock.locked(&mut || {
            if let Some(work) = work.take() {
                result = Some(work(self.raw));
            }
        });
        match result {
            Some(result) => result,
            None => panic!("the lock of queue {} of family {} did not run what it was given", self.index, self.family),
        }
    }

    /// Runs `work` if nobody else uses the queue at this moment; `None` if somebody does.
    pub(crate) fn try_locked<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> Option<T> {
        let (mut work, mut result) = (Some(work), None);
        self.lock.try_locked(&mut || {
            if let Some(work) = work.take() {
                result = Some(work(self.raw));
            }
        });
        result
    }

    /// Whether the queue computes or draws: what streams are for.
    pub(crate) fn computes(&self) -> bool {
        computes(self.flags)
    }

    /// Whether the queue can copy, without which it takes no stream.
    pub(crate) fn transfers(&self) -> bool {
        transfers(self.flags)
    }

    /// Whether the queue can bind sparse memory.
    pub(crate) fn binds(&self) -> bool {
        self.flags.contains(vk::QueueFlags::SPARSE_BINDING)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of family {} ({:?})", self.index, self.family, self.flags)
    }
}

/// Which queues a device is opened with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum QueueChoice {
    /// Every queue that can at least copy, those that compute first, and those that can only bind sparse memory.
    #[default]
    All,
    /// The same, and at most so many of each family: each queue takes time to open, a second for all of a large GPU's.
    AtMost(u32),
    /// Every queue that computes.
    Compute,
    /// As many queues of these families, as `(family, count)`; more than there are is an error.
    Exactly(Vec<(u32, u32)>),
}

impl QueueChoice {
    /// The families to open and how many queues of each; or the first choice that cannot be had.
    pub(crate) fn resolve(&self, families: &[vk::QueueFamilyProperties]) -> Result<Vec<(u32, u32)>, (u32, u32)> {
        if let QueueChoice::Exactly(wanted) = self {
            let there = |&(family, count): &(u32, u32)| {
                count > 0 && families.get(family as usize).is_some_and(|each| count <= each.queue_count)
            };
            return match wanted.iter().find(|wanted| !there(wanted)) {
                Some(&(family, count)) => Err((family, count.saturating_sub(1))),
                None => Ok(wanted.clone()),
            };
        }
        let useful = |flags: vk::QueueFlags| transfers(flags) || flags.contains(vk::QueueFlags::SPARSE_BINDING);
        let most = if let QueueChoice::AtMost(most) = *self { most.max(1) } else { u32::MAX };
        let fits = |flags| computes(flags) || (*self != QueueChoice::Compute && useful(flags));
        let mut chosen: Vec<(u32, &vk::QueueFamilyProperties)> =
            (0..).zip(families).filter(|(_, family)| fits(family.queue_flags)).collect();
        chosen.sort_by_key(|(_, family)| !computes(family.queue_flags));
        Ok(chosen.into_iter().map(|(index, family)| (index, family.queue_count.min(most))).collect())
    }
}

fn computes(flags: vk::QueueFlags) -> bool {
    flags.intersects(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE)
}

/// The queues of these families, for an error.
pub(crate) fn describe_families(families: &[vk::QueueFamilyProperties]) -> String {
    let each = |(index, family): (usize, &vk::QueueFamilyProperties)| {
        format!("{} of family {index} ({:?})", family.queue_count, family.queue_flags)
    };
    families.iter().enumerate().map(each).collect::<Vec<_>>().join(", ")
}

/// These queues, for an error.
pub(crate) fn describe(queues: &[Queue]) -> String {
    queues.iter().map(|queue| format!("{queue:?}")).collect::<Vec<_>>().join(", ")
}
