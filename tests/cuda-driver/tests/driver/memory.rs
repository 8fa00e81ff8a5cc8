//! Memory of devices and of the host.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, DevicePtr};
use millpond_cuda_driver::Violation;

use crate::aid::{Turn, alloc, answer, fill, free, query, read, turn, wait};

const MIB: usize = 1 << 20;
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

#[test]
fn bytes_go_there_and_back() {
    let turn = turn();
    let stream = turn.stream();
    let bytes: Vec<u8> = (0..100_000_u32).map(|index| (index * 7 % 251) as u8).collect();
    let there = stream.clone_htod(&bytes).expect("copied");
    let copy = stream.clone_dtod(&there).expect("copied");
    assert_eq!(stream.clone_dtoh(&copy).expect("copied"), bytes);
    let held = turn.control.held_bytes(0);
    drop((there, copy));
    wait(&stream).expect("freed in order");
    assert!(turn.control.held_bytes(0) < held);
}

#[test]
fn the_bindings_view_of_an_address_is_not_freed_when_it_is_leaked() {
    let turn = turn();
    let stream = turn.stream();
    // SAFETY: nothing was made with event tracking before.
    unsafe { turn.context.disable_event_tracking() };
    let block = alloc(MIB).expect("memory");
    // SAFETY: the range is inside the allocation, and the view is leaked before that is freed.
    let mut view = unsafe { stream.upgrade_device_ptr::<u32>(block + 4096, 1024) };
    stream.memcpy_htod(&[5_u32; 1024], &mut view).expect("copied");
    assert_eq!(view.device_ptr(&stream).0, block + 4096);
    assert_eq!(view.leak(), block + 4096);
    assert_eq!(read(block + 4096, 4, &stream), Ok(vec![5, 0, 0, 0]));
    free(block).expect("it is still there");
}

#[test]
fn the_cap_is_the_end_of_memory() {
    let turn = turn();
    let before = turn.control.held_bytes(0);
    turn.control.set_bytes(0, before + 10 * MIB as u64);
    let first = alloc(6 * MIB).expect("below the cap");
    assert_eq!(alloc(6 * MIB), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    turn.control.others(0, MIB as u64);
    let (mut free_bytes, mut total) = (0, 0);
    // SAFETY: the pointers are to local numbers.
    answer(unsafe { sys::cuMemGetInfo_v2(&raw mut free_bytes, &raw mut total) }).expect("told");
    assert_eq!((free_bytes, total as u64), (3 * MIB, before + 10 * MIB as u64));
    assert_eq!(alloc(3 * MIB + 1), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    let second = alloc(3 * MIB).expect("all that is left");
    free(second).expect("freed");
    free(first).expect("freed");
    assert_eq!(turn.control.held_bytes(0), before);
    assert_eq!((alloc(0), alloc(usize::MAX)), (Err(INVALID), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)));
}

#[test]
fn wrong_frees_are_refused() {
    let turn = turn();
    let block = alloc(MIB).expect("memory");
    assert_eq!(free(block + 512), Err(INVALID), "the middle");
    free(block).expect("freed");
    assert_eq!(free(block), Err(INVALID), "twice");
    assert_eq!(fill(block, 1, 16, &turn.stream()), Err(INVALID), "what was freed is known not to be there");
    assert_eq!(turn.control.violations(), []);
}

#[test]
fn a_free_waits_for_the_device_and_the_stall_is_noted() {
    let turn = turn();
    let stream = turn.stream();
    let (used, unused) = (alloc(MIB).expect("memory"), alloc(MIB).expect("memory"));
    let gate = turn.control.hold(0, Turn::number(&stream));
    fill(used, 3, MIB, &stream).expect("queued");
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        gate.open();
    });
    free(unused).expect("freed");
    assert_eq!(query(&stream), Ok(()), "the free has waited for the work of the other range, too");
    opener.join().expect("it only opens a gate");
    assert_eq!(turn.control.violations(), [], "nothing was going to touch it");
    let gate = turn.control.hold(0, Turn::number(&stream));
    fill(used, 4, MIB, &stream).expect("queued");
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        gate.open();
    });
    free(used).expect("freed");
    opener.join().expect("it only opens a gate");
    let noted = Violation::FreedInUse { device: 0, address: used, bytes: MIB as u64 };
    assert_eq!(turn.control.violations(), [noted]);
}

#[test]
fn copies_from_the_programs_memory_take_the_bytes_and_from_pinned_memory_do_not() {
    let turn = turn();
    let stream = turn.stream();
    let block = alloc(64).expect("memory");
    let mut pinned = std::ptr::null_mut::<c_void>();
    // SAFETY: the pointer is to a local pointer.
    answer(unsafe { sys::cuMemHostAlloc(&raw mut pinned, 64, 3) }).expect("host memory");
    let mut pageable = [1_u8; 64];
    for (source, expected) in [(pageable.as_mut_ptr(), 1), (pinned.cast::<u8>(), 2)] {
        // SAFETY: both are 64 bytes that nothing else uses; the stream is held.
        unsafe { source.write_bytes(1, 64) };
        let gate = turn.control.hold(0, Turn::number(&stream));
        // SAFETY: as above, and the memory outlives the copy.
        answer(unsafe { sys::cuMemcpyHtoDAsync_v2(block, source.cast(), 64, stream.cu_stream()) }).expect("queued");
        // SAFETY: as above: the copy has taken its bytes, or has not begun.
        unsafe { source.write_bytes(2, 64) };
        gate.open();
        assert_eq!(read(block, 64, &stream), Ok(vec![expected; 64]));
    }
    let mut device_side = 0;
    // SAFETY: the pointer is to a local number.
    answer(unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device_side, pinned, 0) }).expect("mapped");
    assert_eq!(read(device_side, 64, &stream), Ok(vec![2; 64]));
    // SAFETY: the memory is not used any more.
    answer(unsafe { sys::cuMemFreeHost(pinned) }).expect("freed");
    // SAFETY: the simulator checks the address.
    assert_eq!(answer(unsafe { sys::cuMemFreeHost(pinned) }), Err(INVALID), "twice");
    free(block).expect("freed");
}

#[test]
fn registered_memory_is_the_devices_too() {
    let turn = turn();
    let stream = turn.stream();
    let mut own = vec![0_u8; 8192];
    let start = own.as_mut_ptr();
    // SAFETY: the vector outlives the registration.
    let register = |bytes| answer(unsafe { sys::cuMemHostRegister_v2(start.cast(), bytes, 0) });
    assert_eq!(fill(start as u64, 9, 8192, &stream), Err(INVALID), "not yet");
    register(8192).expect("registered");
    assert_eq!(register(4096), Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
    fill(start as u64, 9, 8192, &stream).expect("queued");
    wait(&stream).expect("done");
    // SAFETY: it was registered above, and no work is queued.
    let unregister = || answer(unsafe { sys::cuMemHostUnregister(start.cast()) });
    unregister().expect("it is the program's again");
    assert_eq!(unregister(), Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
    assert_eq!(own, vec![9; 8192]);
}

#[test]
fn devices_copy_between_each_other() {
    let turn = turn();
    let second = CudaContext::new(1).expect("a second device");
    let there = alloc(4096).expect("memory of the second device, whose context is current");
    turn.context.bind_to_thread().expect("the first again");
    let here = alloc(4096).expect("memory");
    let stream = turn.stream();
    fill(here, 6, 4096, &stream).expect("queued");
    let (to, from) = (second.cu_ctx(), turn.context.cu_ctx());
    // SAFETY: both ranges are allocated.
    answer(unsafe { sys::cuMemcpyPeerAsync(there, to, here, from, 4096, stream.cu_stream()) }).expect("queued");
    assert_eq!(read(there, 4096, &stream), Ok(vec![6; 4096]));
    assert_eq!(fill(there, 1, 16, &stream), Err(INVALID), "without access");
    // SAFETY: the other context is alive.
    let enable = || answer(unsafe { sys::cuCtxEnablePeerAccess(to, 0) });
    enable().expect("the devices are peers");
    assert_eq!(enable(), Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
    fill(there, 1, 16, &stream).expect("with access");
    wait(&stream).expect("done");
    // SAFETY: as above.
    answer(unsafe { sys::cuCtxDisablePeerAccess(to) }).expect("taken back");
    free(there).expect("freed");
    free(here).expect("freed");
}

#[test]
fn addresses_are_known() {
    let turn = turn();
    let block = alloc(MIB).expect("memory");
    let ask = |attribute, address| {
        let mut told = 0_u64;
        // SAFETY: no attribute that is asked for is longer than 8 bytes.
        answer(unsafe { sys::cuPointerGetAttribute((&raw mut told).cast(), attribute, address) }).map(|()| told)
    };
    use sys::CUpointer_attribute as A;
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + 100), Ok(block));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + 100), Ok(MIB as u64));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block), Ok(2));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_CONTEXT, block), Ok(turn.context.cu_ctx() as u64));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw const block) as u64), Err(INVALID));
    free(block).expect("freed");
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE, block), Err(INVALID));
}
