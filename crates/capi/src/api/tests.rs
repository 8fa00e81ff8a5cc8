//! What the C programs cannot bring about: devices that are lost, drivers that fail, and mistakes of our own.

use std::ffi::CStr;
use std::ptr;

use millpond_backend::{Backend as _, Fault};
use millpond_sim::{CallKind, Sim};

use super::*;
use crate::addresses::Addresses;
use crate::code::Code;
use crate::served::Of;

const MIB: u64 = 1 << 20;

/// An allocator on a device that the test controls.
struct Pond {
    sim: Sim,
    pond: *mut CAllocator,
}

impl Pond {
    fn new(conf: &str) -> Pond {
        let sim = Sim::new();
        sim.create_stream().unwrap();
        let of = Of::new(sim.clone(), Some(conf), 0, Addresses::new()).unwrap();
        Pond { sim, pond: pointer_of(handles::enter(Box::new(Served::Sim(of))).unwrap()) }
    }

    fn alloc(&self, bytes: u64) -> Result<*mut c_void, i32> {
        let mut out = ptr::null_mut();
        // SAFETY: the pointer is to a local variable, and the allocator is not destroyed meanwhile.
        let status = unsafe { millpond_alloc(self.pond, bytes, ptr::null_mut(), &raw mut out) };
        if status == Code::Ok as i32 { Ok(out) } else { Err(status) }
    }

    fn free(&self, address: *mut c_void) -> i32 {
        // SAFETY: the allocator is not destroyed meanwhile.
        unsafe { millpond_free(self.pond, address) }
    }

    fn allocated(&self) -> u64 {
        let mut out = Usage { allocated_bytes: 0, max_allocated_bytes: 0, reserved_bytes: 0, max_reserved_bytes: 0 };
        // SAFETY: the pointer is to a local variable, and the allocator is not destroyed meanwhile.
        assert_eq!(unsafe { millpond_get_usage(self.pond, &raw mut out) }, 0);
        out.allocated_bytes
    }

    fn destroy(self) -> (i32, u64, Sim) {
        let mut live = u64::MAX;
        // SAFETY: the pointer is to a local variable, and no other thread has the allocator.
        (unsafe { millpond_destroy(self.pond, &raw mut live) }, live, self.sim)
    }
}

fn last_error() -> String {
    // SAFETY: the text is valid until the next error of this thread.
    unsafe { CStr::from_ptr(millpond_last_error()) }.to_string_lossy().into_owned()
}

#[test]
fn a_driver_that_fails_once_is_an_error_of_its_own() {
    let pond = Pond::new("policy:classic");
    pond.sim.fail(CallKind::Reserve, 1, Fault::Other);
    assert_eq!(pond.alloc(MIB), Err(Code::Driver as i32));
    assert!(last_error().starts_with("the driver failed in `reserve`: "), "{}", last_error());
    let block = pond.alloc(MIB).unwrap();
    assert_eq!((pond.free(block), pond.allocated()), (0, 0));
    assert_eq!(pond.destroy().1, 0);
}

#[test]
fn a_lost_device_is_told_and_blocks_are_still_freed() {
    let pond = Pond::new("policy:classic");
    let block = pond.alloc(MIB).unwrap();
    let kept = pond.alloc(MIB).unwrap();
    pond.sim.kill();
    assert_eq!(pond.alloc(100 * MIB), Err(Code::DeviceLost as i32));
    assert!(last_error().contains("the device is lost"), "{}", last_error());
    assert_eq!(pond.free(block), 0);
    assert_eq!(pond.free(kept), 0);
    assert_eq!(pond.free(kept), Code::NotABlock as i32);
    assert_eq!(pond.destroy().0, 0);
}

#[test]
fn a_panic_ends_at_the_boundary() {
    let pond = Pond::new("policy:classic");
    pond.sim.panic_in(CallKind::Reserve, 1);
    assert_eq!(pond.alloc(MIB), Err(Code::Internal as i32));
    assert!(last_error().starts_with("a mistake of Millpond's own, please report it: "), "{}", last_error());
    let block = pond.alloc(MIB).unwrap();
    assert_eq!((pond.free(block), pond.allocated()), (0, 0), "the allocator is as it was before the call");
    assert_eq!(pond.destroy().0, 0);
}

#[test]
fn destroying_gives_all_memory_back_with_blocks_still_live() {
    for conf in ["policy:paged", "policy:classic", "policy:direct"] {
        let pond = Pond::new(conf);
        let blocks: Vec<_> = (0..20).map(|i| pond.alloc(1000 << i).unwrap()).collect();
        assert_eq!(pond.free(blocks[7]), 0);
        let (status, live, sim) = pond.destroy();
        assert_eq!((status, live), (0, 19), "{conf}");
        assert_eq!((sim.live(), sim.violations().len()), ((0, 0, 0), 0), "{conf}");
    }
}

#[test]
fn memory_that_another_stream_uses_is_kept_from_others_until_it_is_done() {
    let pond = Pond::new("policy:classic");
    let mut stream = ptr::null_mut();
    // SAFETY: the pointer is to a local variable, and the allocator is not destroyed meanwhile.
    assert_eq!(unsafe { millpond_stream_create(pond.pond, &raw mut stream) }, 0);
    let block = pond.alloc(4 * MIB).unwrap();
    pond.sim.busy(millpond_backend::StreamId(stream.addr() as u32));
    // SAFETY: as above.
    assert_eq!(unsafe { millpond_record_stream(pond.pond, block, stream) }, 0);
    assert_eq!(pond.free(block), 0);
    let other = pond.alloc(4 * MIB).unwrap();
    assert_ne!(other, block, "the other stream still uses it");
    pond.sim.synchronize();
    assert_eq!(pond.alloc(4 * MIB), Ok(block));
    assert_eq!(pond.destroy().1, 2);
}

#[test]
fn a_block_that_is_freed_on_another_stream_is_kept_until_that_one_is_done() {
    let pond = Pond::new("policy:classic");
    let (mut stream, mut block) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the pointers are to local variables, and the allocator is not destroyed meanwhile.
    unsafe {
        assert_eq!(millpond_stream_create(pond.pond, &raw mut stream), 0);
        assert_eq!(millpond_alloc_async(pond.pond, 0, stream, &raw mut block), 0);
        assert!(block.is_null());
        assert_eq!(millpond_free_async(pond.pond, block, stream), 0, "NULL does nothing");
        assert_eq!(millpond_alloc_async(pond.pond, 4 * MIB, ptr::null_mut(), &raw mut block), 0);
        pond.sim.busy(millpond_backend::StreamId(stream.addr() as u32));
        assert_eq!(millpond_free_async(pond.pond, block, stream), 0);
        assert_eq!(millpond_free_async(pond.pond, block, stream), Code::NotABlock as i32);
    }
    assert_eq!(pond.allocated(), 0);
    assert_ne!(pond.alloc(4 * MIB), Ok(block), "the other stream still uses it");
    pond.sim.synchronize();
    assert_eq!(pond.alloc(4 * MIB), Ok(block));
    // It is freed even if the device cannot say what uses it.
    let unknown = ptr::without_provenance_mut(77 << 20);
    // SAFETY: the allocator is not destroyed meanwhile.
    assert_eq!(unsafe { millpond_free_async(pond.pond, block, unknown) }, Code::BadArgument as i32);
    assert_eq!((pond.free(block), pond.allocated()), (Code::NotABlock as i32, 4 * MIB));
    assert_eq!(pond.destroy().1, 1);
}
