//! Why a group cannot be paused or resumed.

use std::fmt;

use millpond_backend::StreamId;
use millpond_core::PoolId;

use crate::text::{format_bytes, format_bytes_up};

/// Why a group was not paused, or a pool not added to it. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PauseError {
    /// A stream that uses the group, or is in a pool of it, is being captured: the end of its work cannot be waited
    /// for.
    Capturing {
        /// The name of the group.
        group: Box<str>,
        /// The stream.
        stream: StreamId,
    },
    /// The pool belongs to another group.
    OtherGroup {
        /// The name of the group that the pool was to be added to.
        group: Box<str>,
        /// The pool.
        pool: PoolId,
    },
    /// The segments of the pool come from a source, which alone could give their memory back.
    Sourced {
        /// The name of the group that the pool was to be added to.
        group: Box<str>,
        /// The pool.
        pool: PoolId,
    },
    /// Pages of the group were exported to other processes, which would keep them.
    Shared {
        /// The name of the group.
        group: Box<str>,
        /// The bytes of these pages.
        bytes: u64,
    },
    /// The host has no memory for the contents.
    NoHostMemory {
        /// The name of the group.
        group: Box<str>,
        /// The bytes that were to be kept.
        bytes: u64,
    },
}

impl fmt::Display for PauseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capturing { group, stream } => write!(
                f,
                "the group {group:?} cannot be paused while {stream} is being captured: end the capture first"
            ),
            Self::OtherGroup { group, pool } => write!(
                f,
                "{pool} cannot be added to the group {group:?}: it belongs to another group, and a pool is paused with \
                 one group only"
            ),
            Self::Sourced { group, pool } => write!(
                f,
                "{pool} cannot be added to the group {group:?}: another allocator supplies its memory; create the pool \
                 with `create_pool`"
            ),
            Self::Shared { group, bytes } => write!(
                f,
                "the group {group:?} cannot be paused: {} ({bytes} bytes) of its pages were exported, and another \
                 process may use them; allocate what is shared outside of the group",
                format_bytes(*bytes)
            ),
            Self::NoHostMemory { group, bytes } => write!(
                f,
                "the group {group:?} cannot be paused with its contents: the host has no {} ({bytes} bytes) for them; \
                 free host memory, or discard the contents (`Keep::Discard`, in Python `keep=\"discard\"`, in C \
                 `MILLPOND_DISCARD`)",
                format_bytes(*bytes)
            ),
        }
    }
}

impl std::error::Error for PauseError {}

/// Why a group was not resumed: there is no memory for all of its pages. It is paused, as before.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResumeError {
    /// The name of the group.
    pub group: Box<str>,
    /// The bytes of its pages, all of which are needed.
    pub needed_bytes: u64,
    /// The bytes that the driver granted before it had no more; it got them back. `None` if the limit was in the way.
    pub granted_bytes: Option<u64>,
    /// The bytes that the allocator has reserved, after everything cached was released.
    pub reserved_bytes: u64,
    /// The limit on reserved bytes, if there is one.
    pub limit_bytes: Option<u64>,
    /// The bytes that other processes hold, where the platform reports it.
    pub others_bytes: Option<u64>,
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, needed_bytes, granted_bytes, reserved_bytes, limit_bytes, others_bytes } = self;
        let (needed, reserved) = (format_bytes(*needed_bytes), format_bytes(*reserved_bytes));
        write!(f, "the group {group:?} stays paused: its pages need {needed}, and ")?;
        match granted_bytes {
            Some(granted) => write!(f, "the driver had {} left", format_bytes(*granted))?,
            None => write!(f, "the limit is {}", format_bytes(limit_bytes.unwrap_or(0)))?,
        }
        write!(f, ", with {reserved} reserved by this allocator")?;
        if let Some(others) = others_bytes.filter(|_| granted_bytes.is_some()) {
            write!(f, " and {} by other processes", format_bytes(others))?;
        }
        let left = granted_bytes.unwrap_or_else(|| limit_bytes.unwrap_or(0).saturating_sub(*reserved_bytes));
        let missing = format_bytes_up(needed_bytes.saturating_sub(left));
        let raise = if granted_bytes.is_none() { format!("raise the limit by {missing}, ") } else { String::new() };
        write!(f, "; {raise}free {missing}, or pause another group. Then resume again")
    }
}

impl std::error::Error for ResumeError {}
