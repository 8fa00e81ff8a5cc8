//! A bare device on the bench, and the contract's unsafe verbs: the only file of the crate with unsafe code. What each
//! of these verbs asks of its caller is seen to here, so that the checks are safe code.

#![allow(unsafe_code)] // The contract's unsafe methods.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_backend::{Backend, Caps, ClassId, Point, StreamId, Tick, VirtualMemory};

use super::breach;
use crate::device::{DeviceUnderTest, Live, Need};
use crate::session::{Mover, Stop};

/// Streams that each check has.
const STREAMS: u32 = 3;

/// An opened device without an allocator, with some streams.
pub(super) struct Bench<'d, D: DeviceUnderTest> {
    pub(super) device: &'d D,
    backend: Arc<D::Backend>,
    pub(super) streams: Vec<StreamId>,
}

/// The backend's segment.
pub(super) type Segment<D> = <<D as DeviceUnderTest>::Backend as Backend>::Segment;
/// The backend's virtual memory.
type Virtual<'a, B> = dyn VirtualMemory<Segment = <B as Backend>::Segment, Page = <B as Backend>::Page, Error = <B as Backend>::Error>
    + 'a;

/// A range of addresses, and what is mapped in it: by offset, the number and the bytes of the page.
pub(super) struct Range<D: DeviceUnderTest> {
    pub(super) segment: Segment<D>,
    bytes: u64,
    mapped: BTreeMap<u64, u64>,
}

/// A page, and in how many places it is mapped.
pub(super) struct Page<D: DeviceUnderTest> {
    page: <D::Backend as Backend>::Page,
    bytes: u64,
    places: u32,
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

    /// The backend for a thread that may outlive the check, should it hang.
    pub(super) fn shared(&self) -> Arc<D::Backend> {
        Arc::clone(&self.backend)
    }

    pub(super) fn caps(&self) -> &Caps {
        self.backend.caps()
    }

    /// Every class that the device has.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassId> + use<D> {
        (0..self.caps().classes.len() as u16).map(ClassId)
    }

    /// What the device's author tells of memory in others' hands: counts, and bytes of class 0.
    pub(super) fn told(&self) -> (Option<Live>, Option<u64>) {
        (self.device.live(self.backend()), self.device.held_bytes(self.backend()))
    }

    /// Fills and copies, which the check has made sure are announced.
    pub(super) fn mover(&self) -> Result<&Mover<'_, D::Backend>, Stop> {
        let rule = "returns itself where Caps::transfer announces it";
        self.backend.transfer().ok_or_else(|| breach("Backend::transfer", "answers none", rule))
    }

    fn pages(&self) -> Result<&Virtual<'_, D::Backend>, Stop> {
        let rule = "returns itself where Caps::pages announces it";
        self.backend.virtual_memory().ok_or_else(|| breach("Backend::virtual_memory", "answers none", rule))
    }

    /// The size of the smallest page, in bytes.
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

    /// Gives a segment back when all work is done.
    pub(super) fn release(&self, segment: Segment<D>) -> Result<(), Stop> {
        self.finish()?;
        // SAFETY: all work of the bench's streams was waited for, no other has the device, and the segment goes.
        unsafe { self.backend.release(segment) };
        Ok(())
    }

    /// The stream's point: everything recorded so far.
    pub(super) fn point(&self, stream: StreamId) -> Point {
        Point { stream, tick: self.backend.mark(stream) }
    }

    /// What is reached on the stream.
    pub(super) fn reached(&self, stream: StreamId) -> Result<Tick, Stop> {
        let failed =
            |error| breach("Backend::reached", format!("{stream}: {error}"), "\"not yet\" is an answer, not an error");
        self.backend.reached(stream).map_err(failed)
    }

    /// Submits the stream and waits for all of it.
    pub(super) fn finish_stream(&self, stream: StreamId) -> Result<Tick, Stop> {
        let point = self.point(stream);
        self.device.submit(&self.backend, stream);
        let rule = "blocks until the point is reached or all submitted work of the stream is done, and returns what was reached";
        let reached =
            self.backend.wait(point).map_err(|error| breach("Backend::wait", format!("{point}: {error}"), rule))?;
        if reached < point.tick {
            let found = format!("{point} was marked and submitted, and a wait for it answers {reached}");
            return Err(breach("Backend::wait", found, rule));
        }
        Ok(reached)
    }

    /// Submits everything and waits for it.
    pub(super) fn finish(&self) -> Result<(), Stop> {
        self.streams.iter().try_for_each(|&stream| self.finish_stream(stream).map(drop))
    }

    pub(super) fn try_range(&self, bytes: u64) -> Result<Option<Range<D>>, Stop> {
        let segment = self.pages()?.reserve_range(ClassId::DEVICE, bytes).ok();
        Ok(segment.map(|segment| Range { segment, bytes, mapped: BTreeMap::new() }))
    }

    pub(super) fn range(&self, bytes: u64) -> Result<Range<D>, Stop> {
        let segment = self.pages()?.reserve_range(ClassId::DEVICE, bytes).map_err(|error| {
            let found = format!("{bytes} bytes of addresses are refused: {error}");
            breach("VirtualMemory::reserve_range", found, "reserves addresses with nothing behind them")
        })?;
        Ok(Range { segment, bytes, mapped: BTreeMap::new() })
    }

    /// Asks for a page as it comes.
    pub(super) fn try_page(&self, bytes: u64) -> Result<Result<Page<D>, <D::Backend as Backend>::Error>, Stop> {
        let page = self.pages()?.create_page(ClassId::DEVICE, bytes);
        Ok(page.map(|page| Page { page, bytes, places: 0 }))
    }

    pub(super) fn page(&self, bytes: u64) -> Result<Page<D>, Stop> {
        self.try_page(bytes)?.map_err(|error| {
            let found = format!("a page of {bytes} bytes is refused: {error}");
            breach("VirtualMemory::create_page", found, "creates physical memory, and fails only for want of it")
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
        // SAFETY: nothing is mapped there, a page that is mapped elsewhere may be, and a check uses one stream or waits.
        let mapped = unsafe { self.pages()?.map(&range.segment, offset, &page.page, self.streams[0]) };
        mapped.map_err(|error| {
            let found =
                format!("a page of {} bytes at offset {offset} of a range of {}: {error}", page.bytes, range.bytes);
            breach("VirtualMemory::map", found, "maps the whole page at the offset of the range")
        })?;
        range.mapped.insert(offset, page.bytes);
        page.places += 1;
        Ok(())
    }

    /// Takes a page away when all work is done.
    ///
    /// # Panics
    ///
    /// If it is not there: a mistake of the check.
    pub(super) fn unmap(&self, range: &mut Range<D>, offset: u64, page: &mut Page<D>) -> Result<(), Stop> {
        self.finish()?;
        assert_eq!(range.mapped.remove(&offset), Some(page.bytes), "the page is not there");
        page.places -= 1;
        // SAFETY: the page was mapped there, and all work was waited for.
        unsafe { self.pages()?.unmap(&range.segment, offset, &page.page, self.streams[0]) };
        Ok(())
    }

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

    /// The host sees these values at these offsets of a segment of so many bytes.
    pub(super) fn host_holds(&self, segment: &Segment<D>, bytes: u64, values: &[(u64, u8)]) -> Result<(), Stop> {
        for &(offset, value) in values {
            assert!(offset < bytes, "the check looks outside of the segment");
            let pointer = self.backend.host_memory().and_then(|memory| memory.host_address(segment));
            // SAFETY: the backend vouches for the pointer while the segment lives, and the segment has that many bytes; the
            // check has waited for the work that writes them.
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

    /// The host writes one byte of a segment that no work uses.
    pub(super) fn host_writes(&self, segment: &Segment<D>, offset: u64, value: u8) -> Result<(), Stop> {
        self.finish()?;
        if let Some(pointer) = self.backend.host_memory().and_then(|memory| memory.host_address(segment)) {
            // SAFETY: as for reading; the offset is the check's, inside of what it asked for, and all work is over.
            unsafe { pointer.as_ptr().add(offset as usize).write_volatile(value) };
        }
        Ok(())
    }
}
