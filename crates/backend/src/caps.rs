//! What a device is: facts that never change while the backend lives.

use alloc::string::String;
use alloc::vec::Vec;

/// Whose memory a class is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClassKind {
    /// The device's own memory.
    Device,
    /// Host memory that the device reaches directly (pinned, host-visible).
    Host,
}

/// One kind of memory that [`Backend::reserve`](crate::Backend::reserve) can supply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// What people call it, such as "device" or "pinned".
    pub name: String,
    /// Whose memory it is.
    pub kind: ClassKind,
    /// Every segment of the class starts at a multiple of this many bytes. A power of two.
    pub alignment: u64,
    /// The largest segment in bytes that one call may ask for (`u64::MAX` where only memory limits it).
    pub max_segment_bytes: u64,
    /// All bytes that the device has in this class, used or not.
    pub total_bytes: u64,
}

/// When memory freed on a stream may be handed out again *on the same stream*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reuse {
    /// At once: later work on the stream is ordered after earlier work.
    InOrder,
    /// Once the work recorded before the free was submitted: a tick below the current [`mark`](crate::Backend::mark).
    AfterSubmit,
    /// Once that work is done on the device.
    AfterDone,
}

/// Who ends a tick and begins the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The backend, whenever it is asked what was reached: marked work becomes reachable without anybody's help.
    Backend,
    /// The application's submit: a mark on work that was never submitted is never reached.
    Submit,
}

/// What a device with virtual memory offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageCaps {
    /// Pages are multiples of this many bytes, and are mapped at multiples of it. A power of two.
    pub granularity: u64,
    /// One page may be mapped at two addresses at the same time.
    pub aliasing: bool,
    /// Where pages may be mapped twice: when memory that was freed on a stream may be handed out again on the same
    /// stream **at another address**, through which the stream will use it.
    ///
    /// [`Reuse::InOrder`] says that order on the stream holds whatever addresses its work uses: at once on CUDA, and
    /// once the caller has placed a *global* memory barrier where [`Caps::needs_barrier`] asks for one (a barrier for
    /// one buffer does not cover what was written through another). [`Reuse::AfterSubmit`] is for devices that order
    /// the accesses within a submission buffer by buffer, and so know nothing of two buffers with the same memory
    /// (wgpu): work that is submitted later comes after work that was submitted earlier, and sees what it wrote.
    /// [`Reuse::AfterDone`] promises nothing. Whatever is said here, a device-side wait orders work at all addresses.
    pub alias_reuse: Reuse,
    /// Bytes of addresses that all ranges together can have (Vulkan's `sparseAddressSpaceSize`), `u64::MAX` where they
    /// are plentiful (CUDA). Where they are not, ranges are shorter, so that each stream gets some.
    pub address_bytes: u64,
}

impl PageCaps {
    /// Pages of that many bytes, a power of two, which may be mapped twice, where addresses are plentiful and streams
    /// keep their order at all of them.
    pub const fn new(granularity: u64) -> Self {
        Self { granularity, aliasing: true, alias_reuse: Reuse::InOrder, address_bytes: u64::MAX }
    }
}

/// The facts about a device. Constant for the life of a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caps {
    /// What people call the device.
    pub name: String,
    /// Its memory classes; entry 0 is the device's own memory.
    pub classes: Vec<Class>,
    /// When memory freed on a stream can be reused on that stream.
    pub reuse: Reuse,
    /// Unless reuse is [`Reuse::AfterDone`]: order on the stream holds only once the caller places a memory barrier
    /// between the last use and the first reuse (Vulkan: submission order alone is not a dependency). Where memory has
    /// pages, that is a global barrier: the last use may have been at another address.
    pub needs_barrier: bool,
    /// Who closes ticks.
    pub closing: Closing,
    /// Releasing a segment waits for the whole device (CUDA: `cuMemFree`).
    pub release_waits: bool,
    /// The driver goes on granting memory when the device is full, at a price (Vulkan: other memory is moved to the
    /// host). The allocator then gives cached memory back before it grows beyond what [`Backend::budget`] leaves.
    ///
    /// [`Backend::budget`]: crate::Backend::budget
    pub oversubscribes: bool,
    /// Virtual memory, where [`Backend::virtual_memory`](crate::Backend::virtual_memory) answers.
    pub pages: Option<PageCaps>,
    /// [`Backend::stream_wait`](crate::Backend::stream_wait) answers.
    pub stream_wait: bool,
    /// [`Backend::host_memory`](crate::Backend::host_memory) answers.
    pub host_memory: bool,
    /// [`Backend::transfer`](crate::Backend::transfer) answers.
    pub transfer: bool,
    /// [`Backend::budget`](crate::Backend::budget) answers.
    pub budget: bool,
}

impl Caps {
    /// When memory of a class that was freed on a stream may be handed out again on that stream: as [`Caps::reuse`]
    /// says of the device's own. The host may be the next to use its memory, and no stream's order holds for the host.
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn reuse_of(&self, class: crate::ClassId) -> Reuse {
        match self.class(class).kind {
            ClassKind::Device => self.reuse,
            ClassKind::Host => Reuse::AfterDone,
        }
    }

    /// The class with that id.
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn class(&self, id: crate::ClassId) -> &Class {
        match self.classes.get(usize::from(id.0)) {
            Some(class) => class,
            None => panic!("class {} asked of a device that has {}", id.0, self.classes.len()),
        }
    }
}
