//! Making a device.

use std::sync::Arc;

use millpond_backend::Closing;
use millpond_kit::Leavings;
use parking_lot::Mutex;

use super::{Device, Sim};
use crate::open::link::Link;
use crate::open::{CostModel, SimBuilder, StreamOrder};
use crate::space::Memory;
use crate::streams::Streams;
use crate::time::Time;
use crate::transfer::Overwriting;

impl Sim {
    /// Creates a device as large as an H200 whose driver calls cost nothing and whose work completes at once. It has no
    /// stream yet.
    pub fn new() -> Sim {
        Sim::builder().cost(CostModel::free()).build()
    }

    /// Returns a builder of a device. The defaults are an H200 with its measured costs.
    pub fn builder() -> SimBuilder {
        SimBuilder::new()
    }
}

impl Default for Sim {
    fn default() -> Sim {
        Sim::new()
    }
}

impl SimBuilder {
    /// Builds the device. It has no stream yet.
    ///
    /// # Panics
    ///
    /// If the alignment or the granularity is no power of two, or if streams keep order by submits
    /// ([`StreamOrder::Tracked`]) and the application does not submit.
    pub fn build(mut self) -> Sim {
        let alignment = self.caps.classes[0].alignment;
        assert!(alignment.is_power_of_two(), "alignment {alignment} is no power of two");
        if let Some(pages) = self.caps.pages {
            assert!(pages.granularity.is_power_of_two(), "granularity {} is no power of two", pages.granularity);
        }
        assert!(
            self.order != StreamOrder::Tracked || self.caps.closing == Closing::Submit,
            "streams are to keep order by submits, and the device closes ticks by itself"
        );
        let fresh = self.keep_contents.then_some(self.fresh);
        let limits = (self.address_space_bytes, self.max_allocations);
        let memory = Memory::new(&self.caps.classes, limits, self.caps.oversubscribes, fresh);
        if let Some(bytes) = self.listed_bytes {
            self.caps.classes[0].total_bytes = bytes;
        }
        let link = Link::new(self.caps, self.costs, self.takes_time, memory);
        let time = Time::new(Streams::new(link), self.completion, self.order);
        let (leavings, overwriting) = (Leavings::default(), Mutex::new(Overwriting::Sound));
        Sim { device: Arc::new(Device { time, leavings, overwriting }) }
    }
}
