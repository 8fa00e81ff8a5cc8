//! What C programs do when memory is short: hooks that run before a request is refused, and forecasts of requests.

use std::ffi::{CString, c_char, c_void};

use millpond::hooks::{Answer, Registration, Shortage};
use millpond::{Allocator, Bound, Fit, ServedBy};
use millpond_backend::Backend;
use parking_lot::Mutex;

use crate::code::Failure;

/// `millpond_shortage` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The header has the documentation.
pub struct CShortage {
    pub size: u32,
    pub attempt: u32,
    pub device: i32,
    pub rejected: i32,
    pub requested_bytes: u64,
    pub tried_bytes: u64,
    pub short_bytes: u64,
    pub limit_bytes: u64,
    pub total_bytes: u64,
    pub allocated_bytes: u64,
    pub reserved_bytes: u64,
    pub text: *const c_char,
}

/// `millpond_hook` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CHook {
    /// What the functions are called with.
    pub user: *mut c_void,
    /// Makes room, and says whether it has.
    pub call: Option<unsafe extern "C" fn(*mut c_void, *const CShortage) -> i32>,
    /// Is told that the hook is over.
    pub end: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// `millpond_fit` of the header.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The header has the documentation.
pub struct CFit {
    pub served_by: i32,
    pub waits: i32,
    pub bound: i32,
    pub reserved: i32,
    pub reserves_bytes: u64,
    pub releases_bytes: u64,
    pub bound_bytes: u64,
    pub short_bytes: u64,
}

impl From<Fit> for CFit {
    fn from(fit: Fit) -> Self {
        let (bound, bound_bytes) = match fit.bound {
            Some(Bound::Limit(bytes)) => (1, bytes),
            Some(Bound::Device(bytes)) => (2, bytes),
            _ => (0, 0),
        };
        let served_by = match fit.served_by {
            ServedBy::Cached => 0,
            ServedBy::Gathered => 1,
            ServedBy::New => 2,
            _ => 3,
        };
        let Fit { reserves_bytes, releases_bytes, short_bytes, .. } = fit;
        let waits = fit.waits.into();
        Self { served_by, waits, bound, reserved: 0, reserves_bytes, releases_bytes, bound_bytes, short_bytes }
    }
}

/// A hook of a program. Its drop says to the program that it is over.
struct Hook {
    user: *mut c_void,
    call: unsafe extern "C" fn(*mut c_void, *const CShortage) -> i32,
    end: Option<unsafe extern "C" fn(*mut c_void)>,
    device: i32,
}

// SAFETY: the header asks for functions that any thread may call, with a `user` that is valid on all of them.
unsafe impl Send for Hook {}
// SAFETY: as above; they may be called at the same time, too.
unsafe impl Sync for Hook {}

impl Hook {
    fn ask(&self, shortage: &Shortage<'_>) -> Answer {
        let report = shortage.report();
        let text = CString::new(shortage.to_string().replace('\0', " ")).unwrap_or_default();
        let told = CShortage {
            size: size_of::<CShortage>() as u32,
            attempt: shortage.attempt(),
            device: self.device,
            rejected: report.rejected.into(),
            requested_bytes: report.requested_bytes,
            tried_bytes: report.tried_bytes,
            short_bytes: report.short_bytes(),
            limit_bytes: report.limit_bytes.unwrap_or(u64::MAX),
            total_bytes: report.total_bytes,
            allocated_bytes: report.allocated_bytes,
            reserved_bytes: report.reserved_bytes,
            text: text.as_ptr(),
        };
        // SAFETY: the header asks for a function of this type that does not unwind, and what is told lives as long as
        // the call.
        match unsafe { (self.call)(self.user, &raw const told) } {
            0 => Answer::Pass,
            _ => Answer::Retry,
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // SAFETY: the header asks for a function of this type that does not unwind, and this is its only call.
            unsafe { end(self.user) }
        }
    }
}

/// The hooks that a program has added to an allocator and not removed, by number.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    last: u64,
    all: Vec<(u64, Registration)>,
}

impl Hooks {
    /// Adds a hook of the caller's to an allocator, and returns its number. On an error the program is told nothing.
    ///
    /// # Safety
    ///
    /// The pointer is null or valid, and the functions do what the header says until `end` is called.
    pub(crate) unsafe fn add<B: Backend>(
        &self,
        to: &Allocator<B>,
        device: u32,
        hook: *const CHook,
    ) -> Result<u64, Failure> {
        // SAFETY: as the caller promises.
        let &CHook { user, call, end } = unsafe { hook.as_ref() }.ok_or_else(|| Failure::null("hook"))?;
        let call = call.ok_or_else(|| Failure::null("hook->call"))?;
        let hook = Hook { user, call, end, device: device as i32 };
        let mut hooks = self.0.lock();
        hooks.last += 1;
        let number = hooks.last;
        hooks.all.push((number, to.on_out_of_memory(move |shortage| hook.ask(shortage))));
        Ok(number)
    }

    /// Removes a hook.
    pub(crate) fn remove(&self, number: u64) -> Result<(), Failure> {
        let mut hooks = self.0.lock();
        let at = hooks.all.iter().position(|&(known, _)| known == number);
        let removed = at.map(|at| hooks.all.remove(at));
        drop(hooks);
        // Its `end` may be called here, with no lock held.
        removed.map(drop).ok_or_else(|| Failure::bad_argument(format!("there is no hook {number}: it was removed")))
    }

    /// Removes all hooks.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.0.lock().all);
        drop(all);
    }
}
