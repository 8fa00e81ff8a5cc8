//! The table of functions of `millpond_core.h`, which documents them: the boundary for bindings to frameworks.
//!
//! There is one allocator for each device, made at its first use (`ponds`). Blocks of all devices are in one tree of
//! addresses: a block's context is the place of its entry there, so that a free by context looks nothing up.
//!
//! # Safety
//!
//! As for [`crate::api`], and a context is one that `alloc` returned.

pub(crate) mod blocks;
mod calls;
pub(crate) mod groups;
mod layout;
pub(crate) mod live;
mod named;
mod oom;
pub(crate) mod opened;
pub(crate) mod pond;
pub(crate) mod ponds;
mod pools;
mod record;
mod settings;
#[cfg(unix)]
mod share;
#[cfg(not(unix))]
#[path = "table/share_none.rs"]
mod share;
mod shortage;
mod told;
pub mod types;

use std::ffi::{c_char, c_int, c_void};

pub use pools::Taken;
pub use record::Recording;
use types::{
    ABI, Block, Delta, DmaBuf, GroupInfo, Host, Limits, Oom, Page, Pages, Place, Pool, PoolsSink, Segment, Sink,
    Source, Stats,
};

use crate::api;
use crate::shortage::{CFit, CHook};
use crate::statistics::Usage;

/// `millpond_core_v1` of the header, in its order.
#[repr(C)]
#[allow(missing_docs)] // The header has the documentation.
pub struct Core {
    pub abi: u32,
    pub size: u32,
    pub last_error: extern "C" fn() -> *const c_char,
    pub string_free: unsafe extern "C" fn(*mut c_char),
    pub configure: unsafe extern "C" fn(*const c_char) -> i32,
    pub configuration: unsafe extern "C" fn(*mut *mut c_char) -> i32,
    pub lend: unsafe extern "C" fn(*const Host) -> i32,
    pub alloc: unsafe extern "C" fn(i32, *mut c_void, u64, *const Pool) -> Block,
    pub free: unsafe extern "C" fn(*mut c_void) -> i32,
    pub record_stream: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32,
    pub find: unsafe extern "C" fn(*const c_void, *mut Place) -> i32,
    pub at: unsafe extern "C" fn(*const c_void, *mut Place) -> i32,
    pub base_of: unsafe extern "C" fn(*const c_void, *mut Segment) -> i32,
    pub empty_cache: unsafe extern "C" fn(i32, *const Pool) -> i32,
    pub set_fraction: extern "C" fn(i32, f64) -> i32,
    pub get_fraction: unsafe extern "C" fn(i32, *mut f64) -> i32,
    pub limits: unsafe extern "C" fn(i32, *mut Limits) -> i32,
    pub largest_free: unsafe extern "C" fn(i32, *mut u64) -> i32,
    pub oom: unsafe extern "C" fn(*mut Oom) -> i32,
    pub stats: unsafe extern "C" fn(i32, *mut Stats) -> i32,
    pub usage: unsafe extern "C" fn(i32, *mut Usage) -> i32,
    pub reset_peaks: extern "C" fn(i32) -> i32,
    pub reset_totals: extern "C" fn(i32) -> i32,
    pub stats_json: unsafe extern "C" fn(i32, *mut *mut c_char) -> i32,
    pub summary: unsafe extern "C" fn(i32, c_int, *mut *mut c_char) -> i32,
    pub layout: unsafe extern "C" fn(i32, *const Pool, *const Sink) -> i32,
    pub trace: extern "C" fn(i32) -> i32,
    pub pool_ref: unsafe extern "C" fn(i32, Pool, *const Source) -> i32,
    pub pool_unref: extern "C" fn(i32, Pool) -> i32,
    pub pool_uses: unsafe extern "C" fn(i32, Pool, *mut i64) -> i32,
    pub pool_flags: extern "C" fn(i32, Pool, u32, i32) -> i32,
    pub capture_begin: extern "C" fn(i32, Pool, *mut c_void) -> i32,
    pub capture_end: extern "C" fn(i32, Pool) -> i32,
    pub record_start: extern "C" fn(i32) -> i32,
    pub record_stop: unsafe extern "C" fn(i32, *const c_char, *const c_char) -> i32,
    pub checkpoint_take: unsafe extern "C" fn(i32, Pool, *mut *mut Taken) -> i32,
    pub checkpoint_set: unsafe extern "C" fn(i32, *const Taken, *const Delta) -> i32,
    pub checkpoint_drop: unsafe extern "C" fn(*mut Taken),
    pub open_to: extern "C" fn(i32, i32) -> i32,
    pub share: unsafe extern "C" fn(*const c_void, *const Pages, *mut u64) -> i32,
    pub open_shared: unsafe extern "C" fn(i32, *const Page, u64, *mut *mut c_void) -> i32,
    pub close_shared: unsafe extern "C" fn(*mut c_void) -> i32,
    pub alloc_at: unsafe extern "C" fn(i32, *mut c_void, u64, *mut c_void, *const Pool) -> Block,
    pub record_take: unsafe extern "C" fn(i32, *mut *mut Recording) -> i32,
    pub recording_write: unsafe extern "C" fn(*mut Recording, *const c_char, *const c_char) -> i32,
    pub recording_drop: unsafe extern "C" fn(*mut Recording),
    pub header_check: unsafe extern "C" fn(*const c_char) -> i32,
    pub group_add_pool: unsafe extern "C" fn(i32, *const c_char, Pool) -> i32,
    pub group_pause: unsafe extern "C" fn(i32, *const c_char, i32) -> i32,
    pub group_resume: unsafe extern "C" fn(i32, *const c_char) -> i32,
    pub group_info: unsafe extern "C" fn(i32, *const c_char, *mut GroupInfo) -> i32,
    pub peak_open: unsafe extern "C" fn(i32, *mut u64) -> i32,
    pub peak_json: unsafe extern "C" fn(i32, u64, *mut *mut c_char) -> i32,
    pub peak_close: extern "C" fn(i32, u64) -> i32,
    pub poll: unsafe extern "C" fn(i32, *mut u64) -> i32,
    pub hook_add: unsafe extern "C" fn(i32, *const CHook, *mut u64) -> i32,
    pub hook_remove: extern "C" fn(i32, u64) -> i32,
    pub would_fit: unsafe extern "C" fn(i32, *mut c_void, u64, *mut CFit) -> i32,
    pub export_pages: unsafe extern "C" fn(*const c_void, u64, *const Pages, *mut u64) -> i32,
    pub export_dma_buf: unsafe extern "C" fn(*const c_void, u64, *mut DmaBuf) -> i32,
    pub keys: unsafe extern "C" fn(*mut *mut c_char) -> i32,
    pub unserved: unsafe extern "C" fn(*mut *mut c_char) -> i32,
    pub reconfigure: unsafe extern "C" fn(*const c_char, *mut *mut c_char, *mut *mut c_char) -> i32,
    pub pools_stats: unsafe extern "C" fn(i32, *const PoolsSink) -> i32,
}

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
    oom: oom::oom,
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
    checkpoint_take: pools::checkpoint_take,
    checkpoint_set: pools::checkpoint_set,
    checkpoint_drop: pools::checkpoint_drop,
    open_to: calls::open_to,
    share: share::share,
    open_shared: share::open_shared,
    close_shared: share::close_shared,
    alloc_at: blocks::alloc_at,
    record_take: record::record_take,
    recording_write: record::recording_write,
    recording_drop: record::recording_drop,
    header_check: record::header_check,
    group_add_pool: groups::group_add_pool,
    group_pause: groups::group_pause,
    group_resume: groups::group_resume,
    group_info: groups::group_info,
    peak_open: calls::peak_open,
    peak_json: calls::peak_json,
    peak_close: calls::peak_close,
    poll: calls::poll,
    hook_add: shortage::hook_add,
    hook_remove: shortage::hook_remove,
    would_fit: shortage::would_fit,
    export_pages: share::export_pages,
    export_dma_buf: share::export_dma_buf,
    keys: settings::keys,
    unserved: settings::unserved,
    reconfigure: settings::reconfigure,
    pools_stats: pools::pools_stats,
};

/// Returns the table of a version; null if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_core_get(abi: u32) -> *const Core {
    if abi == ABI { &raw const TABLE } else { std::ptr::null() }
}
