//! What a lent device has not.

/// Panics over something that is not computing.
pub(crate) fn refuse(what: &str) -> ! {
    panic!("a lent device computes only: it has no {what}")
}
