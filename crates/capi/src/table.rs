//! The table of functions of `millpond_core.h`, which documents them: the boundary for bindings to frameworks.
//!
//! There is one allocator for each device, made at its first use (`ponds`). Blocks of all devices are in one tree of
//! addresses: a block's context is the place of its entry there, so that a free by context looks nothing up.
//!
//! # Safety
//!
//! As for [`crate::api`], and a context is one that `alloc` returned.

mod blocks;
mod calls;
mod checkpoints;
mod layout;
mod pond;
mod ponds;
mod pools;
mod record;
#[cfg(unix)]
mod share;
#[cfg(not(unix))]
#[path = "table/share_none.rs"]
mod share;
mod told;
pub mod types;

pub use checkpoints::Taken;
pub(crate) use ponds::disown;
pub use record::Recording;

use types::{ABI, Core};

use crate::api;

static TABLE: Core = Core {
    abi: ABI,
    size: size_of::<Core>() as u32,
    last_error: api::millpond_last_error,
    string_free: api::millpond_string_free,
    configure: calls::configure,
    configuration: calls::configuration,
    lend: calls::lend,
    alloc: blocks::alloc,
    free: blocks::free,
    record_stream: blocks::record_stream,
    find: blocks::find,
    at: blocks::at,
    base_of: layout::base_of,
    empty_cache: calls::empty_cache,
    set_fraction: calls::set_fraction,
    get_fraction: calls::get_fraction,
    limits: calls::limits,
    largest_free: layout::largest_free,
    oom: blocks::oom,
    stats: calls::stats,
    usage: calls::usage,
    reset_peaks: calls::reset_peaks,
    reset_totals: calls::reset_totals,
    stats_json: calls::stats_json,
    summary: calls::summary,
    layout: layout::layout,
    trace: calls::trace,
    pool_ref: pools::pool_ref,
    pool_unref: pools::pool_unref,
    pool_uses: pools::pool_uses,
    pool_flags: pools::pool_flags,
    capture_begin: pools::capture_begin,
    capture_end: pools::capture_end,
    record_start: record::record_start,
    record_stop: record::record_stop,
    checkpoint_take: checkpoints::checkpoint_take,
    checkpoint_set: checkpoints::checkpoint_set,
    checkpoint_drop: checkpoints::checkpoint_drop,
    open_to: calls::open_to,
    share: share::share,
    open_shared: share::open_shared,
    close_shared: share::close_shared,
    alloc_at: blocks::alloc_at,
    record_take: record::record_take,
    recording_write: record::recording_write,
    recording_drop: record::recording_drop,
    header_check: record::header_check,
};

/// Returns the table of a version; null if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_core_get(abi: u32) -> *const Core {
    if abi == ABI { &raw const TABLE } else { std::ptr::null() }
}
