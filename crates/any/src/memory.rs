//! Segments and pages of a device of any backend, and the way back to those of one.

use millpond_backend::{Backend, ClassId};

use crate::macros::{erased, on};

erased! {
    /// A segment of an [`AnyDevice`](crate::AnyDevice): one driver allocation, or one reserved range of addresses.
    ///
    /// The typed segment has what only one backend has, such as the `VkBuffer` of Vulkan's.
    AnySegment:
    millpond_sim::Segment, millpond_cuda::Segment, millpond_vulkan::Segment, millpond_wgpu::Segment
}

impl AnySegment {
    /// Returns its length in bytes (for a range: of addresses).
    pub fn bytes(&self) -> u64 {
        on!(self, AnySegment(segment) => segment.bytes())
    }

    /// Returns the class that it was taken from.
    pub fn class(&self) -> ClassId {
        on!(self, AnySegment(segment) => segment.class())
    }
}

erased! {
    /// A page of an [`AnyDevice`](crate::AnyDevice): one handle of physical memory.
    AnyPage:
    millpond_sim::Page, millpond_cuda::Page, millpond_vulkan::Page, millpond_wgpu::Page
}

/// A backend whose memory an [`AnySegment`] and an [`AnyPage`] may be.
///
/// The allocator gives what it got from a device to devices of the same backend only. All methods but `try_segment`
/// panic if the memory is of another one, which is a defect of the caller.
pub(crate) trait Known: Backend {
    /// Returns the backend's own segment.
    fn take_segment(&self, segment: AnySegment) -> Self::Segment;

    /// Returns the backend's own segment by reference, or `None` for one of another backend.
    fn try_segment<'s>(&self, segment: &'s AnySegment) -> Option<&'s Self::Segment>;

    /// Returns the backend's own page.
    fn take_page(&self, page: AnyPage) -> Self::Page;

    /// Returns the backend's own page by reference.
    fn page<'p>(&self, page: &'p AnyPage) -> &'p Self::Page;

    /// Returns the backend's own segment by reference.
    #[inline]
    fn segment<'s>(&self, segment: &'s AnySegment) -> &'s Self::Segment {
        self.try_segment(segment).unwrap_or_else(|| strange("segment", segment.backend_name()))
    }
}

/// Implements [`Known`] for the backend of one variant.
macro_rules! known {
    ($feature:literal, $variant:ident, $backend:ty) => {
        #[cfg(feature = $feature)]
        #[allow(unreachable_patterns, reason = "it may be the only device that is built in")]
        impl Known for $backend {
            fn take_segment(&self, segment: AnySegment) -> Self::Segment {
                match segment {
                    AnySegment::$variant(segment) => segment,
                    other => strange("segment", other.backend_name()),
                }
            }

            #[inline]
            fn try_segment<'s>(&self, segment: &'s AnySegment) -> Option<&'s Self::Segment> {
                match segment {
                    AnySegment::$variant(segment) => Some(segment),
                    _ => None,
                }
            }

            fn take_page(&self, page: AnyPage) -> Self::Page {
                match page {
                    AnyPage::$variant(page) => page,
                    other => strange("page", other.backend_name()),
                }
            }

            fn page<'p>(&self, page: &'p AnyPage) -> &'p Self::Page {
                match page {
                    AnyPage::$variant(page) => page,
                    other => strange("page", other.backend_name()),
                }
            }
        }
    };
}

known!("sim", Sim, millpond_sim::Sim);
known!("cuda", Cuda, millpond_cuda::Cuda);
known!("vulkan", Vulkan, millpond_vulkan::Vulkan);
known!("wgpu", Wgpu, millpond_wgpu::Wgpu);

#[cold]
fn strange(what: &str, backend: &str) -> ! {
    panic!("a {what} of a {backend} device was given to a device of another backend")
}
