//! Queues, and the locks that serialise access to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use parking_lot::Mutex;

use crate::error::VulkanError;
use crate::probe::transfers;

/// A lock that serialises access to a `VkQueue`, which Vulkan leaves to its users. An engine that submits to a queue
/// itself shares its own lock by implementing this.
///
/// The lock is the outermost: a thread that submits, flushes binds or drops the last handle of a device waits for it
/// while it holds locks of the device. So an engine does none of that, and neither records nor transfers, while it
/// holds the lock. Allocating and freeing is allowed: they only [try](QueueLock::try_locked) to lock the queue.
pub trait QueueLock: Send + Sync {
    /// Runs `work`, once, while no other thread uses the queue. Waits for a thread that does.
    fn locked(&self, work: &mut dyn FnMut());

    /// Runs `work`, once, if no other thread uses the queue, and returns whether it has run. Never waits for another
    /// thread.
    ///
    /// A lock that cannot be tried returns `false`: memory that was given back then reaches the driver with the next
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
    /// Its index within its family, in the order in which the queues were opened or adopted.
    pub(crate) index: u32,
    pub(crate) flags: vk::QueueFlags,
    lock: Arc<dyn QueueLock>,
    is_own: bool,
    /// Whether this backend has used the queue.
    used: AtomicBool,
}

impl Queue {
    pub(crate) fn new(
        raw: vk::Queue,
        (family, index): (u32, u32),
        flags: vk::QueueFlags,
        lock: Option<Arc<dyn QueueLock>>,
    ) -> Queue {
        let is_own = lock.is_none();
        let lock = lock.unwrap_or_else(|| Arc::new(Mutex::new(())));
        Queue { raw, family, index, flags, lock, is_own, used: AtomicBool::new(false) }
    }

    /// Returns whether the lock is this backend's own, which is held only while the driver is called.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns whether this backend has used the queue.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Runs `work` while no other thread uses the queue.
    ///
    /// # Panics
    ///
    /// If the engine's lock does not run it.
    pub(crate) fn locked<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> T {
        let (mut work, mut result) = (Some(work), None);
        self.used.store(true, Ordering::Relaxed);
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

    /// Runs `work` if no other thread uses the queue at this moment; else returns `None`.
    pub(crate) fn try_locked<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> Option<T> {
        let (mut work, mut result) = (Some(work), None);
        self.used.store(true, Ordering::Relaxed);
        self.lock.try_locked(&mut || {
            if let Some(work) = work.take() {
                result = Some(work(self.raw));
            }
        });
        result
    }

    /// Returns whether the queue computes or draws, as streams need.
    pub(crate) fn computes(&self) -> bool {
        computes(self.flags)
    }

    /// Returns whether the queue can copy, without which it takes no stream.
    pub(crate) fn transfers(&self) -> bool {
        transfers(self.flags)
    }

    /// Returns whether the queue can bind sparse memory.
    pub(crate) fn binds(&self) -> bool {
        self.flags.contains(vk::QueueFlags::SPARSE_BINDING)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of family {} ({:?})", self.index, self.family, self.flags)
    }
}

/// The queues that a device is opened with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum QueueChoice {
    /// Every queue that can at least copy, with those that compute first, and those that can only bind sparse memory.
    #[default]
    All,
    /// The same as `All`, with at most this number of each family: each queue takes time to open, and all queues of a
    /// large GPU take a second.
    AtMost(u32),
    /// Every queue that computes.
    Compute,
    /// This number of queues of each family, as `(family, count)`, each family once. More than the device has, no queue
    /// at all, and a family that is named twice are errors.
    Exactly(Vec<(u32, u32)>),
}

impl QueueChoice {
    /// Returns the families to open, each once, and the number of queues of each, of which there is at least one.
    pub(crate) fn resolve(&self, families: &[vk::QueueFamilyProperties]) -> Result<Vec<(u32, u32)>, VulkanError> {
        let chosen = match self {
            QueueChoice::Exactly(wanted) => exactly(wanted, families)?,
            choice => choice.of_kind(families),
        };
        if chosen.is_empty() {
            return Err(VulkanError::NoQueues { available: describe_families(families) });
        }
        Ok(chosen)
    }

    /// Returns the families of the kind that was chosen, with those that compute first.
    fn of_kind(&self, families: &[vk::QueueFamilyProperties]) -> Vec<(u32, u32)> {
        let useful = |flags: vk::QueueFlags| transfers(flags) || flags.contains(vk::QueueFlags::SPARSE_BINDING);
        let most = if let QueueChoice::AtMost(most) = *self { most.max(1) } else { u32::MAX };
        let fits = |flags| computes(flags) || (*self != QueueChoice::Compute && useful(flags));
        let mut chosen: Vec<(u32, &vk::QueueFamilyProperties)> =
            (0..).zip(families).filter(|(_, family)| fits(family.queue_flags)).collect();
        chosen.sort_by_key(|(_, family)| !computes(family.queue_flags));
        chosen.into_iter().map(|(index, family)| (index, family.queue_count.min(most))).collect()
    }
}

/// Returns the choice, if the device has all of it and no family is named twice. Takes time with the square of its
/// length, of which each step refuses or adds a family.
fn exactly(wanted: &[(u32, u32)], families: &[vk::QueueFamilyProperties]) -> Result<Vec<(u32, u32)>, VulkanError> {
    let mut chosen: Vec<(u32, u32)> = Vec::new();
    for &(family, count) in wanted {
        let there = families.get(family as usize).is_some_and(|each| (1..=each.queue_count).contains(&count));
        if !there {
            let (index, available) = (count.saturating_sub(1), describe_families(families));
            return Err(VulkanError::NoQueue { family, index, available });
        }
        if chosen.iter().any(|&(other, _)| other == family) {
            return Err(VulkanError::QueueTwice { family, index: 0 });
        }
        chosen.push((family, count));
    }
    Ok(chosen)
}

fn computes(flags: vk::QueueFlags) -> bool {
    flags.intersects(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE)
}

/// Describes the queues of these families, for an error.
pub(crate) fn describe_families(families: &[vk::QueueFamilyProperties]) -> String {
    let each = |(index, family): (usize, &vk::QueueFamilyProperties)| {
        format!("{} of family {index} ({:?})", family.queue_count, family.queue_flags)
    };
    families.iter().enumerate().map(each).collect::<Vec<_>>().join(", ")
}

/// Describes these queues, for an error.
pub(crate) fn describe(queues: &[Queue]) -> String {
    queues.iter().map(|queue| format!("{queue:?}")).collect::<Vec<_>>().join(", ")
}
