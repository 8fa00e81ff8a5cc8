//! Memory for other drivers and other processes: what a descriptor shows, and which pages an export names.

use std::os::fd::{AsFd, AsRawFd};

use millpond::{Allocator, Buffer, Keep};
use millpond_backend::{Backend, ClassId, StreamId, Transfer, VirtualMemory};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{Code, CudaError, Misuse, Page, Segment};
use millpond_cuda_driver::DmaBuf::{Any, None as Never, One};
use millpond_cuda_driver::{Control, Kind};

use super::{alone, finish, give_back};

const MIB: u64 = 1 << 20;
const HOST_PAGE: u64 = 64 << 10;

/// A range of two pages, the second twice as large as the first, with 1 in each byte of the first and 2 in the second.
struct Two {
    range: Segment,
    pages: [Page; 2],
    stream: StreamId,
}

impl Two {
    fn new(cuda: &Cuda) -> Two {
        let (stream, unit) = (cuda.create_stream().unwrap(), unit(cuda));
        let range = cuda.reserve_range(ClassId::DEVICE, 4 * unit).unwrap();
        let pages = [unit, 2 * unit].map(|bytes| cuda.create_page(ClassId::DEVICE, bytes).unwrap());
        // SAFETY: nothing is mapped there.
        unsafe {
            cuda.map(&range, 0, &pages[0], stream).unwrap();
            cuda.map(&range, unit, &pages[1], stream).unwrap();
        }
        cuda.fill(stream, &range, 0, unit, 1).unwrap();
        cuda.fill(stream, &range, unit, 2 * unit, 2).unwrap();
        finish(cuda, stream);
        Two { range, pages, stream }
    }

    fn end(self, cuda: &Cuda) {
        let [first, second] = self.pages;
        // SAFETY: no work uses the memory.
        unsafe {
            cuda.unmap(&self.range, 0, &first, self.stream);
            cuda.unmap(&self.range, unit(cuda), &second, self.stream);
            cuda.release_page(first);
            cuda.release_page(second);
            cuda.release_range(self.range);
        }
    }
}

fn unit(cuda: &Cuda) -> u64 {
    cuda.caps().pages.expect("it has virtual memory").granularity
}

#[test]
fn a_dma_buffer_shows_whole_pages_of_the_host_around_the_bytes() {
    alone(|control, cuda| {
        let before = control.live(Kind::Page);
        let (two, unit) = (Two::new(cuda), unit(cuda));
        assert!(cuda.info().dma_buf && !two.pages.iter().any(|page| cuda.is_shared(page)));
        let made = cuda.export_dma_buf(two.range.address() + unit - 8, 16).unwrap();
        assert_eq!((made.offset, made.bytes), (HOST_PAGE - 8, 2 * HOST_PAGE));
        assert!(two.pages.iter().all(|page| cuda.is_shared(page)));
        let read = |offset, bytes| control.read_dma_buf(made.descriptor.as_raw_fd(), offset, bytes);
        assert_eq!(read(made.offset, 16), [[1; 8], [2; 8]].concat());
        assert_eq!(read(2 * HOST_PAGE - 1, 1), [2], "the file ends there");
        cuda.fill(two.stream, &two.range, unit, 1, 9).unwrap();
        finish(cuda, two.stream);
        assert_eq!(read(HOST_PAGE, 2), [9, 2], "it is the same memory");
        two.end(cuda);
        assert_eq!(read(HOST_PAGE, 2), [9, 2], "the descriptor keeps it");
        assert_eq!((cuda.held_bytes(), control.live(Kind::Page)), (0, before));
    });
}

#[test]
fn a_driver_that_takes_one_page_at_a_time_gets_them_so() {
    alone(|control, cuda| {
        let (two, unit) = (Two::new(cuda), unit(cuda));
        control.set_dma_buf(0, One);
        let (address, bytes) = (two.range.address(), 3 * unit);
        let error = cuda.export_dma_buf(address, bytes).unwrap_err();
        let call = "cuMemGetHandleForAddressRange";
        assert_eq!(error, CudaError::DmaBufRefused { call, address, bytes, pages: 2, code: Code(1) });
        assert!(error.to_string().contains("export each page alone"), "{error}");
        assert!(!two.pages.iter().any(|page| cuda.is_shared(page)), "nothing was exported");
        let sharing = Cuda::builder().shareable_pages(true).build().unwrap();
        let again = Two::new(&sharing);
        let run = sharing.export(again.range.address() + unit - 1, 2).unwrap();
        let at = [again.range.address(), again.range.address() + unit];
        assert_eq!(run.pages.iter().map(|page| page.address).collect::<Vec<_>>(), at);
        for (page, byte) in run.pages.iter().zip(1..) {
            let made = sharing.export_dma_buf(page.address, page.bytes).unwrap();
            assert_eq!((made.offset, made.bytes), (0, page.bytes));
            assert_eq!(control.read_dma_buf(made.descriptor.as_raw_fd(), page.bytes - 1, 1), [byte]);
        }
        drop(run);
        again.end(&sharing);
        two.end(cuda);
    });
}

#[test]
fn memory_without_a_dma_buffer_is_refused_with_what_to_do() {
    alone(|control, cuda| {
        let (two, unit) = (Two::new(cuda), unit(cuda));
        let (address, beyond) = (two.range.address(), two.range.address() + 3 * unit);
        let empty = CudaError::from(Misuse::Empty { call: "cuMemGetHandleForAddressRange" });
        assert_eq!(cuda.export_dma_buf(address, 0).unwrap_err(), empty);
        let unmapped = Misuse::Unmapped { address: beyond, bytes: HOST_PAGE };
        assert_eq!(cuda.export_dma_buf(beyond, 1).unwrap_err(), CudaError::from(unmapped));
        assert!(cuda.export_dma_buf(u64::MAX, 2).is_err());
        let segment = cuda.reserve(ClassId::DEVICE, unit).unwrap();
        cuda.fill(two.stream, &segment, 0, unit, 7).unwrap();
        finish(cuda, two.stream);
        let made = cuda.export_dma_buf(segment.address() + 512, 512).unwrap();
        assert_eq!(control.read_dma_buf(made.descriptor.as_raw_fd(), made.offset, 2), [7, 7], "memory of cuMemAlloc");
        let error = cuda.export_dma_buf(segment.address(), 2 * unit).unwrap_err();
        assert!(matches!(error, CudaError::DmaBufRefused { pages: 0, .. }), "{error:?}");
        assert!(error.to_string().contains("memory of this device"), "{error}");
        give_back(cuda, segment);
        control.set_dma_buf(0, Never);
        let without = Cuda::open(0).unwrap();
        assert_eq!(without.export_dma_buf(address, unit).unwrap_err(), CudaError::NoDmaBuf { device: 0 });
        control.set_dma_buf(0, Any);
        two.end(cuda);
    });
}

#[test]
fn imported_pages_are_exported_where_they_come_from() {
    alone(|_, _| {
        let cuda = Cuda::builder().shareable_pages(true).build().unwrap();
        let two = Two::new(&cuda);
        let run = cuda.export(two.range.address(), 1).unwrap();
        let imported = cuda.import(&[(run.pages[0].descriptor.as_fd(), run.pages[0].bytes)]).unwrap();
        let address = imported.address();
        assert_eq!(cuda.export_dma_buf(address, 1).unwrap_err(), CudaError::NotInPages { device: 0, address });
        // SAFETY: no work uses it.
        unsafe { cuda.end_import(imported) };
        drop(run);
        two.end(&cuda);
    });
}

/// Writes numbers of its own over a buffer, and checks that a DMA buffer of a part of it shows them.
fn shows(control: Control, cuda: &Cuda, buffer: &Buffer<Cuda>, byte: u8) -> millpond_cuda::DmaBuf {
    let stream = buffer.stream();
    cuda.fill(stream, buffer.segment().unwrap(), buffer.offset(), buffer.len(), byte).unwrap();
    finish(cuda, stream);
    let (address, bytes) = (buffer.address().unwrap() + 12_345, buffer.len() - 12_345);
    let made = cuda.export_dma_buf(address, bytes).unwrap();
    for at in [0, bytes / 2, bytes - 1] {
        assert_eq!(control.read_dma_buf(made.descriptor.as_raw_fd(), made.offset + at, 1), [byte]);
    }
    made
}

/// A window shows pages at other addresses than their homes. An export of it has the pages, in the order of the window.
#[test]
fn a_buffer_in_a_window_is_exported_as_its_pages() {
    alone(|control, _| {
        let cuda = Cuda::builder().shareable_pages(true).build().unwrap();
        let allocator = Allocator::builder(cuda.clone()).conf("policy:paged").build().unwrap();
        let stream = allocator.create_stream().unwrap();
        let mut blocks: Vec<_> = (0..8).map(|_| Some(stream.allocate(30 * MIB).unwrap())).collect();
        let homes = blocks.iter().flatten().map(|block| block.address().unwrap()).collect::<Vec<_>>();
        let at_home: Vec<_> = homes.iter().map(|&home| cuda.export(home, 30 * MIB).unwrap()).collect();
        (0..8).step_by(2).for_each(|at| blocks[at] = None);
        allocator.set_memory_fraction(280.0 / 8192.0);
        let window = stream.allocate(90 * MIB).unwrap();
        let run = cuda.export(window.address().unwrap(), 90 * MIB).unwrap();
        let known = |number| at_home.iter().flat_map(|run| &run.pages).any(|page| page.number == number);
        assert!(run.pages.len() > 2 && run.pages.iter().all(|page| known(page.number)), "they are pages of the homes");
        let made = shows(control, &cuda, &window, 5);
        for block in blocks.iter().flatten() {
            shows(control, &cuda, block, 3);
        }
        let mid = made.offset + 45 * MIB;
        assert_eq!(control.read_dma_buf(made.descriptor.as_raw_fd(), mid, 1), [5], "they are apart");
        drop((window, blocks, run, at_home));
        allocator.empty_cache().unwrap();
        assert_eq!((allocator.stats().reserved_bytes.all.current, cuda.held_bytes()), (0, 0));
        assert_eq!(control.read_dma_buf(made.descriptor.as_raw_fd(), mid, 1), [5], "the descriptor keeps the memory");
        allocator.check();
    });
}

/// Other drivers would keep the old pages, and the group get new ones.
#[test]
fn a_group_of_which_a_dma_buffer_was_exported_is_not_paused() {
    alone(|_, cuda| {
        let allocator = Allocator::builder(cuda.clone()).conf("policy:paged").build().unwrap();
        let group = allocator.group("registered").unwrap();
        let stream = group.stream(allocator.create_stream().unwrap().id()).unwrap();
        let [buffer, other] = [4 * MIB, 40 * MIB].map(|bytes| stream.allocate(bytes).unwrap());
        let made = cuda.export_dma_buf(buffer.address().unwrap(), buffer.len()).unwrap();
        let error = group.pause(Keep::Discard).unwrap_err().to_string();
        assert!(error.contains("of its pages were exported"), "{error}");
        drop((made, buffer));
        allocator.empty_cache().unwrap();
        group.pause(Keep::Discard).unwrap();
        group.resume().unwrap();
        drop(other);
    });
}
