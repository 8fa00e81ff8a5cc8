//! What a governor is told about a request, and what it returns.

use crate::stats::Sharing;

/// What is known when a request needs memory. Numbers are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// What the request gets.
    pub(crate) wanted: u64,
    /// The peak of live bytes in the request's pool, including the request.
    pub(crate) high_live: u64,
    /// What is reserved for that pool.
    pub(crate) reserved: u64,
    /// Whether the device still uses free memory for which the request would have to wait.
    pub(crate) is_behind: bool,
    /// How streams share the device, as far as that is known.
    pub(crate) sharing: Sharing,
    /// Whether that may still be found out.
    pub(crate) may_find_out: bool,
}

/// How much may be created for a request. Both are numbers of reserved bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Creation {
    /// Up to here pages are created before free memory is used after waits, or gathered.
    pub(crate) eager: u64,
    /// Up to here pages are created instead of having the stream wait. `None`: none are, but small requests get the
    /// eager ones before a wait.
    pub(crate) instead_of_waiting: Option<u64>,
}
