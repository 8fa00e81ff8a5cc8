//! The types of `millpond_core.h`, which documents them, under its names.

#![allow(missing_docs)] // The header has the documentation.

use std::ffi::{c_char, c_void};

pub use crate::source::CSource as Source;

/// The version of the table: `MILLPOND_CORE_ABI` of the header.
pub const ABI: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub address: *mut c_void,
    pub context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Pool {
    pub first: u64,
    pub second: u64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub address: u64,
    pub bytes: u64,
    pub device: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stat {
    pub current: i64,
    pub peak: i64,
    pub allocated: i64,
    pub freed: i64,
}

/// The figures of both pools together, of the small one and of the large one.
pub type Family = [Stat; 3];

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    pub allocation: Family,
    pub segment: Family,
    pub active: Family,
    pub inactive_split: Family,
    pub allocated_bytes: Family,
    pub reserved_bytes: Family,
    pub active_bytes: Family,
    pub inactive_split_bytes: Family,
    pub requested_bytes: Family,
    pub oversize_allocations: Stat,
    pub oversize_segments: Stat,
    pub num_alloc_retries: i64,
    pub num_ooms: i64,
    pub num_sync_all_streams: i64,
    pub num_device_alloc: i64,
    pub num_device_free: i64,
    pub num_oom_rejections: i64,
    pub max_split_size: i64,
}

/// `millpond_group` of `millpond.h`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GroupInfo {
    pub allocated_bytes: u64,
    pub reserved_bytes: u64,
    pub paused_bytes: u64,
    pub host_bytes: u64,
    pub is_paused: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub limit_bytes: u64,
    pub reserved_bytes: u64,
    pub allocated_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Oom {
    pub device: i32,
    pub rejected: i32,
    pub requested_bytes: u64,
    pub tried_bytes: u64,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub limit_bytes: u64,
    pub allocated_bytes: u64,
    pub reserved_bytes: u64,
    pub explanation: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub address: u64,
    pub bytes: u64,
    pub stream: *mut c_void,
    pub pool: Pool,
    pub is_large: i32,
    pub is_expandable: i32,
    pub id: u64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    pub address: u64,
    pub bytes: u64,
    pub requested_bytes: u64,
    pub state: i32,
    pub reserved: i32,
}

/// The states of a tile: `MILLPOND_CORE_FREE` and so on.
pub const FREE: i32 = 0;
pub const LIVE: i32 = 1;
pub const PENDING: i32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    pub user: *mut c_void,
    pub segment: Option<unsafe extern "C" fn(user: *mut c_void, segment: *const Segment)>,
    pub tile: Option<unsafe extern "C" fn(user: *mut c_void, tile: *const Tile)>,
}

/// `millpond_core_pools` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolsSink {
    pub user: *mut c_void,
    pub pool: Option<unsafe extern "C" fn(user: *mut c_void, pool: Pool, reserved_bytes: *const Stat)>,
}

/// What happened to the driver's memory: `MILLPOND_CORE_SEGMENT_ALLOC` and so on.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    SegmentAlloc = 3,
    SegmentFree = 4,
    SegmentMap = 5,
    SegmentUnmap = 6,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub kind: Kind,
    pub device: i32,
    pub address: u64,
    pub bytes: u64,
    pub stream: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub size: u32,
    pub reserved: u32,
    pub free_memory: Option<unsafe extern "C" fn(device: i32) -> i32>,
    pub event: Option<unsafe extern "C" fn(event: *const Event)>,
}

/// The properties of a private pool: `MILLPOND_CORE_USE_ON_OOM` and so on.
pub const USE_ON_OOM: u32 = 1;
pub const NO_SPLIT: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    pub user: *mut c_void,
    pub freed: Option<unsafe extern "C" fn(user: *mut c_void, place: *const Place)>,
    pub made: Option<unsafe extern "C" fn(user: *mut c_void, block: *const Block)>,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    pub bytes: u64,
    pub number: u64,
    pub descriptor: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaBuf {
    pub bytes: u64,
    pub offset: u64,
    pub descriptor: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    pub user: *mut c_void,
    pub page: Option<unsafe extern "C" fn(user: *mut c_void, page: *const Page)>,
}
