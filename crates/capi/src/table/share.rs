//! Memory for other processes and other drivers: exported as file descriptors, and imported from them.
//!
//! Simulated devices have their bytes in the memory of one process and share none.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::ptr;

use millpond_cuda::{Cuda, CudaError, Imported, SharedRun};
use parking_lot::Mutex;

use super::pond::Pond;
use super::types::{DmaBuf, Page, Pages, Place};
use super::{blocks, ponds};
use crate::boundary::{self, Out};
use crate::code::{Code, Failure};
use crate::devices::SHARES_PAGES;
use crate::fork;

/// What was imported and not ended, by its address: the device, and the memory.
static IMPORTS: Mutex<BTreeMap<u64, (i32, Imported)>> = Mutex::new(BTreeMap::new());

/// The most pages of one import: as many as there are descriptors in a process.
const MOST_PAGES: u64 = 1 << 31;

/// Returns a device of CUDA's.
fn cuda(pond: &Pond) -> Result<&Cuda, Failure> {
    match pond {
        Pond::Cuda(of) => Ok(of.served.allocator.backend().device()),
        Pond::Sim(_) => Err(Failure::new(
            Code::Unsupported,
            "the memory of a simulated device is that of one process; share memory of a CUDA device",
        )),
    }
}

/// Returns the failure of an export. What keeps pages from being shared here is not a setting of the device's.
#[cold]
fn refused(error: CudaError) -> Failure {
    if let CudaError::NotShareable { device, supported: true } = error {
        let text = format!("the pages of device {device} cannot be shared: {SHARES_PAGES} is 0; unset it");
        return Failure::new(Code::Unsupported, text);
    }
    error.into()
}

pub(super) unsafe extern "C" fn share(address: *const c_void, sink: *const Pages, offset: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let (sink, offset) = unsafe { (sink.as_ref(), Out::required("offset", offset)?) };
        let sink = sink.ok_or_else(|| Failure::null("sink"))?;
        let place = blocks::around(address.addr() as u64)?;
        let run = cuda(ponds::get(place.device)?)?.export(place.address, place.bytes).map_err(refused)?;
        // SAFETY: the caller promises that the function is of the type that the header has.
        unsafe { tell(sink, &run) };
        offset.put(run.offset + (address.addr() as u64 - place.address));
        Ok(())
    })
}

/// Returns the live block that has these bytes in it.
fn around(address: u64, bytes: u64) -> Result<Place, Failure> {
    let place = blocks::around(address)?;
    let rest = place.bytes - (address - place.address);
    if bytes == 0 || bytes > rest {
        let text = format!("{bytes} bytes at {address:#x} are named, and the block has {rest} there: name 1 to {rest}");
        return Err(Failure::bad_argument(text));
    }
    Ok(place)
}

pub(super) unsafe extern "C" fn export_pages(
    address: *const c_void,
    bytes: u64,
    sink: *const Pages,
    offset: *mut u64,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let (sink, offset) = unsafe { (sink.as_ref(), Out::required("offset", offset)?) };
        let sink = sink.ok_or_else(|| Failure::null("sink"))?;
        let address = address.addr() as u64;
        let device = around(address, bytes)?.device;
        let run = cuda(ponds::get(device)?)?.export(address, bytes).map_err(refused)?;
        // SAFETY: the caller promises that the function is of the type that the header has.
        unsafe { tell(sink, &run) };
        offset.put(run.offset);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn export_dma_buf(address: *const c_void, bytes: u64, out: *mut DmaBuf) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let address = address.addr() as u64;
        let device = around(address, bytes)?.device;
        let made = cuda(ponds::get(device)?)?.export_dma_buf(address, bytes)?;
        let (bytes, offset) = (made.bytes, made.offset);
        out.put(DmaBuf { bytes, offset, descriptor: made.descriptor.into_raw_fd(), reserved: 0 });
        Ok(())
    })
}

/// Passes on the pages of a run.
///
/// # Safety
///
/// The function of the sink takes what it is given.
unsafe fn tell(sink: &Pages, run: &SharedRun) {
    let Some(told) = sink.page else { return };
    for page in &run.pages {
        let page =
            Page { bytes: page.bytes, number: page.number, descriptor: page.descriptor.as_raw_fd(), reserved: 0 };
        // SAFETY: as the caller promises; the page lives as long as the call.
        unsafe { told(sink.user, &raw const page) };
    }
}

pub(super) unsafe extern "C" fn open_shared(device: i32, pages: *const Page, count: u64, out: *mut *mut c_void) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        if pages.is_null() {
            return Err(Failure::null("pages"));
        }
        if count == 0 || count > MOST_PAGES {
            return Err(Failure::bad_argument(format!("{count} pages are named; an import has at least one")));
        }
        // SAFETY: the pointer is not null, and the caller promises `count` pages behind it.
        let pages = unsafe { std::slice::from_raw_parts(pages, count as usize) };
        if let Some(page) = pages.iter().find(|page| page.descriptor < 0) {
            return Err(Failure::bad_argument(format!("{} is no file descriptor", page.descriptor)));
        }
        // SAFETY: the caller promises that the descriptors are open during the call; they are not -1, as checked.
        let borrowed = |page: &Page| (unsafe { BorrowedFd::borrow_raw(page.descriptor) }, page.bytes);
        let imported = cuda(ponds::get(device)?)?.import(&pages.iter().map(borrowed).collect::<Vec<_>>())?;
        let address = imported.address();
        IMPORTS.lock().insert(address, (device, imported));
        out.put(ptr::with_exposed_provenance_mut(address as usize));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn close_shared(address: *mut c_void) -> i32 {
    boundary::status(|| {
        if address.is_null() {
            return Ok(());
        }
        fork::DEVICES.check()?;
        let address = address.addr() as u64;
        let ended = IMPORTS.lock().remove(&address);
        let (device, imported) = ended.ok_or_else(|| {
            let text = format!("{address:#x} is not the address of an import: it was closed before, or is elsewhere");
            Failure::bad_argument(text)
        })?;
        // SAFETY: the caller promises that no work uses the memory any more.
        unsafe { cuda(ponds::get(device)?)?.end_import(imported) };
        Ok(())
    })
}
