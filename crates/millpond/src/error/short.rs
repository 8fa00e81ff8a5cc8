//! What a driver is short of, where that is not memory: addresses, allocations, or bytes in one piece.

use millpond_backend::{BackendError, Caps, Shortage};
use millpond_core::Report;

use crate::text::format_bytes;

/// What is short.
#[derive(Clone, Debug)]
pub(crate) struct Short {
    pub(crate) of: Shortage,
    /// A sentence on it.
    pub(crate) text: String,
}

impl Short {
    /// Returns what an error says that the driver is short of; `None` if that is memory.
    pub(crate) fn of<E: BackendError>(error: &E) -> Option<Self> {
        match error.shortage() {
            Shortage::Memory => None,
            of => Some(Self { of, text: format!("The driver's last answer: {error}.") }),
        }
    }

    /// Returns that the ranges have all addresses of the device, where that is why the driver was not asked.
    pub(crate) fn of_ranges(report: &Report, caps: &Caps) -> Option<Self> {
        let (asked, pages) = (report.refused_addresses?, caps.pages?);
        let is_bounded = report.beyond_limit_bytes() == 0 && pages.address_bytes < u64::MAX;
        let (asked, total) = (format_bytes(asked), format_bytes(pages.address_bytes));
        let text = format!(
            "Addresses are short: a range of {asked} was needed, and too little is left of the {total} that the device \
             has for ranges (on Vulkan sparseAddressSpaceSize)."
        );
        is_bounded.then_some(Self { of: Shortage::Addresses, text })
    }

    /// Returns what to do.
    pub(crate) fn advice(&self) -> &'static str {
        match self.of {
            Shortage::Addresses => {
                "free buffers that reserve addresses and drop pools, call empty_cache, then try again: memory is not \
                 what is short, addresses are."
            }
            Shortage::Allocations => {
                "free buffers and call empty_cache, which ends allocations, or have fewer and longer ones, such as by \
                 large_segment_size_mb or larger pages: memory is not what is short."
            }
            Shortage::Piece => "request several buffers: the device makes no single allocation as large.",
            _ => "free buffers and call empty_cache, then try again.",
        }
    }
}
