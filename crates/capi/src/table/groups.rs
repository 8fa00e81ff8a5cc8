//! The functions on groups: private pools that are paused and resumed together.

use std::ffi::c_char;

use millpond::{Group, GroupStats, Keep};

use super::pond::{Of, on};
use super::ponds;
use super::told::Told;
use super::types::{GroupInfo, Pool};
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::device::Device;

impl<D: Device> Of<D> {
    fn group(&self, name: &str) -> Result<Group<Told<D>>, Failure> {
        Ok(self.served.allocator.group(name)?)
    }
}

/// Returns what a number says about contents.
pub(crate) fn keep_of(number: i32) -> Result<Keep, Failure> {
    match number {
        0 => Ok(Keep::Discard),
        1 => Ok(Keep::Host),
        other => Err(Failure::bad_argument(format!("`keep` is {other}; use 0 to discard contents, 1 to keep them"))),
    }
}

impl From<GroupStats> for GroupInfo {
    fn from(stats: GroupStats) -> Self {
        Self {
            allocated_bytes: stats.allocated_bytes,
            reserved_bytes: stats.reserved_bytes,
            paused_bytes: stats.paused_bytes,
            host_bytes: stats.host_bytes,
            is_paused: i32::from(stats.is_paused),
            reserved: 0,
        }
    }
}

pub(super) unsafe extern "C" fn group_add_pool(device: i32, name: *const c_char, pool: Pool) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or a text.
        let name = unsafe { boundary::text("name", name) }?;
        on!(ponds::get(device)?, of => Ok(of.group(name)?.add(&of.pools.held(pool)?)?))
    })
}

pub(super) unsafe extern "C" fn group_pause(device: i32, name: *const c_char, keep: i32) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or a text.
        let name = unsafe { boundary::text("name", name) }?;
        let keep = keep_of(keep)?;
        on!(ponds::get(device)?, of => Ok(of.group(name)?.pause(keep)?))
    })
}

pub(super) unsafe extern "C" fn group_resume(device: i32, name: *const c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or a text.
        let name = unsafe { boundary::text("name", name) }?;
        on!(ponds::get(device)?, of => Ok(of.group(name)?.resume()?))
    })
}

pub(super) unsafe extern "C" fn group_info(device: i32, name: *const c_char, out: *mut GroupInfo) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null, or a text and valid.
        let (name, out) = unsafe { (boundary::text("name", name)?, Out::required("out", out)?) };
        out.put(on!(ponds::get(device)?, of => of.group(name)?.stats()).into());
        Ok(())
    })
}
