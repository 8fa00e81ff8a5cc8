//! Pages as file descriptors: exported, and imported as by another process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use millpond::{Allocator, Keep};
use millpond_backend::{Backend, ClassId, Fault, StreamId, Transfer, VirtualMemory};
use millpond_cuda::testing::{Cuda, Planned};
use millpond_cuda::{CudaError, Misuse, Page, Segment, SharedRun};

use crate::lab::{device, finish, read};

/// A device whose pages can be shared, and their granularity.
fn sharing() -> Option<(Cuda, u64)> {
    let plain = device()?;
    if !plain.info().shareable_pages || !plain.info().virtual_memory {
        eprintln!("SKIPPED: the device has no pages that can be shared");
        return None;
    }
    let cuda = Cuda::builder().shareable_pages(true).build().unwrap();
    let granularity = cuda.caps().pages.expect("it has virtual memory").granularity;
    Some((cuda, granularity))
}

/// Pages of these sizes, one behind another.
struct Run {
    range: Segment,
    pages: Vec<(u64, Page)>,
}

impl Run {
    fn new(cuda: &Cuda, stream: StreamId, sizes: &[u64]) -> Run {
        let range = cuda.reserve_range(ClassId::DEVICE, sizes.iter().sum()).unwrap();
        let (mut offset, mut pages) = (0, Vec::new());
        for &bytes in sizes {
            let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
            // SAFETY: nothing is mapped there.
            unsafe { cuda.map(&range, offset, &page, stream) }.unwrap();
            pages.push((offset, page));
            offset += bytes;
        }
        Run { range, pages }
    }

    fn end(self, cuda: &Cuda, stream: StreamId) {
        finish(cuda, stream);
        // SAFETY: all work was waited for.
        unsafe {
            for (offset, page) in self.pages {
                cuda.unmap(&self.range, offset, &page, stream);
                cuda.release_page(page);
            }
            cuda.release_range(self.range);
        }
    }
}

fn descriptors(run: &SharedRun) -> Vec<(BorrowedFd<'_>, u64)> {
    run.pages.iter().map(|page| (page.descriptor.as_fd(), page.bytes)).collect()
}

/// Returns the number of open files, where the system says it.
fn open_files() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count())
}

#[test]
fn what_is_imported_is_the_same_memory() {
    let Some((cuda, unit)) = sharing() else { return };
    let stream = cuda.create_stream().unwrap();
    let run = Run::new(&cuda, stream, &[unit, 2 * unit, unit]);
    let files = open_files();
    cuda.fill(stream, &run.range, 0, 4 * unit, 3).unwrap();
    cuda.fill(stream, &run.range, 3 * unit - 8, 16, 7).unwrap();
    let shared = cuda.export(run.range.address() + 3 * unit - 8, 16).unwrap();
    assert_eq!(shared.offset, 2 * unit - 8);
    assert_eq!(shared.pages.iter().map(|page| page.bytes).collect::<Vec<_>>(), [2 * unit, unit]);
    assert_ne!(shared.pages[0].number, shared.pages[1].number);
    let again = cuda.export(run.range.address() + 3 * unit, 1).unwrap();
    assert_eq!((again.offset, again.pages.len()), (0, 1));
    assert_eq!(again.pages[0].descriptor.as_raw_fd(), shared.pages[1].descriptor.as_raw_fd(), "one file for a page");
    assert_eq!(open_files(), files.map(|files| files + 2));

    let held = cuda.held_bytes();
    let imported = cuda.import(&descriptors(&shared)).unwrap();
    assert_eq!((imported.bytes(), cuda.held_bytes()), (3 * unit, held));
    assert_ne!(imported.address(), run.range.address());
    finish(&cuda, stream);
    let bytes = read(&cuda, stream, imported.segment(), shared.offset - 1, 18);
    assert_eq!((bytes[0], &bytes[1..17], bytes[17]), (3, &[7; 16][..], 3));
    cuda.fill(stream, imported.segment(), 0, 3 * unit, 5).unwrap();
    let ends = [unit - 1, unit, 4 * unit - 1].map(|at| read(&cuda, stream, &run.range, at, 1)[0]);
    assert_eq!(ends, [3, 5, 5], "the first page was not shared");
    assert_eq!(cuda.import(&[]).unwrap_err(), CudaError::Misuse(Misuse::Empty { call: "cuMemAddressReserve" }));
    finish(&cuda, stream);
    // SAFETY: all work was waited for.
    unsafe { cuda.end_import(imported) };
    drop((shared, again));
    assert_eq!(open_files(), files.map(|files| files + 2), "the pages keep theirs");
    run.end(&cuda, stream);
    assert_eq!(open_files(), files, "released pages have none");
    assert_eq!(cuda.held_bytes(), 0);
}

#[test]
fn imported_memory_outlives_the_page() {
    let Some((cuda, unit)) = sharing() else { return };
    let stream = cuda.create_stream().unwrap();
    let run = Run::new(&cuda, stream, &[unit]);
    cuda.fill(stream, &run.range, 0, unit, 9).unwrap();
    let shared = cuda.export(run.range.address(), unit).unwrap();
    let imported = cuda.import(&descriptors(&shared)).unwrap();
    drop(shared);
    run.end(&cuda, stream);
    let other = Run::new(&cuda, stream, &[unit]);
    cuda.fill(stream, &other.range, 0, unit, 1).unwrap();
    assert_eq!(read(&cuda, stream, imported.segment(), unit - 1, 1), [9]);
    other.end(&cuda, stream);
    // It goes with the device.
    drop(imported);
}

#[test]
fn a_page_that_cannot_be_imported_leaves_nothing() {
    let Some((cuda, unit)) = sharing() else { return };
    let stream = cuda.create_stream().unwrap();
    let run = Run::new(&cuda, stream, &[unit, unit]);
    cuda.fail_nth(1, Fault::Other);
    let planned = |call| CudaError::Planned(Planned { call, fault: Fault::Other });
    assert_eq!(cuda.export(run.range.address(), 1).unwrap_err(), planned("cuMemExportToShareableHandle"));
    let shared = cuda.export(run.range.address(), 2 * unit).unwrap();
    let files = open_files();
    let pages = descriptors(&shared);
    // A range, and of each page the import, the mapping and the access.
    let calls = ["cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"];
    for (nth, call) in ["cuMemAddressReserve"].into_iter().chain(calls).chain(calls).enumerate() {
        cuda.fail_nth(nth as u64 + 1, Fault::Other);
        assert_eq!(cuda.import(&pages).unwrap_err(), planned(call), "call {nth}");
    }
    let no_page = std::fs::File::open("/dev/null").unwrap();
    let error = cuda.import(&[pages[0], (no_page.as_fd(), unit)]).unwrap_err();
    let number = no_page.as_raw_fd();
    assert!(
        matches!(error, CudaError::NotImported { device: 0, descriptor, bytes, .. }
        if descriptor == number && bytes == unit),
        "{error:?}"
    );
    let error = cuda.import(&[(pages[0].0, 2 * unit)]).unwrap_err();
    assert!(matches!(error, CudaError::NotImported { call: "cuMemMap", bytes, .. } if bytes == 2 * unit), "{error:?}");
    let misaligned = Misuse::Misaligned {
        call: "cuMemImportFromShareableHandle",
        what: None,
        value: unit + 1,
        multiple: unit,
        multiple_is: None,
    };
    assert_eq!(cuda.import(&[(pages[0].0, unit + 1)]).unwrap_err(), CudaError::Misuse(misaligned));
    assert_eq!(open_files(), files.map(|files| files + 1));
    drop((no_page, shared));
    run.end(&cuda, stream);
}

#[test]
fn what_cannot_be_shared_is_refused_with_what_to_do() {
    let Some((cuda, unit)) = sharing() else { return };
    let stream = cuda.create_stream().unwrap();
    let plain = Cuda::open(0).unwrap();
    let other = plain.create_stream().unwrap();
    let (run, alone) = (Run::new(&cuda, stream, &[unit]), Run::new(&plain, other, &[unit]));
    let error = plain.export(alone.range.address(), 1).unwrap_err();
    assert_eq!(error, CudaError::NotShareable { device: 0, supported: true });
    assert!(error.to_string().contains("shareable_pages(true)"), "{error}");
    let address = alone.range.address();
    assert_eq!(cuda.export(address, 1).unwrap_err(), CudaError::NotInPages { device: 0, address });
    let address = run.range.address();
    let beyond = CudaError::Misuse(Misuse::Unmapped { address, bytes: unit + 1 });
    assert_eq!(cuda.export(address, unit + 1).unwrap_err(), beyond);
    let segment = cuda.reserve(ClassId::DEVICE, unit).unwrap();
    let error = cuda.export(segment.address(), 1).unwrap_err();
    assert_eq!(error, CudaError::NotInPages { device: 0, address: segment.address() });
    let shared = cuda.export(address, 1).unwrap();
    let imported = plain.import(&descriptors(&shared)).unwrap();
    let address = imported.address();
    cuda.export(address, 1).expect_err("it is another device's");
    // SAFETY: no work uses it.
    unsafe {
        plain.end_import(imported);
        cuda.release(segment);
    }
    run.end(&cuda, stream);
    alone.end(&plain, other);
    let none = Cuda::builder().pages(false).shareable_pages(true).build().unwrap();
    assert!(matches!(none.export(address, 1), Err(CudaError::Misuse(Misuse::Unsupported { .. }))));
    assert!(matches!(none.import(&descriptors(&shared)), Err(CudaError::Misuse(Misuse::Unsupported { .. }))));
}

/// What a driver says of memory in several pages differs, and none that refuses it may refuse each page alone.
#[test]
fn dma_buffers_are_made_of_all_pages_or_of_one_at_a_time() {
    let Some((cuda, unit)) = sharing() else { return };
    let stream = cuda.create_stream().unwrap();
    let run = Run::new(&cuda, stream, &[unit, 2 * unit]);
    let (address, files) = (run.range.address(), open_files());
    if !cuda.info().dma_buf {
        eprintln!("SKIPPED: the device has no DMA buffers");
        assert_eq!(cuda.export_dma_buf(address, unit).unwrap_err(), CudaError::NoDmaBuf { device: 0 });
        run.end(&cuda, stream);
        return;
    }
    let all = cuda.export_dma_buf(address + 512, 3 * unit - 512);
    let several = all.is_ok();
    match all {
        Ok(made) => assert_eq!((made.offset, made.bytes), (512, 3 * unit)),
        Err(error) => assert!(matches!(error, CudaError::DmaBufRefused { pages: 2, .. }), "{error:?}"),
    }
    assert_eq!(run.pages.iter().map(|(_, page)| cuda.is_shared(page)).collect::<Vec<_>>(), [several; 2]);
    for (offset, page) in &run.pages {
        let made = cuda.export_dma_buf(address + offset, page.bytes()).unwrap();
        assert_eq!((made.offset, made.bytes), (0, page.bytes()));
        assert!(cuda.is_shared(page));
    }
    eprintln!("DMA buffers of several pages: {several}");
    let segment = cuda.reserve(ClassId::DEVICE, 2 * unit).unwrap();
    drop(cuda.export_dma_buf(segment.address(), 2 * unit).unwrap());
    assert_eq!(open_files(), files, "each descriptor was the program's");
    // SAFETY: no work uses it.
    unsafe { cuda.release(segment) };
    run.end(&cuda, stream);
}

/// Another process would keep the old pages, and the group get new ones: the two would no longer share anything.
#[test]
fn a_group_of_which_pages_are_shared_is_not_paused() {
    let Some((cuda, _)) = sharing() else { return };
    let allocator = Allocator::builder(cuda.clone()).conf("policy:paged").build().unwrap();
    let group = allocator.group("shared").unwrap();
    let stream = group.stream(allocator.create_stream().unwrap().id()).unwrap();
    let [buffer, other] = [4 << 20, 40 << 20].map(|bytes| stream.allocate(bytes).unwrap());
    let shared = cuda.export(buffer.address().unwrap(), 1).unwrap();
    let error = group.pause(Keep::Discard).unwrap_err().to_string();
    assert!(error.contains("of its pages were exported"), "{error}");
    assert!(!group.is_paused() && group.stats().reserved_bytes >= 44 << 20);
    allocator.check();
    drop((shared, buffer));
    allocator.empty_cache().unwrap();
    group.pause(Keep::Discard).unwrap();
    group.resume().unwrap();
    drop(other);
}
