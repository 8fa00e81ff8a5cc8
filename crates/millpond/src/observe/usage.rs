//! The use of a device's memory: by the allocator, by the rest of the process, by other processes.

use std::fmt;

use millpond_backend::{Backend, BudgetInfo};

use crate::allocator::Allocator;
use crate::error::Error;
use crate::text::format_bytes;

/// More is reserved than the device lists, although it says that it does not oversubscribe. Its facts are wrong, or its
/// driver grants memory that does not belong to it. Limits as a share of the device's memory are then unreliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeyondDevice {
    /// The bytes that the allocator has reserved.
    pub reserved_bytes: u64,
    /// The bytes that the device lists for the class: [`Class::total_bytes`](millpond_backend::Class::total_bytes).
    pub listed_bytes: u64,
}

impl fmt::Display for BeyondDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} bytes) are reserved on a device that lists {} ({} bytes) and says that it does not oversubscribe: \
             its driver grants more than it lists",
            format_bytes(self.reserved_bytes),
            self.reserved_bytes,
            format_bytes(self.listed_bytes),
            self.listed_bytes
        )
    }
}

/// The use of a class of memory, at one moment. The platform decides which parts are known, but they always add up to
/// what is in use: [`reserved_bytes`](Usage::reserved_bytes), the two optional parts, and
/// [`untold_bytes`](Usage::untold_bytes) make [`used_bytes`](Usage::used_bytes), which is what `nvidia-smi` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// All bytes of the class.
    pub total_bytes: u64,
    /// The bytes that can still be allocated. On Vulkan this is what the driver leaves to this process, which may be
    /// less than the memory that no process holds.
    pub free_bytes: u64,
    /// The bytes that the allocator has reserved.
    pub reserved_bytes: u64,
    /// The bytes that the rest of this process holds: the driver's context and modules, and what was reserved without
    /// an allocator or by another one.
    pub process_bytes: Option<u64>,
    /// The bytes that other processes hold.
    pub others_bytes: Option<u64>,
    /// The bytes in use that belong to no known part: the parts above that are `None`, and the driver's own memory.
    pub untold_bytes: u64,
}

impl Usage {
    /// Divides what the device reports into parts, for an allocator that has reserved `reserved_bytes`. Bytes that the
    /// platform counts twice, or counted at another moment, are cut, so that the parts add up.
    pub fn new(budget: &BudgetInfo, reserved_bytes: u64) -> Usage {
        let used = budget.total_bytes.saturating_sub(budget.free_bytes);
        let mut left = used.saturating_sub(reserved_bytes);
        let mut part = |bytes: u64| {
            let bytes = bytes.min(left);
            left -= bytes;
            bytes
        };
        let process_bytes = budget.process_bytes.map(|bytes| part(bytes.saturating_sub(reserved_bytes)));
        let others_bytes = budget.others_bytes.map(&mut part);
        Usage {
            total_bytes: budget.total_bytes,
            free_bytes: budget.free_bytes,
            reserved_bytes,
            process_bytes,
            others_bytes,
            untold_bytes: left,
        }
    }

    /// Returns the bytes in use: all but the free ones, or the reserved bytes if those are more, as on devices that
    /// grant more than they have.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes).max(self.reserved_bytes)
    }

    /// Returns the parts of the memory in use, with names of at most 15 characters.
    pub fn parts(&self) -> Vec<(&'static str, u64)> {
        let untold = match (self.process_bytes, self.others_bytes) {
            (None, None) => "context, others",
            (Some(_), None) => "others, driver",
            (None, Some(_)) => "context, driver",
            (Some(_), Some(_)) => "driver",
        };
        let told = [("rest of process", self.process_bytes), ("other processes", self.others_bytes)];
        let told = told.into_iter().filter_map(|(name, bytes)| Some((name, bytes?)));
        std::iter::once(("reserved here", self.reserved_bytes))
            .chain(told)
            .chain(std::iter::once((untold, self.untold_bytes)))
            .collect()
    }
}

impl<B: Backend> Allocator<B> {
    /// Returns how the device's memory is used: reserved here, held by the rest of this process, held by other
    /// processes. Returns `None` on a device that does not report its free memory. Makes a driver call and, where
    /// processes are looked up with a management library (`nvml` of `millpond-cuda`), some calls of that library.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver call fails.
    pub fn memory_usage(&self) -> Result<Option<Usage>, Error<B::Error>> {
        let state = self.state();
        let Some(device) = state.backend.budget() else { return Ok(None) };
        let budget = device.budget(state.class).map_err(|e| Error::of_driver("budget", e))?;
        Ok(Some(Usage::new(&budget, self.memory_reserved())))
    }

    /// Returns the numbers if more is reserved than the device lists, although the device says that it does not
    /// oversubscribe. Takes a lock.
    pub fn beyond_device(&self) -> Option<BeyondDevice> {
        let caps = self.backend().caps();
        let (reserved_bytes, listed_bytes) = (self.memory_reserved(), caps.class(self.state().class).total_bytes);
        let is_beyond = !caps.oversubscribes && reserved_bytes > listed_bytes;
        is_beyond.then_some(BeyondDevice { reserved_bytes, listed_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: BudgetInfo = BudgetInfo::new(300, 1000);

    /// Divides a budget into parts and checks that the parts add up.
    fn usage(budget: BudgetInfo, reserved: u64) -> Usage {
        let usage = Usage::new(&budget, reserved);
        let sum: u64 = usage.parts().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(sum, usage.used_bytes(), "{usage:?}");
        assert!(usage.parts().iter().all(|(name, _)| name.len() <= 15));
        usage
    }

    #[test]
    fn what_is_not_told_apart_is_one_part() {
        let apart = usage(BUDGET, 200);
        assert_eq!(apart.parts(), [("reserved here", 200), ("context, others", 500)]);
        let apart = usage(BUDGET.with_process_bytes(Some(260)), 200);
        assert_eq!(apart.parts(), [("reserved here", 200), ("rest of process", 60), ("others, driver", 440)]);
        let apart = usage(BUDGET.with_others_bytes(Some(400)), 200);
        assert_eq!(apart.parts(), [("reserved here", 200), ("other processes", 400), ("context, driver", 100)]);
        let apart = usage(BUDGET.with_process_bytes(Some(260)).with_others_bytes(Some(430)), 200);
        let told = [("reserved here", 200), ("rest of process", 60), ("other processes", 430), ("driver", 10)];
        assert_eq!(apart.parts(), told);
        assert_eq!(apart.used_bytes(), 700);
    }

    #[test]
    fn parts_that_do_not_fit_are_cut() {
        let told = |process, others| BUDGET.with_process_bytes(Some(process)).with_others_bytes(Some(others));
        assert_eq!(usage(told(650, 600), 600).untold_bytes, 0);
        assert_eq!(usage(told(500, 0), 600).process_bytes, Some(0), "less than what is reserved");
        assert_eq!(usage(told(5000, 5000), 0).others_bytes, Some(0));
        assert_eq!(usage(BUDGET, 900).used_bytes(), 900, "more was granted than there is");
        assert_eq!(usage(BudgetInfo::new(2000, 1000), 0).used_bytes(), 0);
    }
}
