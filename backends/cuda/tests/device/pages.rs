use millpond_backend::{Backend, BackendError, ClassId, Fault, Transfer, VirtualMemory};
use millpond_cuda::cudarc::driver::sys;
use millpond_cuda::testing::{Cuda, Planned};
use millpond_cuda::{CudaError, Misuse, Named, Page, Role, Segment};

use crate::lab::{device, finish, read};

/// A device with virtual memory, and its granularity.
fn paged() -> Option<(Cuda, u64)> {
    let cuda = device()?;
    let granularity = cuda.caps().pages.map(|pages| pages.granularity);
    let Some(granularity) = granularity else {
        eprintln!("SKIPPED: the device has no virtual memory");
        return None;
    };
    Some((cuda, granularity))
}

fn range(cuda: &Cuda, bytes: u64) -> Segment {
    cuda.reserve_range(ClassId::DEVICE, bytes).unwrap()
}

fn page(cuda: &Cuda, bytes: u64) -> Page {
    cuda.create_page(ClassId::DEVICE, bytes).unwrap()
}

#[test]
fn a_page_keeps_its_bytes_wherever_it_is_mapped() {
    let Some((cuda, unit)) = paged() else { return };
    let stream = cuda.create_stream().unwrap();
    let (range, first, second) = (range(&cuda, 8 * unit), page(&cuda, unit), page(&cuda, 2 * unit));
    assert_eq!(cuda.held_bytes(), 3 * unit);
    // SAFETY: each target is unmapped; where a page is mapped twice, it is only read.
    unsafe {
        cuda.map(&range, 0, &first, stream).unwrap();
        cuda.map(&range, unit, &second, stream).unwrap();
        cuda.fill(stream, &range, unit - 64, 128, 5).unwrap();
        cuda.map(&range, 4 * unit, &first, stream).unwrap();
        assert_eq!(read(&cuda, stream, &range, 5 * unit - 64, 64), [5; 64], "two addresses, one page");
        finish(&cuda, stream);
        cuda.unmap(&range, 0, &first, stream);
        cuda.unmap(&range, unit, &second, stream);
        cuda.map(&range, 5 * unit, &second, stream).unwrap();
        assert_eq!(read(&cuda, stream, &range, 5 * unit - 64, 128), [5; 128]);
        cuda.unmap(&range, 4 * unit, &first, stream);
        cuda.unmap(&range, 5 * unit, &second, stream);
        cuda.release_page(first);
        cuda.release_page(second);
        cuda.release_range(range);
    }
    assert_eq!(cuda.held_bytes(), 0);
}

/// What the driver says of the memory itself, whoever made it: of pages for this process, and of pages for others.
#[test]
fn pages_can_be_registered_for_rdma_where_the_device_can() {
    let Some((cuda, unit)) = paged() else { return };
    let mut can = 0;
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    // SAFETY: the pointer is to a local number, and the attribute is one of the header's.
    let asked = unsafe { sys::cuDeviceGetAttribute(&raw mut can, attribute, cuda.context().cu_device()) };
    assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
    assert_eq!(cuda.info().rdma_pages, can != 0);
    let others = Cuda::builder().shareable_pages(true).build().unwrap();
    for cuda in [&cuda, &others] {
        let page = page(cuda, unit);
        assert_eq!(is_for_rdma(&page), can != 0, "the attribute is {can}");
        // SAFETY: it is mapped nowhere.
        unsafe { cuda.release_page(page) };
    }
    eprintln!("pages for RDMA: {}", can != 0);
}

/// Returns whether network cards can be given access to a page, as the driver has it.
fn is_for_rdma(page: &Page) -> bool {
    // SAFETY: all zeros is a value of this plain structure of the header's.
    let mut made: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local structure, and the page is alive.
    let asked = unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&raw mut made, page.handle()) };
    assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
    made.allocFlags.gpuDirectRDMACapable != 0
}

#[test]
fn a_page_that_cannot_be_opened_is_not_mapped() {
    let Some((cuda, unit)) = paged() else { return };
    let stream = cuda.create_stream().unwrap();
    let (range, page) = (range(&cuda, unit), page(&cuda, unit));
    for (nth, call) in [(1, "cuMemMap"), (2, "cuMemSetAccess")] {
        cuda.fail_nth(nth, Fault::OutOfMemory);
        // SAFETY: the target is unmapped, also after a failure.
        let error = unsafe { cuda.map(&range, 0, &page, stream) }.unwrap_err();
        assert_eq!(error, CudaError::Planned(Planned { call, fault: Fault::OutOfMemory }));
        let unmapped = CudaError::Misuse(Misuse::Unmapped { address: range.address(), bytes: 1 });
        assert_eq!(cuda.fill(stream, &range, 0, 1, 0), Err(unmapped));
    }
    // SAFETY: as above; no work is in progress there when it is unmapped.
    unsafe {
        cuda.map(&range, 0, &page, stream).expect("nothing is in the way");
        cuda.fill(stream, &range, 0, unit, 3).unwrap();
        finish(&cuda, stream);
        cuda.unmap(&range, 0, &page, stream);
        cuda.release_page(page);
        cuda.release_range(range);
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_numbers() {
    let Some((cuda, unit)) = paged() else { return };
    let stream = cuda.create_stream().unwrap();
    let misaligned = |call| {
        CudaError::Misuse(Misuse::Misaligned { call, what: None, value: unit + 1, multiple: unit, multiple_is: None })
    };
    assert_eq!(cuda.reserve_range(ClassId::DEVICE, unit + 1).unwrap_err(), misaligned("cuMemAddressReserve"));
    assert_eq!(cuda.create_page(ClassId::DEVICE, unit + 1).unwrap_err(), misaligned("cuMemCreate"));
    assert_eq!(
        cuda.create_page(ClassId(1), unit).unwrap_err(),
        CudaError::Misuse(Misuse::NoPages { class: ClassId(1) })
    );
    let (range, first, second) = (range(&cuda, 2 * unit), page(&cuda, unit), page(&cuda, unit));
    let segment = cuda.reserve(ClassId::DEVICE, unit).unwrap();
    // SAFETY: no work touches any of it.
    unsafe {
        cuda.map(&range, 0, &first, stream).unwrap();
        let taken = CudaError::Misuse(Misuse::AlreadyMapped { address: range.address(), bytes: unit });
        assert_eq!(cuda.map(&range, 0, &second, stream), Err(taken));
        let outside = CudaError::Misuse(Misuse::OutOfRange {
            call: None,
            role: Some(Role { name: "range", device: 0 }),
            offset: 2 * unit,
            bytes: unit,
            segment_bytes: 2 * unit,
        });
        assert_eq!(cuda.map(&range, 2 * unit, &second, stream), Err(outside));
        let no_range = CudaError::Misuse(Misuse::NotARange { segment: Named::Address(segment.address()) });
        assert_eq!(cuda.map(&segment, 0, &second, stream), Err(no_range));
        let across = CudaError::Misuse(Misuse::Unmapped { address: range.address() + unit - 1, bytes: 2 });
        assert_eq!(cuda.fill(stream, &range, unit - 1, 2, 0), Err(across));
        cuda.unmap(&range, 0, &first, stream);
        cuda.release_page(first);
        cuda.release_page(second);
        cuda.release_range(range);
        cuda.release(segment);
    }
}

#[test]
fn more_than_there_is_is_out_of_memory() {
    let Some((cuda, unit)) = paged() else { return };
    let too_much = cuda.info().total_bytes.next_multiple_of(unit) + unit;
    for error in
        [cuda.create_page(ClassId::DEVICE, too_much).unwrap_err(), cuda.reserve(ClassId::DEVICE, too_much).unwrap_err()]
    {
        assert_eq!(error.fault(), Fault::OutOfMemory, "{error}");
        assert!(matches!(error, CudaError::OutOfMemory { asked, .. } if asked == too_much), "{error:?}");
    }
    assert_eq!(cuda.held_bytes(), 0);
}
