//! A device opened for one check without an allocator, and safe wrappers of the contract's unsafe methods. This is the
//! only file of the crate with unsafe code: the wrappers meet the requirements of each method, so that the checks are
//! safe code.

#![allow(unsafe_code)] // The contract's unsafe methods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millpond_backend::{Backend, Caps, ClassId, Point, StreamId, Tick, VirtualMemory};

use super::{advised, breach};
use crate::device::{DeviceUnderTest, Live, Need};
use crate::session::{Mover, Stop};

/// The number of streams that each check has.
const STREAMS: u32 = 3;

/// What is asked of an unmap.
pub(super) const UNMAP_RULE: &str = "unmaps the page that map put at the offset";

/// An opened device without an allocator, with some streams.
pub(super) struct Bench<'d, D: DeviceUnderTest> {
    pub(super) device: &'d D,
    backend: Arc<D::Backend>,
    pub(super) streams: Vec<StreamId>,
}

/// The backend's segment.
pub(super) type Segment<D> = <<D as DeviceUnderTest>::Backend as Backend>::Segment;
/// The backend's virtual memory.
type Virtual<'a, B> = dyn VirtualMemory<Segment = <B as Backend>::Segment, Page = PageOf<B>, Error = FailureOf<B>> + 'a;
/// The backend's page.
type PageOf<B> = <B as Backend>::Page;
/// The driver's error.
type FailureOf<B> = <B as Backend>::Error;

/// A range of addresses, with the pages mapped in it: the size of each page in bytes, by its offset.
pub(super) struct Range<D: DeviceUnderTest> {
    pub(super) segment: Segment<D>,
    bytes: u64,
    mapped: BTreeMap<u64, u64>,
    /// The offsets where a page was mapped once and is no more.
    unmapped: BTreeSet<u64>,
}

/// A page, and the number of places where it is mapped.
pub(super) struct Page<D: DeviceUnderTest> {
    page: <D::Backend as Backend>::Page,
    bytes: u64,
    places: u32,
}

/// Returns what the device's author counts, for a message.
pub(super) fn told((live, bytes): (Option<Live>, Option<u64>)) -> String {
    let live =
        live.map(|Live { segments, pages, ranges }| format!("{segments} segments, {pages} pages and {ranges} ranges"));
    let all: Vec<String> = live.into_iter().chain(bytes.map(|bytes| format!("{bytes} bytes"))).collect();
    all.join(" with ")
}

impl<D: DeviceUnderTest> Range<D> {
    /// Returns whether a page was mapped there before, and unmapped.
    pub(super) fn was_unmapped(&self, offset: u64) -> bool {
        self.unmapped.contains(&offset)
    }
}

impl<'d, D: DeviceUnderTest> Bench<'d, D> {
    pub(super) fn open(device: &'d D) -> Result<Self, Stop> {
        let need = Need { streams: STREAMS, bytes: true, pages: false };
        let backend = device.open(&need).map_err(|missing| Stop::Skip(missing.0))?;
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            let stream = backend.create_stream();
            streams.push(stream.map_err(|error| Stop::Skip(format!("no further stream: {error}")))?);
        }
        Ok(Self { device, backend: Arc::new(backend), streams })
    }

    pub(super) fn backend(&self) -> &D::Backend {
        &self.backend
    }

    /// Returns the backend for a thread that may outlive the check if it hangs.
    pub(super) fn shared(&self) -> Arc<D::Backend> {
        Arc::clone(&self.backend)
    }

    pub(super) fn caps(&self) -> &Caps {
        self.backend.caps()
    }

    /// Returns the numbers of all classes of the device.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassId> + use<D> {
        (0..self.caps().classes.len() as u16).map(ClassId)
    }

    /// Returns what the device's author counts: the objects that callers hold, and the bytes of class 0 that they hold.
    pub(super) fn told(&self) -> (Option<Live>, Option<u64>) {
        (self.device.live(self.backend()), self.device.held_bytes(self.backend()))
    }

    /// Returns the fills and copies of a device that announces them, which the check has made sure of.
    pub(super) fn mover(&self) -> Result<&Mover<'_, D::Backend>, Stop> {
        let rule = "returns itself where Caps::transfer announces it";
        self.backend.transfer().ok_or_else(|| breach("Backend::transfer", "answers none", rule))
    }

    fn pages(&self) -> Result<&Virtual<'_, D::Backend>, Stop> {
        let rule = "returns itself where Caps::pages announces it";
        self.backend.virtual_memory().ok_or_else(|| breach("Backend::virtual_memory", "answers none", rule))
    }

    /// Returns the size of the smallest page, in bytes.
    pub(super) fn granularity(&self) -> u64 {
        self.caps().pages.map_or(1, |pages| pages.granularity)
    }

    pub(super) fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment<D>, Stop> {
        self.backend.reserve(class, bytes).map_err(|error| {
            let found = format!("{bytes} bytes of class {} are refused: {error}", class.0);
            breach(
                "Backend::reserve",
                found,
                "takes bytes of the class from the driver, and fails only for want of them",
            )
        })
    }

    /// Releases a segment after all work is done.
    pub(super) fn release(&self, segment: Segment<D>) -> Result<(), Stop> {
        self.finish()?;
        // SAFETY: all work of the bench's streams was waited for, the check alone uses the device, and the segment is
        // moved in and cannot be used again.
        unsafe { self.backend.release(segment) };
        Ok(())
    }

    /// Returns the stream's point, which covers everything recorded so far.
    pub(super) fn point(&self, stream: StreamId) -> Point {
        Point { stream, tick: self.backend.mark(stream) }
    }

    /// Returns the tick that the stream has reached.
    pub(super) fn reached(&self, stream: StreamId) -> Result<Tick, Stop> {
        let failed =
            |error| breach("Backend::reached", format!("{stream}: {error}"), "\"not yet\" is an answer, not an error");
        self.backend.reached(stream).map_err(failed)
    }

    /// Submits the work of the stream and waits for all of it.
    pub(super) fn finish_stream(&self, stream: StreamId) -> Result<Tick, Stop> {
        let point = self.point(stream);
        self.device.submit(&self.backend, stream);
        let rule = "blocks until the point is reached or all submitted work is done, and returns what was reached";
        let reached =
            self.backend.wait(point).map_err(|error| breach("Backend::wait", format!("{point}: {error}"), rule))?;
        if reached < point.tick {
            let found = format!("{point} was marked and submitted, and a wait for it answers {reached}");
            return Err(breach("Backend::wait", found, rule));
        }
        Ok(reached)
    }

    /// Submits the work of every stream and waits for it.
    pub(super) fn finish(&self) -> Result<(), Stop> {
        self.streams.iter().try_for_each(|&stream| self.finish_stream(stream).map(drop))
    }

    pub(super) fn try_range(&self, bytes: u64) -> Result<Option<Range<D>>, Stop> {
        let segment = self.pages()?.reserve_range(ClassId::DEVICE, bytes).ok();
        Ok(segment.map(|segment| Range { segment, bytes, mapped: BTreeMap::new(), unmapped: BTreeSet::new() }))
    }

    pub(super) fn range(&self, bytes: u64) -> Result<Range<D>, Stop> {
        let segment = self.pages()?.reserve_range(ClassId::DEVICE, bytes).map_err(|error| {
            let found = format!("{bytes} bytes of addresses are refused: {error}");
            breach("VirtualMemory::reserve_range", found, "reserves addresses with nothing behind them")
        })?;
        Ok(Range { segment, bytes, mapped: BTreeMap::new(), unmapped: BTreeSet::new() })
    }

    /// Asks the device for a page and returns its answer: the page, or the driver's error.
    pub(super) fn try_page(&self, bytes: u64) -> Result<Result<Page<D>, <D::Backend as Backend>::Error>, Stop> {
        let page = self.pages()?.create_page(ClassId::DEVICE, bytes);
        Ok(page.map(|page| Page { page, bytes, places: 0 }))
    }

    pub(super) fn page(&self, bytes: u64) -> Result<Page<D>, Stop> {
        self.try_page(bytes)?.map_err(|error| {
            let found = format!("a page of {bytes} bytes is refused: {error}");
            let rule =
                "creates physical memory of any multiple of PageCaps::granularity, and fails only for want of it";
            let advice = format!("announce the driver's own unit in Caps::pages: it says {}", self.granularity());
            advised(breach("VirtualMemory::create_page", found, rule), advice)
        })
    }

    /// Maps a page where nothing is mapped.
    ///
    /// # Panics
    ///
    /// If the check asks for what the contract does not allow: a mistake of the check.
    pub(super) fn map(&self, range: &mut Range<D>, offset: u64, page: &mut Page<D>) -> Result<(), Stop> {
        let end = offset + page.bytes;
        let below = range.mapped.range(..end).next_back();
        assert!(end <= range.bytes && below.is_none_or(|(at, bytes)| at + bytes <= offset), "the place is taken");
        let aliasing = self.caps().pages.is_some_and(|pages| pages.aliasing);
        assert!(aliasing || page.places == 0, "the device maps a page once");
        // SAFETY: the asserts above hold, so nothing is mapped there, and a page that is mapped elsewhere may be mapped
        // again on this device. The check orders the accesses to its places.
        let mapped = unsafe { self.pages()?.map(&range.segment, offset, &page.page, self.streams[0]) };
        mapped.map_err(|error| {
            let (verb, rule) = ("VirtualMemory::map", "maps the whole page at the offset of the range");
            let found = format!("a page of {} bytes at offset {offset} of {}: {error}", page.bytes, range.bytes);
            if range.unmapped.contains(&offset) {
                let found =
                    format!("a page was unmapped at offset {offset}, and the next one cannot be mapped: {error}");
                return breach("VirtualMemory::unmap", found, UNMAP_RULE);
            }
            match page.places {
                0 => breach(verb, found, rule),
                _ => advised(
                    breach(verb, format!("{found}; the page is mapped elsewhere too"), rule),
                    "if the driver maps a page once only, announce PageCaps::with_aliasing(false)",
                ),
            }
        })?;
        range.mapped.insert(offset, page.bytes);
        page.places += 1;
        Ok(())
    }

    /// Unmaps a page after all work is done.
    ///
    /// # Panics
    ///
    /// If the page is not mapped there: a mistake of the check.
    pub(super) fn unmap(&self, range: &mut Range<D>, offset: u64, page: &mut Page<D>) -> Result<(), Stop> {
        self.finish()?;
        assert_eq!(range.mapped.remove(&offset), Some(page.bytes), "the page is not there");
        range.unmapped.insert(offset);
        page.places -= 1;
        // SAFETY: the page was mapped there, and all work was waited for.
        unsafe { self.pages()?.unmap(&range.segment, offset, &page.page, self.streams[0]) };
        Ok(())
    }

    /// Releases a page after all work is done.
    ///
    /// # Panics
    ///
    /// If the page is mapped: a mistake of the check.
    pub(super) fn release_page(&self, page: Page<D>) -> Result<(), Stop> {
        self.finish()?;
        assert_eq!(page.places, 0, "the page is mapped");
        // SAFETY: the page is mapped nowhere, and all work was waited for.
        unsafe { self.pages()?.release_page(page.page) };
        Ok(())
    }

    /// Releases a range after all work is done.
    ///
    /// # Panics
    ///
    /// If anything is mapped in it: a mistake of the check.
    pub(super) fn release_range(&self, range: Range<D>) -> Result<(), Stop> {
        self.finish()?;
        assert_eq!(range.mapped.len(), 0, "something is mapped in the range");
        // SAFETY: nothing is mapped in it, and all work was waited for.
        unsafe { self.pages()?.release_range(range.segment) };
        Ok(())
    }

    /// Checks that the host sees these values at these offsets of a segment of `bytes` bytes.
    pub(super) fn host_holds(&self, segment: &Segment<D>, bytes: u64, values: &[(u64, u8)]) -> Result<(), Stop> {
        for &(offset, value) in values {
            assert!(offset < bytes, "the check looks outside of the segment");
            let pointer = self.backend.host_memory().and_then(|memory| memory.host_address(segment));
            // SAFETY: the backend guarantees that the pointer is valid for the whole segment until its release. The
            // assert keeps the offset inside of the segment's bytes, and the check has waited for the work that writes
            // them.
            let seen = pointer.map(|pointer| unsafe { pointer.as_ptr().add(offset as usize).read_volatile() });
            if seen != Some(value) {
                let found = format!(
                    "byte {offset} of {bytes} was written by work that was waited for with {value}, and is {seen:?}"
                );
                return Err(breach("HostMemory::host_address", found, "where the host sees the segment"));
            }
        }
        Ok(())
    }

    /// Writes one byte of a segment from the host. No work may use the segment.
    pub(super) fn host_writes(&self, segment: &Segment<D>, offset: u64, value: u8) -> Result<(), Stop> {
        self.finish()?;
        if let Some(pointer) = self.backend.host_memory().and_then(|memory| memory.host_address(segment)) {
            // SAFETY: the backend guarantees the pointer as for reading. The check gives an offset inside of the size
            // that it asked for, and all work was waited for.
            unsafe { pointer.as_ptr().add(offset as usize).write_volatile(value) };
        }
        Ok(())
    }
}
