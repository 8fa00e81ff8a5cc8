//! The facts about a device, which never change while the backend lives.

use alloc::string::String;
use alloc::vec::Vec;

/// The owner of a class of memory.
///
/// A program that matches it needs an arm for kinds that a later version adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClassKind {
    /// The device's own memory.
    Device,
    /// Host memory that the device accesses directly (pinned, host-visible).
    Host,
}

impl ClassKind {
    /// Returns the word for people and files: `device` or `host`.
    pub const fn name(self) -> &'static str {
        match self {
            ClassKind::Device => "device",
            ClassKind::Host => "host",
        }
    }
}

/// One kind of memory that [`Backend::reserve`](crate::Backend::reserve) can supply. [`Class::new`] creates it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
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

impl Class {
    /// Creates a class of `total_bytes`. By default a segment may start at any byte, and only the memory limits its
    /// size.
    pub fn new(kind: ClassKind, name: impl Into<String>, total_bytes: u64) -> Self {
        Self { name: name.into(), kind, alignment: 1, max_segment_bytes: u64::MAX, total_bytes }
    }

    /// Sets [`alignment`](Self::alignment), in bytes.
    #[must_use]
    pub const fn with_alignment(mut self, bytes: u64) -> Self {
        self.alignment = bytes;
        self
    }

    /// Sets [`max_segment_bytes`](Self::max_segment_bytes).
    #[must_use]
    pub const fn with_max_segment_bytes(mut self, bytes: u64) -> Self {
        self.max_segment_bytes = bytes;
        self
    }
}

/// When memory freed on a stream may be handed out again *on the same stream*: the later, the greater.
///
/// It is exhaustive on purpose: whoever acts on it must decide about each value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reuse {
    /// At once, because later work on the stream is ordered after earlier work.
    InOrder,
    /// Once the work recorded before the free was submitted: a tick below the current [`mark`](crate::Backend::mark).
    AfterSubmit,
    /// Once that work is done on the device.
    AfterDone,
}

/// The side that ends a tick and begins the next. It is exhaustive for the reason of [`Reuse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The backend, whenever it is asked what was reached: marked work can then be reached without an action of the
    /// caller.
    Backend,
    /// The application's submit: a mark on work that was never submitted is never reached.
    Submit,
}

/// The properties of a device's virtual memory. [`PageCaps::new`] creates them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
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

    /// Sets [`aliasing`](Self::aliasing).
    #[must_use]
    pub const fn with_aliasing(mut self, aliasing: bool) -> Self {
        self.aliasing = aliasing;
        self
    }

    /// Sets [`alias_reuse`](Self::alias_reuse).
    #[must_use]
    pub const fn with_alias_reuse(mut self, reuse: Reuse) -> Self {
        self.alias_reuse = reuse;
        self
    }

    /// Sets [`address_bytes`](Self::address_bytes).
    #[must_use]
    pub const fn with_address_bytes(mut self, bytes: u64) -> Self {
        self.address_bytes = bytes;
        self
    }

    /// Sets [`mappings`](Self::mappings).
    #[must_use]
    pub const fn with_mappings(mut self, mappings: u64) -> Self {
        self.mappings = mappings;
        self
    }
}

/// The facts about a device. Constant for the life of a backend. [`Caps::new`] creates them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
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
    /// Creates the facts about a device that can only do what every device must. Entry 0 of `classes` is the device's
    /// own memory.
    ///
    /// Each further fact has a method that begins with `with_` and ends with the name of its field. A field that a
    /// later version adds gets a default that keeps a backend correct which says nothing of it.
    ///
    /// ```
    /// use millpond_backend::{Caps, Class, ClassKind, Closing, PageCaps, Reuse};
    ///
    /// let memory = Class::new(ClassKind::Device, "device", 16 << 30).with_alignment(256);
    /// let caps = Caps::new("my device", vec![memory], Reuse::InOrder, Closing::Backend)
    ///     .with_transfer(true)
    ///     .with_pages(Some(PageCaps::new(2 << 20).with_aliasing(false)));
    /// assert!(caps.transfer && !caps.budget);
    /// ```
    pub fn new(name: impl Into<String>, classes: Vec<Class>, reuse: Reuse, closing: Closing) -> Self {
        Self {
            name: name.into(),
            classes,
            reuse,
            needs_barrier: false,
            closing,
            release_waits: false,
            oversubscribes: false,
            pages: None,
            stream_wait: false,
            host_memory: false,
            transfer: false,
            budget: false,
        }
    }

    /// Sets [`needs_barrier`](Self::needs_barrier). The default is `false`.
    #[must_use]
    pub const fn with_needs_barrier(mut self, needs_barrier: bool) -> Self {
        self.needs_barrier = needs_barrier;
        self
    }

    /// Sets [`release_waits`](Self::release_waits). The default is `false`.
    #[must_use]
    pub const fn with_release_waits(mut self, release_waits: bool) -> Self {
        self.release_waits = release_waits;
        self
    }

    /// Sets [`oversubscribes`](Self::oversubscribes). The default is `false`.
    #[must_use]
    pub const fn with_oversubscribes(mut self, oversubscribes: bool) -> Self {
        self.oversubscribes = oversubscribes;
        self
    }

    /// Announces virtual memory, or that there is none, which is the default: [`pages`](Self::pages).
    #[must_use]
    pub const fn with_pages(mut self, pages: Option<PageCaps>) -> Self {
        self.pages = pages;
        self
    }

    /// Sets whether [`stream_wait`](Self::stream_wait) is announced. The default is `false`.
    #[must_use]
    pub const fn with_stream_wait(mut self, stream_wait: bool) -> Self {
        self.stream_wait = stream_wait;
        self
    }

    /// Sets whether [`host_memory`](Self::host_memory) is announced. The default is `false`.
    #[must_use]
    pub const fn with_host_memory(mut self, host_memory: bool) -> Self {
        self.host_memory = host_memory;
        self
    }

    /// Sets whether [`transfer`](Self::transfer) is announced. The default is `false`.
    #[must_use]
    pub const fn with_transfer(mut self, transfer: bool) -> Self {
        self.transfer = transfer;
        self
    }

    /// Sets whether [`budget`](Self::budget) is announced. The default is `false`.
    #[must_use]
    pub const fn with_budget(mut self, budget: bool) -> Self {
        self.budget = budget;
        self
    }

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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn each_setter_sets_its_own_fact() {
        let class = Class::new(ClassKind::Host, "pinned", 100);
        assert_eq!((class.name.as_str(), class.kind, class.total_bytes), ("pinned", ClassKind::Host, 100));
        assert_eq!((class.alignment, class.max_segment_bytes), (1, u64::MAX));
        let class = class.with_alignment(256).with_max_segment_bytes(50);
        assert_eq!((class.alignment, class.max_segment_bytes), (256, 50));

        let pages = PageCaps::new(4096).with_aliasing(false).with_alias_reuse(Reuse::AfterDone);
        let pages = pages.with_address_bytes(1 << 40).with_mappings(9);
        assert_eq!((pages.granularity, pages.aliasing, pages.alias_reuse), (4096, false, Reuse::AfterDone));
        assert_eq!((pages.address_bytes, pages.mappings), (1 << 40, 9));

        let plain = Caps::new("it", vec![class], Reuse::InOrder, Closing::Submit);
        let flags = |caps: &Caps| {
            let abilities = [caps.stream_wait, caps.host_memory, caps.transfer, caps.budget];
            ([caps.needs_barrier, caps.release_waits, caps.oversubscribes], abilities, caps.pages.is_some())
        };
        assert_eq!(flags(&plain), ([false; 3], [false; 4], false));
        let of = |set: fn(Caps) -> Caps| flags(&set(plain.clone()));
        assert_eq!(of(|caps| caps.with_needs_barrier(true)), ([true, false, false], [false; 4], false));
        assert_eq!(of(|caps| caps.with_release_waits(true)), ([false, true, false], [false; 4], false));
        assert_eq!(of(|caps| caps.with_oversubscribes(true)), ([false, false, true], [false; 4], false));
        assert_eq!(of(|caps| caps.with_stream_wait(true)), ([false; 3], [true, false, false, false], false));
        assert_eq!(of(|caps| caps.with_host_memory(true)), ([false; 3], [false, true, false, false], false));
        assert_eq!(of(|caps| caps.with_transfer(true)), ([false; 3], [false, false, true, false], false));
        assert_eq!(of(|caps| caps.with_budget(true)), ([false; 3], [false, false, false, true], false));
        assert_eq!(plain.with_pages(Some(pages)).pages, Some(pages));
    }
}
