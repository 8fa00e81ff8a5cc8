//! Where the bytes of a device are: with the allocator, with the rest of the process, with others.

use std::fmt;

use millpond_backend::BudgetInfo;

use crate::text::format_bytes;

/// More is reserved than the device lists, and it says that it does not oversubscribe: its facts are wrong, or its
/// driver grants memory that is somewhere else. Limits that are shares of the device's memory mean little then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeyondDevice {
    /// Bytes that the allocator has reserved.
    pub reserved_bytes: u64,
    /// Bytes that the device lists for the class: [`Class::total_bytes`](millpond_backend::Class::total_bytes).
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

/// Where the bytes of a class of memory are, at one moment. What is told apart depends on the platform; the parts add
/// up to what is in use all the same: [`reserved_bytes`](Usage::reserved_bytes), the two that may be told, and
/// [`untold_bytes`](Usage::untold_bytes) make [`used_bytes`](Usage::used_bytes), which is what `nvidia-smi` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes there are in all.
    pub total_bytes: u64,
    /// Bytes that can still be had. On Vulkan what the driver leaves to this process, which may be less than nobody
    /// holds.
    pub free_bytes: u64,
    /// Bytes that the allocator has reserved.
    pub reserved_bytes: u64,
    /// Bytes that the rest of this process holds: the driver's context and modules, and what was taken past the
    /// allocator or by another one.
    pub process_bytes: Option<u64>,
    /// Bytes that other processes hold.
    pub others_bytes: Option<u64>,
    /// Bytes that are in use and that nobody tells apart: what is not told above, and the driver's own.
    pub untold_bytes: u64,
}

impl Usage {
    /// Takes apart what the device tells, for an allocator that has reserved so much. What the platform counts twice,
    /// or counted at another moment, is cut, so that the parts add up.
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

    /// Bytes that are in use: all but the free ones, or what is reserved where that is more, as on devices that grant
    /// more than they have.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes).max(self.reserved_bytes)
    }

    /// The parts of what is in use with their names, at most 15 characters long.
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

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: BudgetInfo =
        BudgetInfo { free_bytes: 300, total_bytes: 1000, others_bytes: None, process_bytes: None };

    /// Takes a budget apart and checks that the parts add up.
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
        let apart = usage(BudgetInfo { process_bytes: Some(260), ..BUDGET }, 200);
        assert_eq!(apart.parts(), [("reserved here", 200), ("rest of process", 60), ("others, driver", 440)]);
        let apart = usage(BudgetInfo { others_bytes: Some(400), ..BUDGET }, 200);
        assert_eq!(apart.parts(), [("reserved here", 200), ("other processes", 400), ("context, driver", 100)]);
        let apart = usage(BudgetInfo { process_bytes: Some(260), others_bytes: Some(430), ..BUDGET }, 200);
        let told = [("reserved here", 200), ("rest of process", 60), ("other processes", 430), ("driver", 10)];
        assert_eq!(apart.parts(), told);
        assert_eq!(apart.used_bytes(), 700);
    }

    #[test]
    fn parts_that_do_not_fit_are_cut() {
        let told = |process, others| BudgetInfo { process_bytes: Some(process), others_bytes: Some(others), ..BUDGET };
        assert_eq!(usage(told(650, 600), 600).untold_bytes, 0);
        assert_eq!(usage(told(500, 0), 600).process_bytes, Some(0), "less than what is reserved");
        assert_eq!(usage(told(5000, 5000), 0).others_bytes, Some(0));
        assert_eq!(usage(BUDGET, 900).used_bytes(), 900, "more was granted than there is");
        assert_eq!(usage(BudgetInfo { free_bytes: 2000, ..BUDGET }, 0).used_bytes(), 0);
    }
}
