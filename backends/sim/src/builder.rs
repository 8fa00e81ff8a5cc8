//! Describing a simulated device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use millpond_backend::{Caps, Class, ClassKind, Closing, FaultPlan, PageCaps, Reuse};
use parking_lot::Mutex;

use crate::calls::Counters;
use crate::control::Overwriting;
use crate::device::Device;
use crate::schedule::{Completion, State};
use crate::space::Memory;
use crate::{CostModel, Sim};

/// The bytes that CUDA reports for an H200.
const H200_BYTES: u64 = 150_109_880_320;

/// A device to be. Start with [`Sim::builder`], end with [`build`](SimBuilder::build).
///
/// Class 0 is "device", class 1 is "pinned" host memory.
#[derive(Clone, Debug)]
#[must_use = "nothing exists until build is called"]
pub struct SimBuilder {
    caps: Caps,
    address_space_bytes: u64,
    fresh: u8,
    completion: Completion,
    costs: CostModel,
}

impl SimBuilder {
    pub(crate) fn new() -> SimBuilder {
        let class = |name: &str, kind, total_bytes| Class {
            name: name.to_owned(),
            kind,
            alignment: 512,
            max_segment_bytes: u64::MAX,
            total_bytes,
        };
        let caps = Caps {
            name: "simulated H200".to_owned(),
            classes: vec![class("device", ClassKind::Device, H200_BYTES), class("pinned", ClassKind::Host, 256 << 30)],
            reuse: Reuse::InOrder,
            needs_barrier: false,
            closing: Closing::Backend,
            release_waits: true,
            oversubscribes: false,
            pages: Some(PageCaps::new(2 << 20)),
            stream_wait: true,
            host_memory: true,
            transfer: true,
            budget: true,
        };
        SimBuilder {
            caps,
            address_space_bytes: 1 << 47,
            fresh: 0,
            completion: Completion::Immediate,
            costs: CostModel::h200(),
        }
    }

    /// What people call the device. "simulated H200" unless set.
    pub fn name(mut self, name: &str) -> SimBuilder {
        name.clone_into(&mut self.caps.name);
        self
    }

    /// Bytes of class 0. An H200's 150,109,880,320 unless set.
    pub fn total_bytes(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[0].total_bytes = bytes;
        self
    }

    /// Bytes of class 1. 256 GiB unless set; host memory is used only where somebody writes.
    pub fn pinned_bytes(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[1].total_bytes = bytes;
        self
    }

    /// What class 0's segments start at a multiple of. 512 unless set.
    pub fn alignment(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[0].alignment = bytes;
        self
    }

    /// Class 0's largest segment in bytes. Limited by memory alone unless set. Ranges are not segments here.
    pub fn max_segment_bytes(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[0].max_segment_bytes = bytes;
        self
    }

    /// Bytes of addresses that live ranges may take together. 2^47 unless set.
    pub fn address_space_bytes(mut self, bytes: u64) -> SimBuilder {
        self.address_space_bytes = bytes;
        self
    }

    /// Who closes ticks. [`Closing::Backend`] unless set.
    pub fn closing(mut self, closing: Closing) -> SimBuilder {
        self.caps.closing = closing;
        self
    }

    /// What the device says about reuse on the home stream. [`Reuse::InOrder`] unless set; a fact for the allocator
    /// that changes nothing in the device, whose streams always run in order.
    pub fn reuse(mut self, reuse: Reuse) -> SimBuilder {
        self.caps.reuse = reuse;
        self
    }

    /// Whether the device says that reuse in order wants a barrier. Off unless set; barriers are not checked.
    pub fn needs_barrier(mut self, needs: bool) -> SimBuilder {
        self.caps.needs_barrier = needs;
        self
    }

    /// Whether releasing a segment waits for all submitted work, as `cuMemFree` does. On unless set.
    pub fn release_waits(mut self, waits: bool) -> SimBuilder {
        self.caps.release_waits = waits;
        self
    }

    /// Whether memory is granted beyond what other processes leave, as Vulkan drivers do that move memory to the host.
    /// Off unless set.
    pub fn oversubscribes(mut self, oversubscribes: bool) -> SimBuilder {
        self.caps.oversubscribes = oversubscribes;
        self
    }

    /// Virtual memory. 2 MiB with aliasing unless set.
    pub fn pages(mut self, pages: Option<PageCaps>) -> SimBuilder {
        self.caps.pages = pages;
        self
    }

    /// Whether streams can wait for each other on the device. On unless set.
    pub fn stream_wait(mut self, has: bool) -> SimBuilder {
        self.caps.stream_wait = has;
        self
    }

    /// Whether the device tells its budget. On unless set.
    pub fn budget(mut self, has: bool) -> SimBuilder {
        self.caps.budget = has;
        self
    }

    /// Whether the device fills and copies. On unless set. What is written is kept in host memory, in leaves of 4 KiB
    /// made when first written; what is filled evenly costs next to nothing, and what is not touched nothing at all.
    pub fn transfer(mut self, has: bool) -> SimBuilder {
        self.caps.transfer = has;
        self
    }

    /// What device memory holds that comes from the driver, as drivers need not clear it. 0 unless set.
    pub fn fresh(mut self, value: u8) -> SimBuilder {
        self.fresh = value;
        self
    }

    /// When queued work completes. [`Completion::Immediate`] unless set.
    pub fn completion(mut self, completion: Completion) -> SimBuilder {
        self.completion = completion;
        self
    }

    /// What driver calls cost on the virtual clock. [`CostModel::h200`] unless set.
    pub fn cost(mut self, costs: CostModel) -> SimBuilder {
        self.costs = costs;
        self
    }

    /// Makes the device. It has no stream yet.
    ///
    /// # Panics
    ///
    /// If the alignment or the granularity is no power of two.
    pub fn build(self) -> Sim {
        let alignment = self.caps.classes[0].alignment;
        assert!(alignment.is_power_of_two(), "alignment {alignment} is no power of two");
        if let Some(pages) = self.caps.pages {
            assert!(pages.granularity.is_power_of_two(), "granularity {} is no power of two", pages.granularity);
        }
        let memory = Memory::new(&self.caps.classes, self.address_space_bytes, self.caps.oversubscribes, self.fresh);
        let device = Device {
            caps: self.caps,
            costs: self.costs,
            completion: self.completion,
            memory: Arc::new(memory),
            lanes: boxcar::Vec::new(),
            state: Mutex::new(State::new(self.completion)),
            queued: AtomicU64::new(0),
            counters: Counters::new(),
            faults: FaultPlan::default(),
            overwriting: Mutex::new(Overwriting::Sound),
            lost: AtomicBool::new(false),
            clock: AtomicU64::new(0),
        };
        Sim { device: Arc::new(device) }
    }
}
