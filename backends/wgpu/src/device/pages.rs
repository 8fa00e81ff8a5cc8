//! Virtual memory and the budget, where segments come from the Vulkan backend, which has them.

use millpond_backend::{Backend, Budget, BudgetInfo, ClassId, LeftPage, StreamId, VirtualMemory};
use millpond_vulkan::Vulkan;

use super::Wgpu;
use crate::error::WgpuError;
use crate::memory::Segment;
use crate::open::{Page, Under, failed};

impl Wgpu {
    /// Returns the Vulkan backend that segments come from, if [`WgpuBuilder::vulkan_segments`] was set. Its statistics
    /// and its budget may be read. Buffers and submits go only through this device.
    ///
    /// For textures of wgpu in memory of Millpond's, make an allocator of it with the class `Vulkan::IMAGE`. Free the
    /// block of a texture when wgpu is done with it, in the callback of wgpu-hal's `texture_from_raw`. What a dropped
    /// allocator of this kind held goes back with `Vulkan::release_left`.
    ///
    /// [`WgpuBuilder::vulkan_segments`]: crate::WgpuBuilder::vulkan_segments
    pub fn vulkan(&self) -> Option<&Vulkan> {
        self.shared.memory.under.as_ref().map(|under| &under.vulkan)
    }

    /// Takes pages that a dropped allocator has left in these ranges.
    pub(super) fn leave_pages(&self, ranges: &[Segment], pages: Vec<LeftPage<Page>>) {
        pages.iter().for_each(|page| self.shared.memory.account.subtract(page.page.bytes()));
        self.under().leave(ranges.iter().map(Segment::backing), pages);
    }

    /// Returns the Vulkan backend, for calls that need it.
    fn under(&self) -> &Under {
        match &self.shared.memory.under {
            Some(under) => under,
            None => panic!("wgpu device {} has neither pages nor a budget: see its caps", self.serial()),
        }
    }
}

/// Ranges are sparse buffers. Mapping and unmapping are noted, and go to the driver before the next submit through
/// [`Wgpu`], which waits for them on the device.
impl VirtualMemory for Wgpu {
    type Segment = Segment;
    type Page = Page;
    type Error = WgpuError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, WgpuError> {
        let (memory, driver) = (&self.shared.memory, &self.shared.driver);
        driver.enter("reserve_range")?;
        let max = memory.caps.class(class).max_segment_bytes;
        if bytes > max {
            return Err(WgpuError::TooLarge { asked: bytes, max });
        }
        let (buffer, backing) = self.under().reserve_range(memory.usage, bytes)?;
        Ok(Segment::range(&memory.account, buffer, bytes, class, backing))
    }

    unsafe fn release_range(&self, range: Segment) {
        // SAFETY: the caller guarantees that nothing is mapped and no work touches it.
        unsafe { self.release(range) };
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, WgpuError> {
        let (memory, driver) = (&self.shared.memory, &self.shared.driver);
        driver.enter("create_page")?;
        memory.caps.class(class);
        let under = self.under();
        under.free_returned();
        let page = under.vulkan.create_page(ClassId::DEVICE, bytes).map_err(failed("create_page"))?;
        memory.account.add(bytes);
        Ok(page)
    }

    unsafe fn release_page(&self, page: Page) {
        self.shared.memory.account.subtract(page.bytes());
        // SAFETY: the caller guarantees that it is mapped nowhere and no work touches it.
        unsafe { self.under().vulkan.release_page(page) };
    }

    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), WgpuError> {
        self.shared.driver.enter("map")?;
        self.shared.streams.lane(stream);
        let under = self.under();
        // SAFETY: the caller guarantees that the addresses are unmapped, and that accesses are ordered if the page is
        // mapped elsewhere.
        let map = |segment: &_| unsafe { under.vulkan.map(segment, offset, page, under.stream) };
        range.backing().with(map).map_err(failed("map"))
    }

    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        self.shared.streams.lane(stream);
        let under = self.under();
        // SAFETY: the caller guarantees that the page is mapped there, and that no work touches it through these
        // addresses.
        range.backing().with(|segment| unsafe { under.vulkan.unmap(segment, offset, page, under.stream) });
    }
}

impl Budget for Wgpu {
    type Error = WgpuError;

    fn budget(&self, class: ClassId) -> Result<BudgetInfo, WgpuError> {
        self.shared.driver.enter("budget")?;
        self.shared.memory.caps.class(class);
        Budget::budget(&self.under().vulkan, ClassId::DEVICE).map_err(failed("budget"))
    }
}
