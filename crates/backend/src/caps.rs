//! The facts about a device, which never change while the backend lives.

use alloc::string::String;
use alloc::vec::Vec;

/// The owner of a class of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClassKind {
    /// The device's own memory.
    Device,
    /// Host memory that the device accesses directly (pinned, host-visible).
    Host,
}

/// One kind of memory that [`Backend::reserve`](crate::Backend::reserve) can supply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// The name for users, such as "device" or "pinned".
    pub name: String,
    /// The owner of the memory.
    pub kind: ClassKind,
    /// The alignment in bytes, a power of two: every segment of the class starts at a multiple of it.
    pub alignment: u64,
    /// The largest segment in bytes that one call may ask for, or `u64::MAX` where only the memory limits it.
    pub max_segment_bytes: u64,
    /// All bytes that the device has in this class, used or not.
    pub total_bytes: u64,
}

/// When memory freed on a stream may be handed out again *on the same stream*: the later, the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reuse {
    /// At once, because later work on the stream is ordered after earlier work.
    InOrder,
    /// Once the work recorded before the free was submitted: a tick below the current [`mark`](crate::Backend::mark).
    AfterSubmit,
    /// Once that work is done on the device.
    AfterDone,
}

/// The side that ends a tick and begins the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The backend, whenever it is asked what was reached: marked work can then be reached without an action of the
    /// caller.
    Backend,
    /// The application's submit: a mark on work that was never submitted is never reached.
    Submit,
}

/// The properties of a device's virtual memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageCaps {
    /// The unit in bytes, a power of two: the size of a page is a multiple of it, and so is each address where one is
    /// mapped.
    pub granularity: u64,
    /// Whether one page may be mapped at two addresses at the same time.
    pub aliasing: bool,
    /// When memory that was freed on a stream may be handed out again on the same stream **at another address**,
    /// through which the stream will use it. It has a meaning only where pages may be mapped twice.
    ///
    /// [`Reuse::InOrder`] says that order on the stream holds whatever addresses its work uses: at once on CUDA, and
    /// once the caller has placed a *global* memory barrier where [`Caps::needs_barrier`] asks for one (a barrier for
    /// one buffer does not cover what was written through another). [`Reuse::AfterSubmit`] is for devices that order
    /// the accesses within a submission for each buffer, and so do not detect that two buffers have the same memory
    /// (wgpu): work that is submitted later comes after work that was submitted earlier, and sees what it wrote.
    /// [`Reuse::AfterDone`] promises nothing. With every value, a device-side wait orders work at all addresses.
    pub alias_reuse: Reuse,
    /// The number of bytes of addresses that all ranges together can have (Vulkan's `sparseAddressSpaceSize`), or
    /// `u64::MAX` where they are plentiful (CUDA). Where they are not, ranges are shorter, so that each stream gets
    /// some.
    pub address_bytes: u64,
    /// The number of pages that may be mapped at a second address, each counted once for each such address, before the
    /// allocator ends those of these mappings that were not used for longest. CUDA's driver takes some 4.3 KiB of the
    /// host's memory for each (measured with 580.159), and is no slower with 260,000 of them.
    pub mappings: u64,
}

impl PageCaps {
    /// The default number of mappings at a second address: 120,000, for which CUDA's driver takes half a GiB of the
    /// host's memory.
    pub const MAPPINGS: u64 = 120_000;

    /// Creates the properties of pages of `granularity` bytes, a power of two. By default pages may be mapped twice,
    /// addresses are plentiful, and streams keep their order at all addresses.
    pub const fn new(granularity: u64) -> Self {
        let (alias_reuse, address_bytes) = (Reuse::InOrder, u64::MAX);
        Self { granularity, aliasing: true, alias_reuse, address_bytes, mappings: Self::MAPPINGS }
    }
}

/// The facts about a device. Constant for the life of a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caps {
    /// The device's name for users.
    pub name: String,
    /// Its memory classes. Entry 0 is the device's own memory.
    pub classes: Vec<Class>,
    /// When memory freed on a stream can be reused on that stream.
    pub reuse: Reuse,
    /// Whether order on the stream holds only once the caller has placed a memory barrier between the last use and the
    /// first reuse (Vulkan: submission order alone is not a dependency). It has no meaning if reuse is
    /// [`Reuse::AfterDone`]. Where memory has pages, it must be a global barrier, because the last use may have been at
    /// another address.
    pub needs_barrier: bool,
    /// The side that closes ticks.
    pub closing: Closing,
    /// Whether the release of a segment waits for the whole device (CUDA: `cuMemFree`).
    pub release_waits: bool,
    /// Whether the driver still grants memory when the device is full, at a cost (Vulkan: other memory is moved to the
    /// host). The allocator then gives cached memory back before it grows beyond what [`Backend::budget`] leaves.
    ///
    /// [`Backend::budget`]: crate::Backend::budget
    pub oversubscribes: bool,
    /// The properties of its virtual memory, where [`Backend::virtual_memory`](crate::Backend::virtual_memory) returns
    /// it.
    pub pages: Option<PageCaps>,
    /// Whether [`Backend::stream_wait`](crate::Backend::stream_wait) returns device-side waits.
    pub stream_wait: bool,
    /// Whether [`Backend::host_memory`](crate::Backend::host_memory) returns host addresses.
    pub host_memory: bool,
    /// Whether [`Backend::transfer`](crate::Backend::transfer) returns fills and copies.
    pub transfer: bool,
    /// Whether [`Backend::budget`](crate::Backend::budget) returns a query for the memory left.
    pub budget: bool,
}

impl Caps {
    /// Returns when memory of a class that was freed on a stream may be handed out again on that stream. For the
    /// device's own memory that is [`Caps::reuse`]. The host may be the next to use host memory, and it is not bound by
    /// the order of a stream.
    ///
    /// # Panics
    ///
    /// Panics if the device has no such class.
    pub fn reuse_of(&self, class: crate::ClassId) -> Reuse {
        match self.class(class).kind {
            ClassKind::Device => self.reuse,
            ClassKind::Host => Reuse::AfterDone,
        }
    }

    /// Returns the class with that id.
    ///
    /// # Panics
    ///
    /// Panics if the device has no such class.
    pub fn class(&self, id: crate::ClassId) -> &Class {
        match self.classes.get(usize::from(id.0)) {
            Some(class) => class,
            None => panic!("class {} asked of a device that has {}", id.0, self.classes.len()),
        }
    }
}
