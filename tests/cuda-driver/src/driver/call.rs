//! What every exported function does first.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::code::{Answer, Code};
use crate::driver::{plan, stop, thread, world};
use crate::ffi::host;

static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// The state that a function needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// `cuInit` was called.
    Init,
    /// A context is current and in order.
    Context,
    /// `cuInit` was called, and the current context, if any, is in order: pages and ranges belong to no context.
    Pages,
}

pub(crate) fn initialize() {
    INITIALIZED.store(true, Ordering::Release);
}

/// Counts a call, stops it if a test has asked for that, fails it if that is planned, checks what the function needs,
/// and runs it. The body gets the device of the current context, or 0 if it needs none.
pub(crate) fn call(function: &'static str, need: Need, body: impl FnOnce(usize) -> Answer) -> u32 {
    stop::stand(function);
    match enter(function, need).and_then(body) {
        Ok(()) => 0,
        Err(code) => code.0,
    }
}

fn enter(function: &'static str, need: Need) -> Result<usize, Code> {
    if need == Need::Nothing {
        return plan::strike(function, false).map(|()| 0);
    }
    if host::inside() {
        return Err(Code::NOT_PERMITTED);
    }
    if !INITIALIZED.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    // A failure that is planned for any call applies to those that work with a context or with pages.
    plan::strike(function, need != Need::Init)?;
    match (need, thread::current()) {
        (Need::Context, None) => Err(Code::INVALID_CONTEXT),
        (Need::Context | Need::Pages, Some(device)) => world::lock().contexts[device].usable().map(|()| device),
        _ => Ok(0),
    }
}
