//! A device with a range, for tests that move pages.

use std::cell::RefCell;
use std::collections::BTreeMap;

use millpond_backend::{Backend, ClassId, Point, StreamId, Transfer, VirtualMemory};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Page, Segment, Vulkan};

use crate::lab::{self, skip};

/// The page granularity of the tests, in bytes: small pages make fast tests, and devices that need larger ones get
/// them.
const GRANULARITY: u64 = 64 << 10;

/// An open device with a stream and a page size.
pub(crate) struct Lab {
    pub(crate) device: lab::Lab,
    pub(crate) stream: StreamId,
    pub(crate) page: u64,
    /// The mapped pages, by range and granule.
    mapped: RefCell<BTreeMap<(vk::Buffer, u64), vk::DeviceMemory>>,
}

/// Opens the first device, with small pages.
pub(crate) fn open() -> Option<lab::Lab> {
    lab::Lab::build(Vulkan::builder().page_granularity(GRANULARITY))
}

impl Lab {
    /// Opens a device with virtual memory, if there is one.
    pub(crate) fn open() -> Option<Lab> {
        let device = open()?;
        let Some(pages) = device.caps().pages else {
            skip("sparse", &format!("{} has no sparse binding", device.caps().name));
            return None;
        };
        let stream = device.create_stream().unwrap();
        Some(Lab { device, stream, page: pages.granularity, mapped: RefCell::default() })
    }

    pub(crate) fn range(&self, pages: u64) -> Segment {
        self.device.reserve_range(ClassId::DEVICE, pages * self.page).unwrap()
    }

    /// Creates pages of one granule each.
    pub(crate) fn pages(&self, count: usize) -> Vec<Page> {
        (0..count).map(|_| self.device.create_page(ClassId::DEVICE, self.page).unwrap()).collect()
    }

    /// Maps a page at the `at`th granule.
    pub(crate) fn map(&self, range: &Segment, at: u64, page: &Page) {
        // SAFETY: the tests map where nothing is mapped, and order their accesses on the stream.
        unsafe { self.device.map(range, at * self.page, page, self.stream) }.unwrap();
        self.mapped.borrow_mut().insert((range.buffer(), at), page.memory());
    }

    /// Unmaps the page at the `at`th granule.
    pub(crate) fn unmap(&self, range: &Segment, at: u64, page: &Page) {
        let was = self.mapped.borrow_mut().remove(&(range.buffer(), at));
        assert_eq!(was, Some(page.memory()), "the test unmaps what is not there");
        // SAFETY: the tests unmap what they mapped there, and have waited for the work that touched it.
        unsafe { self.device.unmap(range, at * self.page, page, self.stream) }
    }

    /// Fills the `at`th granule on the device.
    pub(crate) fn fill(&self, range: &Segment, at: u64, value: u8) {
        self.device.fill(self.stream, range, at * self.page, self.page, value).unwrap();
    }

    /// Submits and waits.
    pub(crate) fn finish(&self) {
        let point = Point { stream: self.stream, tick: self.device.submit(self.stream).unwrap() };
        assert_eq!(self.device.wait(point).unwrap(), point.tick);
    }

    /// Returns the one value that all bytes of the `at`th granule have.
    pub(crate) fn value(&self, range: &Segment, at: u64) -> u8 {
        let mut bytes = vec![0; self.page as usize];
        self.device.download(self.stream, range, at * self.page, &mut bytes).unwrap();
        let odd = bytes.iter().position(|byte| *byte != bytes[0]);
        assert_eq!(odd, None, "granule {at} has bytes of two values, {} first", bytes[0]);
        bytes[0]
    }

    /// Gives everything back, closes the device, and asserts that the validation layer reported no error.
    pub(crate) fn close(self, ranges: Vec<Segment>, pages: Vec<Page>) {
        let left: Vec<_> = self.mapped.borrow().iter().map(|(&place, &page)| (place, page)).collect();
        for ((buffer, at), memory) in left {
            let range = ranges.iter().find(|range| range.buffer() == buffer).expect("the range is given back too");
            let page = pages.iter().find(|page| page.memory() == memory).expect("the page is given back too");
            self.unmap(range, at, page);
        }
        for page in pages {
            // SAFETY: the work is done, and the page is unmapped.
            unsafe { self.device.release_page(page) };
        }
        for range in ranges {
            // SAFETY: the work is done, no more is recorded, and nothing is mapped there.
            unsafe { self.device.release_range(range) };
        }
        self.end();
    }

    /// Closes the device with everything that is left of it, and asserts that the validation layer reported no error.
    pub(crate) fn end(self) {
        assert_eq!(self.device.close(), [""; 0]);
    }
}
