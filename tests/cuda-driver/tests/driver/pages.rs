//! Virtual memory.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUmemAccess_flags, CUresult};
use millpond_cuda_driver::{DmaBuf, Kind, PAGE_BYTES, Violation};

use crate::aid::{Answer, Turn, answer, fill, read, turn, wait};

const PAGE: usize = PAGE_BYTES as usize;
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn location(device: i32) -> sys::CUmemLocation {
    // SAFETY: every version of the bindings has a kind and a number here, two words; 1 is the kind of a device.
    unsafe { std::mem::transmute::<[i32; 2], sys::CUmemLocation>([1, device]) }
}

fn reserve(bytes: usize) -> Answer<u64> {
    let mut start = 0;
    // SAFETY: the pointer is to a local number.
    answer(unsafe { sys::cuMemAddressReserve(&raw mut start, bytes, 0, 0, 0) }).map(|()| start)
}

fn free_range(start: u64, bytes: usize) -> Answer<()> {
    // SAFETY: the simulator checks the range.
    answer(unsafe { sys::cuMemAddressFree(start, bytes) })
}

fn create(device: i32, bytes: usize) -> Answer<u64> {
    let mut page = 0;
    // SAFETY: all zeros is a value of this plain structure of the header's.
    let mut wanted: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    wanted.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = location(device);
    // SAFETY: the pointers are to local values.
    answer(unsafe { sys::cuMemCreate(&raw mut page, bytes, &raw const wanted, 0) }).map(|()| page)
}

fn create_for_rdma(device: i32, bytes: usize) -> Answer<u64> {
    let mut page = 0;
    // SAFETY: all zeros is a value of this plain structure of the header's.
    let mut wanted: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    wanted.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.requestedHandleTypes = DESCRIPTOR;
    wanted.location = location(device);
    wanted.allocFlags.gpuDirectRDMACapable = 1;
    // SAFETY: the pointers are to local values.
    answer(unsafe { sys::cuMemCreate(&raw mut page, bytes, &raw const wanted, 0) }).map(|()| page)
}

fn is_for_rdma(page: u64) -> bool {
    // SAFETY: all zeros is a value of this plain structure of the header's.
    let mut made: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local structure.
    answer(unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&raw mut made, page) }).expect("a page");
    made.allocFlags.gpuDirectRDMACapable != 0
}

#[test]
fn pages_are_for_rdma_where_they_were_made_so_and_the_device_can() {
    let turn = turn();
    turn.control.set_rdma(1, false);
    let refused = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    assert_eq!(create_for_rdma(1, PAGE), Err(refused), "this device cannot");
    let (with, without) = (create_for_rdma(0, PAGE).expect("a page"), create(0, PAGE).expect("a page"));
    assert!(is_for_rdma(with) && !is_for_rdma(without));
    let again = import(export(with).expect("a descriptor").as_raw_fd()).expect("a handle");
    assert!(is_for_rdma(again), "it is the same memory");
    for page in [with, without, again] {
        release(page).expect("released");
    }
}

fn create_shareable(device: i32, bytes: usize) -> Answer<u64> {
    let mut page = 0;
    // SAFETY: all zeros is a value of this plain structure of the header's.
    let mut wanted: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    wanted.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.requestedHandleTypes = DESCRIPTOR;
    wanted.location = location(device);
    // SAFETY: the pointers are to local values.
    answer(unsafe { sys::cuMemCreate(&raw mut page, bytes, &raw const wanted, 0) }).map(|()| page)
}

const DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn export(page: u64) -> Answer<OwnedFd> {
    let mut file = -1;
    let to = (&raw mut file).cast();
    // SAFETY: the pointer is to a local number, which is what this kind of handle is.
    answer(unsafe { sys::cuMemExportToShareableHandle(to, page, DESCRIPTOR, 0) })?;
    // SAFETY: the call returned a descriptor that is the caller's.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn import(file: i32) -> Answer<u64> {
    let mut page = 0;
    let file = std::ptr::without_provenance_mut(file as usize);
    // SAFETY: the pointer is to a local number; a descriptor comes in the place of a pointer.
    answer(unsafe { sys::cuMemImportFromShareableHandle(&raw mut page, file, DESCRIPTOR) }).map(|()| page)
}

#[test]
fn a_page_goes_through_a_descriptor() {
    let turn = turn();
    let (stream, held) = (turn.stream(), turn.control.held_bytes(0));
    let range = reserve(8 * PAGE).expect("addresses");
    let alone = create(0, PAGE).expect("a page");
    assert_eq!(export(alone).map(drop), Err(INVALID), "it was made for this process alone");
    let page = create_shareable(0, 2 * PAGE).expect("a page");
    map(range, 2 * PAGE, 0, page).expect("mapped");
    open(range, 2 * PAGE, 0, READ_WRITE).expect("open");
    fill(range, 9, 2 * PAGE, &stream).expect("queued");
    let file = export(page).expect("a descriptor");
    let (again, held_once) = (import(file.as_raw_fd()).expect("a handle"), turn.control.held_bytes(0));
    assert_eq!(held_once, held + 3 * PAGE_BYTES, "memory of others is not this process's");
    drop(file);
    let there = range + 4 * PAGE_BYTES;
    assert_eq!(map(there, PAGE, 0, again), Err(INVALID), "it is a page of two units");
    map(there, 2 * PAGE, 0, again).expect("mapped");
    open(there, 2 * PAGE, 0, READ_WRITE).expect("open");
    assert_eq!(read(there + PAGE_BYTES, PAGE, &stream), Ok(vec![9; PAGE]));
    unmap(range, 2 * PAGE).expect("unmapped");
    release(page).expect("released");
    let other = create(0, 2 * PAGE).expect("a page");
    map(range, 2 * PAGE, 0, other).expect("mapped");
    open(range, 2 * PAGE, 0, READ_WRITE).expect("open");
    fill(range, 1, 2 * PAGE, &stream).expect("queued");
    assert_eq!(read(there, PAGE, &stream), Ok(vec![9; PAGE]), "what others have mapped stays");
    for (start, page) in [(range, other), (there, again)] {
        unmap(start, 2 * PAGE).expect("unmapped");
        release(page).expect("released");
    }
    release(alone).expect("released");
    free_range(range, 8 * PAGE).expect("freed");
    assert_eq!(turn.control.held_bytes(0), held);
    let null = std::fs::File::open("/dev/null").expect("a file");
    assert_eq!(import(null.as_raw_fd()), Err(INVALID), "no page");
    assert_eq!(import(-1), Err(INVALID), "no descriptor");
}

fn release(page: u64) -> Answer<()> {
    // SAFETY: the simulator checks the handle.
    answer(unsafe { sys::cuMemRelease(page) })
}

fn map(start: u64, bytes: usize, offset: usize, page: u64) -> Answer<()> {
    // SAFETY: the simulator checks all of it.
    answer(unsafe { sys::cuMemMap(start, bytes, offset, page, 0) })
}

fn unmap(start: u64, bytes: usize) -> Answer<()> {
    // SAFETY: the simulator checks the range.
    answer(unsafe { sys::cuMemUnmap(start, bytes) })
}

fn open(start: u64, bytes: usize, device: i32, flags: CUmemAccess_flags) -> Answer<()> {
    let access = sys::CUmemAccessDesc { location: location(device), flags };
    // SAFETY: the pointer is to one local description.
    answer(unsafe { sys::cuMemSetAccess(start, bytes, &raw const access, 1) })
}

const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

#[test]
fn a_page_moves_with_its_bytes() {
    let turn = turn();
    let stream = turn.stream();
    let held = turn.control.held_bytes(0);
    let range = reserve(8 * PAGE).expect("addresses");
    let (small, large) = (create(0, PAGE).expect("a page"), create(0, 3 * PAGE).expect("a page"));
    assert_eq!(turn.control.held_bytes(0), held + 4 * PAGE_BYTES);
    map(range, PAGE, 0, small).expect("mapped");
    map(range + PAGE_BYTES, 3 * PAGE, 0, large).expect("mapped behind it");
    open(range, 4 * PAGE, 0, READ_WRITE).expect("both are open");
    fill(range, 1, PAGE, &stream).expect("queued");
    fill(range + PAGE_BYTES - 8, 2, 16, &stream).expect("work may cross the border of pages");
    wait(&stream).expect("done");
    unmap(range, 4 * PAGE).expect("both at once");
    assert_eq!(read(range, 1, &stream), Err(INVALID), "nothing is there any more");
    let target = range + 6 * PAGE_BYTES;
    map(target, PAGE, 0, small).expect("mapped elsewhere");
    open(target, PAGE, 0, READ_WRITE).expect("open");
    let mut expected = vec![1; PAGE];
    expected[PAGE - 8..].fill(2);
    assert_eq!(read(target, PAGE, &stream), Ok(expected));
    unmap(target, PAGE).expect("unmapped");
    release(small).and_then(|()| release(large)).expect("released");
    free_range(range, 8 * PAGE).expect("freed");
    assert_eq!(turn.control.held_bytes(0), held);
}

#[test]
fn two_addresses_show_the_same_page() {
    let turn = turn();
    let stream = turn.stream();
    let range = reserve(2 * PAGE).expect("addresses");
    let page = create(0, PAGE).expect("a page");
    for start in [range, range + PAGE_BYTES] {
        map(start, PAGE, 0, page).expect("mapped");
        open(start, PAGE, 0, READ_WRITE).expect("open");
    }
    fill(range + 100, 42, 10, &stream).expect("queued");
    assert_eq!(read(range + PAGE_BYTES + 100, 10, &stream), Ok(vec![42; 10]));
    release(page).expect("released while it is mapped");
    assert_eq!(release(page), Err(INVALID), "twice");
    assert_eq!(map(range, PAGE, 0, page), Err(INVALID), "the handle is gone");
    unmap(range, PAGE).expect("unmapped at one address");
    assert_eq!(read(range + PAGE_BYTES + 100, 10, &stream), Ok(vec![42; 10]), "it lives where it is still mapped");
    let pages = turn.control.live(Kind::Page);
    unmap(range + PAGE_BYTES, PAGE).expect("unmapped at the other");
    assert_eq!(turn.control.live(Kind::Page), pages - 1, "and then it is gone");
    free_range(range, 2 * PAGE).expect("freed");
}

#[test]
fn a_new_page_is_empty_though_its_memory_was_used() {
    let turn = turn();
    let stream = turn.stream();
    let range = reserve(PAGE).expect("addresses");
    for _ in 0..2 {
        let page = create(0, PAGE).expect("a page");
        map(range, PAGE, 0, page).expect("mapped");
        open(range, PAGE, 0, READ_WRITE).expect("open");
        assert_eq!(read(range, 64, &stream), Ok(vec![0; 64]));
        fill(range, 0xFF, PAGE, &stream).expect("queued");
        wait(&stream).expect("done");
        unmap(range, PAGE).and_then(|()| release(page)).expect("given back");
    }
    free_range(range, PAGE).expect("freed");
}

#[test]
fn parts_and_overlaps_are_refused() {
    let _turn = turn();
    let range = reserve(4 * PAGE).expect("addresses");
    let page = create(0, 2 * PAGE).expect("a page");
    assert_eq!(map(range, PAGE, 0, page), Err(INVALID), "a part of a page");
    assert_eq!(map(range, 2 * PAGE, PAGE, page), Err(INVALID), "an offset into it");
    assert_eq!(map(range + 512, 2 * PAGE, 0, page), Err(INVALID), "an address that is no multiple");
    assert_eq!(map(range + 3 * PAGE_BYTES, 2 * PAGE, 0, page), Err(INVALID), "beyond the range");
    map(range + PAGE_BYTES, 2 * PAGE, 0, page).expect("mapped");
    assert_eq!(map(range, 2 * PAGE, 0, page), Err(INVALID), "over what is mapped");
    assert_eq!(open(range, 2 * PAGE, 0, READ_WRITE), Err(INVALID), "access to a hole");
    assert_eq!(unmap(range + PAGE_BYTES, PAGE), Err(INVALID), "a part of a mapping");
    assert_eq!(unmap(range, 4 * PAGE), Err(INVALID), "holes");
    assert_eq!(free_range(range, 4 * PAGE), Err(INVALID), "a range that is in use");
    unmap(range + PAGE_BYTES, 2 * PAGE).expect("unmapped");
    assert_eq!(free_range(range, 2 * PAGE), Err(INVALID), "a part of a range");
    free_range(range, 4 * PAGE).expect("freed");
    release(page).expect("released");
    assert_eq!((create(0, 512), create(5, PAGE)), (Err(INVALID), Err(CUresult::CUDA_ERROR_INVALID_DEVICE)));
}

#[test]
fn work_without_access_breaks_the_device() {
    let turn = turn();
    let stream = turn.stream();
    let range = reserve(PAGE).expect("addresses");
    let page = create(0, PAGE).expect("a page");
    map(range, PAGE, 0, page).expect("mapped");
    fill(range, 1, 64, &stream).expect("queued: that there is no access is found when it runs");
    let illegal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_eq!(wait(&stream), Err(illegal));
    assert_eq!(crate::aid::alloc(512), Err(illegal), "every call returns it from now on");
    assert_eq!(turn.control.violations(), [Violation::BadAccess { device: 0, address: range, bytes: 64 }]);
    turn.control.reset();
    open(range, PAGE, 0, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ).expect("open for reading");
    assert_eq!(read(range, 1, &stream), Ok(vec![0]));
    fill(range, 1, 64, &stream).expect("queued");
    assert_eq!(wait(&stream), Err(illegal), "reading is not writing");
    turn.control.reset();
    unmap(range, PAGE).and_then(|()| release(page)).expect("given back");
    free_range(range, PAGE).expect("freed");
}

#[test]
fn unmapping_under_queued_work_is_noted_and_found_out() {
    let turn = turn();
    let stream = turn.stream();
    let range = reserve(PAGE).expect("addresses");
    let page = create(0, PAGE).expect("a page");
    map(range, PAGE, 0, page).expect("mapped");
    open(range, PAGE, 0, READ_WRITE).expect("open");
    let gate = turn.control.hold(0, Turn::number(&stream));
    fill(range + 64, 1, 64, &stream).expect("queued");
    unmap(range, PAGE).expect("it does not wait");
    gate.open();
    assert_eq!(wait(&stream), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    let freed = Violation::FreedInUse { device: 0, address: range, bytes: PAGE_BYTES };
    let touched = Violation::BadAccess { device: 0, address: range + 64, bytes: 64 };
    assert_eq!(turn.control.violations(), [freed, touched]);
    turn.control.reset();
    release(page).and_then(|()| free_range(range, PAGE)).expect("given back");
}

#[test]
fn a_page_of_another_device_needs_access_for_this_one() {
    let turn = turn();
    let second = CudaContext::new(1).expect("a second device");
    turn.context.bind_to_thread().expect("the first again");
    let stream = turn.stream();
    let range = reserve(PAGE).expect("addresses");
    let page = create(1, PAGE).expect("a page of the second device");
    map(range, PAGE, 0, page).expect("mapped");
    open(range, PAGE, 1, READ_WRITE).expect("open to its own device");
    let (to, from) = (turn.context.cu_ctx(), second.cu_ctx());
    let here = crate::aid::alloc(64).expect("memory");
    // SAFETY: both ranges are there.
    answer(unsafe { sys::cuMemcpyPeerAsync(here, to, range, from, 64, stream.cu_stream()) }).expect("queued");
    wait(&stream).expect("a copy between the devices names both");
    fill(range, 1, 64, &stream).expect("queued");
    assert_eq!(wait(&stream), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), "a fill is this device's alone");
    turn.control.reset();
    open(range, PAGE, 0, READ_WRITE).expect("open to this one, too");
    fill(range, 1, 64, &stream).expect("queued");
    wait(&stream).expect("done");
    crate::aid::free(here).expect("freed");
    unmap(range, PAGE).and_then(|()| release(page)).and_then(|()| free_range(range, PAGE)).expect("given back");
}

fn dma_buf(start: u64, bytes: usize) -> Answer<OwnedFd> {
    let mut file = -1;
    let to = (&raw mut file).cast();
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    // SAFETY: the pointer is to a local number, which is what this kind of handle is.
    answer(unsafe { sys::cuMemGetHandleForAddressRange(to, start, bytes, kind, 0) })?;
    // SAFETY: the call returned a descriptor that is the caller's.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Two pages behind another in a range; the first has 1 in each byte, the second 2.
fn two_pages(range: u64, second: u64, turn: &Turn) -> [u64; 2] {
    let pages = [create(0, PAGE).expect("a page"), second];
    let stream = turn.stream();
    for (at, page) in (0..).zip(pages) {
        map(range + at * PAGE_BYTES, PAGE, 0, page).expect("mapped");
        open(range + at * PAGE_BYTES, PAGE, 0, READ_WRITE).expect("open");
        fill(range + at * PAGE_BYTES, at as u8 + 1, PAGE, &stream).expect("queued");
    }
    wait(&stream).expect("done");
    pages
}

#[test]
fn a_dma_buffer_shows_the_memory_of_several_pages() {
    let turn = turn();
    let range = reserve(2 * PAGE).expect("addresses");
    let pages = two_pages(range, create(0, PAGE).expect("a page"), &turn);
    let file = dma_buf(range + 4096, 2 * PAGE - 4096).expect("a descriptor");
    let read = |offset| turn.control.read_dma_buf(file.as_raw_fd(), offset, 8);
    assert_eq!(read(PAGE_BYTES - 4096 - 4), [1, 1, 1, 1, 2, 2, 2, 2]);
    unmap(range, 2 * PAGE).expect("unmapped");
    pages.into_iter().for_each(|page| release(page).expect("released"));
    let others = two_pages(range, create(0, PAGE).expect("a page"), &turn);
    let stream = turn.stream();
    fill(range, 9, 2 * PAGE, &stream).expect("queued");
    wait(&stream).expect("done");
    assert_eq!(read(2 * PAGE_BYTES - 4096 - 8), [2; 8], "what others may have stays");
    assert_eq!(import(file.as_raw_fd()), Err(INVALID), "it is no page");
    unmap(range, 2 * PAGE).expect("unmapped");
    others.into_iter().for_each(|page| release(page).expect("released"));
    free_range(range, 2 * PAGE).expect("freed");
}

#[test]
fn a_range_without_a_dma_buffer_is_refused() {
    let turn = turn();
    let range = reserve(4 * PAGE).expect("addresses");
    let pages = two_pages(range, create(0, PAGE).expect("a page"), &turn);
    for (start, bytes) in [(range + 512, 4096), (range, 512), (range, 0), (range, 3 * PAGE), (range - 4096, 4096)] {
        assert_eq!(dma_buf(start, bytes).map(drop), Err(INVALID), "{bytes} bytes at {start:#x}");
    }
    turn.control.set_dma_buf(0, DmaBuf::One);
    assert_eq!(dma_buf(range + PAGE_BYTES - 4096, 8192).map(drop), Err(INVALID), "an old driver: two pages");
    let file = dma_buf(range + PAGE_BYTES, PAGE).expect("one page");
    assert_eq!(turn.control.read_dma_buf(file.as_raw_fd(), 0, 2), [2, 2]);
    turn.control.set_dma_buf(0, DmaBuf::None);
    let refused = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    assert_eq!(dma_buf(range, PAGE).map(drop), Err(refused), "this device has none");
    let allocation = crate::aid::alloc(PAGE).expect("memory");
    assert_eq!(dma_buf(allocation, PAGE).map(drop), Err(refused));
    turn.control.set_dma_buf(0, DmaBuf::Any);
    unmap(range, 2 * PAGE).expect("unmapped");
    release(pages[1]).expect("released");
    let unlike = two_pages(range, create_shareable(0, PAGE).expect("a page"), &turn);
    assert_eq!(dma_buf(range, 2 * PAGE).map(drop), Err(INVALID), "pages of two kinds");
    unmap(range, 2 * PAGE).expect("unmapped");
    unlike.into_iter().chain([pages[0]]).for_each(|page| release(page).expect("released"));
    free_range(range, 4 * PAGE).expect("freed");
    fill(allocation, 7, PAGE, &turn.stream()).expect("queued");
    let file = dma_buf(allocation, PAGE).expect("an allocation is one piece");
    assert_eq!(dma_buf(allocation, PAGE + 4096).map(drop), Err(INVALID), "it ends before");
    // SAFETY: the context is current.
    answer(unsafe { sys::cuCtxSynchronize() }).expect("done");
    assert_eq!(turn.control.read_dma_buf(file.as_raw_fd(), PAGE_BYTES - 1, 1), [7]);
    crate::aid::free(allocation).expect("freed");
}
