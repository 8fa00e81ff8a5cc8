//! Error scopes: wgpu's own, and for each what a submit raised in it.
//!
//! wgpu raises its errors in the scopes of its own device, so each scope of an engine is one of those. Submits go
//! through Millpond, which returns their errors as values: they are raised here. Knows nothing of buffers.

use std::cell::RefCell;
use std::pin::Pin;

use wgpu::custom::PopErrorScopeFuture;
use wgpu::{Error, ErrorFilter, ErrorScopeGuard};

thread_local! {
    /// The open scopes of this thread, outermost first. wgpu keeps them by thread as well.
    static OPEN: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// An open scope of an engine.
struct Scope {
    /// The number that the engine knows it by.
    number: u32,
    /// The device, by its address.
    device: usize,
    filter: ErrorFilter,
    guard: ErrorScopeGuard,
    /// The first error of a submit in it.
    raised: Option<Error>,
}

/// Opens a scope of a device, and returns its number on this thread.
pub(crate) fn open(device: usize, filter: ErrorFilter, guard: ErrorScopeGuard) -> u32 {
    OPEN.with_borrow_mut(|open| {
        let number = open.iter().map(|scope| scope.number + 1).max().unwrap_or(0);
        open.push(Scope { number, device, filter, guard, raised: None });
        number
    })
}

/// Closes a scope. Its error is wgpu's, if there is one: what a submit raises follows from that.
///
/// # Panics
///
/// If the scope was opened on another thread.
pub(crate) fn close(number: u32) -> Pin<Box<dyn PopErrorScopeFuture>> {
    let scope = OPEN.with_borrow_mut(|open| {
        let place = open.iter().rposition(|scope| scope.number == number);
        open.remove(place.expect("the error scope was opened on another thread"))
    });
    let (raised, own) = (scope.raised, scope.guard.pop());
    Box::pin(async move { own.await.or(raised) })
}

/// Raises an error of a device in the innermost scope of this thread that takes it. Returns the error if there is none.
pub(crate) fn raise(device: usize, error: Error) -> Option<Error> {
    let filter = match error {
        Error::OutOfMemory { .. } => ErrorFilter::OutOfMemory,
        Error::Validation { .. } => ErrorFilter::Validation,
        Error::Internal { .. } => ErrorFilter::Internal,
    };
    OPEN.with_borrow_mut(|open| {
        let takes = |scope: &&mut Scope| scope.device == device && scope.filter == filter;
        let Some(scope) = open.iter_mut().rev().find(takes) else { return Some(error) };
        scope.raised.get_or_insert(error);
        None
    })
}
