//! The builder of a simulated device.

use millpond_backend::{Caps, Class, ClassKind, Closing, PageCaps, Reuse};

use super::cost::CostModel;
use super::settings::{Completion, StreamOrder};

/// The bytes that CUDA reports for an H200.
const H200_BYTES: u64 = 150_109_880_320;

/// The builder of a simulated device. [`Sim::builder`](crate::Sim::builder) starts one, and
/// [`build`](SimBuilder::build) makes the device.
///
/// Class 0 is "device", class 1 is "pinned" host memory.
#[derive(Clone, Debug)]
#[must_use = "nothing exists until build is called"]
pub struct SimBuilder {
    pub(crate) caps: Caps,
    pub(crate) address_space_bytes: u64,
    pub(crate) max_allocations: u64,
    pub(crate) fresh: u8,
    pub(crate) completion: Completion,
    pub(crate) order: StreamOrder,
    pub(crate) costs: CostModel,
    pub(crate) listed_bytes: Option<u64>,
    pub(crate) takes_time: bool,
    pub(crate) keep_contents: bool,
}

impl SimBuilder {
    pub(crate) fn new() -> SimBuilder {
        let class = |name: &str, kind, total_bytes| Class::new(kind, name, total_bytes).with_alignment(512);
        let classes = vec![class("device", ClassKind::Device, H200_BYTES), class("pinned", ClassKind::Host, 256 << 30)];
        let caps = Caps::new("simulated H200", classes, Reuse::InOrder, Closing::Backend)
            .with_release_waits(true)
            .with_pages(Some(PageCaps::new(2 << 20)))
            .with_stream_wait(true)
            .with_host_memory(true)
            .with_transfer(true)
            .with_budget(true);
        SimBuilder {
            caps,
            address_space_bytes: 1 << 47,
            max_allocations: u64::MAX,
            fresh: 0,
            completion: Completion::Immediate,
            order: StreamOrder::Always,
            costs: CostModel::h200(),
            listed_bytes: None,
            takes_time: false,
            keep_contents: true,
        }
    }

    /// Sets the device's name. The default is "simulated H200".
    pub fn name(mut self, name: &str) -> SimBuilder {
        name.clone_into(&mut self.caps.name);
        self
    }

    /// Sets the bytes of class 0. The default is an H200's 150,109,880,320.
    pub fn total_bytes(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[0].total_bytes = bytes;
        self
    }

    /// Sets the bytes of class 1. The default is 256 GiB; it uses the host's memory only where a caller writes.
    pub fn pinned_bytes(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[1].total_bytes = bytes;
        self
    }

    /// Sets the number of bytes that the start of every segment of class 0 is a multiple of. The default is 512.
    pub fn alignment(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[0].alignment = bytes;
        self
    }

    /// Sets class 0's largest segment, in bytes. By default only the memory limits it. It does not apply to ranges.
    pub fn max_segment_bytes(mut self, bytes: u64) -> SimBuilder {
        self.caps.classes[0].max_segment_bytes = bytes;
        self
    }

    /// Sets the bytes of addresses that live ranges may take together. The default is 2^47.
    pub fn address_space_bytes(mut self, bytes: u64) -> SimBuilder {
        self.address_space_bytes = bytes;
        self
    }

    /// Sets how many segments and pages there may be at a time, as Vulkan's `maxMemoryAllocationCount` does. By default
    /// only the memory limits them.
    pub fn max_allocations(mut self, count: u64) -> SimBuilder {
        self.max_allocations = count;
        self
    }

    /// Sets which side closes ticks. The default is [`Closing::Backend`].
    pub fn closing(mut self, closing: Closing) -> SimBuilder {
        self.caps.closing = closing;
        self
    }

    /// Sets what the device reports about reuse on the home stream. The default is [`Reuse::InOrder`]. The allocator
    /// reads this fact; it changes nothing in the device: see [`stream_order`](Self::stream_order) for that.
    pub fn reuse(mut self, reuse: Reuse) -> SimBuilder {
        self.caps.reuse = reuse;
        self
    }

    /// Sets whether the device reports that reuse in order needs a barrier. Off by default. The allocator reads this
    /// fact; whether barriers are placed is checked under [`StreamOrder::Barriers`].
    pub fn needs_barrier(mut self, needs: bool) -> SimBuilder {
        self.caps.needs_barrier = needs;
        self
    }

    /// Sets whether releasing a segment waits for all submitted work, as `cuMemFree` does. On by default.
    pub fn release_waits(mut self, waits: bool) -> SimBuilder {
        self.caps.release_waits = waits;
        self
    }

    /// Sets whether memory is granted beyond what other processes leave, as Vulkan drivers do that move memory to the
    /// host. Off by default.
    pub fn oversubscribes(mut self, oversubscribes: bool) -> SimBuilder {
        self.caps.oversubscribes = oversubscribes;
        self
    }

    /// Sets the bytes that the device lists as its own memory, for tests of an allocator on a device whose facts are
    /// wrong. By default it lists the memory that it has.
    pub fn lists(mut self, bytes: u64) -> SimBuilder {
        self.listed_bytes = Some(bytes);
        self
    }

    /// Sets the virtual memory of the device. The default is pages of 2 MiB with aliasing.
    pub fn pages(mut self, pages: Option<PageCaps>) -> SimBuilder {
        self.caps.pages = pages;
        self
    }

    /// Sets whether streams can wait for each other on the device. On by default.
    pub fn stream_wait(mut self, has: bool) -> SimBuilder {
        self.caps.stream_wait = has;
        self
    }

    /// Sets whether the device reports its budget. On by default.
    pub fn budget(mut self, has: bool) -> SimBuilder {
        self.caps.budget = has;
        self
    }

    /// Sets whether the device fills and copies. On by default. Bytes that are written are kept in host memory, in
    /// leaves of 4 KiB that are made at the first write. Memory that is filled evenly costs almost nothing, and memory
    /// that is not touched costs nothing.
    pub fn transfer(mut self, has: bool) -> SimBuilder {
        self.caps.transfer = has;
        self
    }

    /// Sets whether the device keeps what is written to its memory. On by default.
    ///
    /// Without it, uploads, fills and copies are ordered and watched as usual, but store nothing. This is for programs
    /// that move more bytes than the host has memory, and never read them. Anything that would read the memory, a
    /// download or a copy to kept memory, returns [`SimError::NotKept`](crate::SimError::NotKept) when it is queued.
    /// Class 1 is memory of the host, and is always kept.
    pub fn keep_contents(mut self, keep: bool) -> SimBuilder {
        self.keep_contents = keep;
        self
    }

    /// Sets the value of every byte of device memory that comes from the driver, because drivers need not clear it. The
    /// default is 0.
    pub fn fresh(mut self, value: u8) -> SimBuilder {
        self.fresh = value;
        self
    }

    /// Sets when queued work completes. The default is [`Completion::Immediate`].
    pub fn completion(mut self, completion: Completion) -> SimBuilder {
        self.completion = completion;
        self
    }

    /// Sets when the work of a stream is ordered with earlier work of the same stream. The default is
    /// [`StreamOrder::Always`].
    pub fn stream_order(mut self, order: StreamOrder) -> SimBuilder {
        self.order = order;
        self
    }

    /// Sets the costs of driver calls on the virtual clock. The default is [`CostModel::h200`].
    pub fn cost(mut self, costs: CostModel) -> SimBuilder {
        self.costs = costs;
        self
    }

    /// Sets whether each driver call also takes its virtual time on the host's clock. While the calling thread sleeps,
    /// memory that it takes counts as taken, and memory that it releases is not released yet. For tests of what other
    /// threads do meanwhile. Off by default.
    pub fn takes_time(mut self, takes: bool) -> SimBuilder {
        self.takes_time = takes;
        self
    }
}
