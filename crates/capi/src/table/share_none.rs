//! Memory of pages for other processes, where there are no file descriptors: none.

use std::ffi::c_void;

use super::types::{DmaBuf, Page, Pages};
use crate::boundary;
use crate::code::{Code, Failure};

fn unsupported() -> i32 {
    boundary::status(|| {
        let text =
            "pages are shared as file descriptors, which this system does not have; send a copy through the host";
        Err(Failure::new(Code::Unsupported, text))
    })
}

pub(super) unsafe extern "C" fn share(_address: *const c_void, _sink: *const Pages, _offset: *mut u64) -> i32 {
    unsupported()
}

pub(super) unsafe extern "C" fn export_pages(_: *const c_void, _: u64, _: *const Pages, _: *mut u64) -> i32 {
    unsupported()
}

pub(super) unsafe extern "C" fn export_dma_buf(_: *const c_void, _: u64, _: *mut DmaBuf) -> i32 {
    unsupported()
}

pub(super) unsafe extern "C" fn open_shared(_: i32, _pages: *const Page, _count: u64, _out: *mut *mut c_void) -> i32 {
    unsupported()
}

pub(super) unsafe extern "C" fn close_shared(_address: *mut c_void) -> i32 {
    unsupported()
}
