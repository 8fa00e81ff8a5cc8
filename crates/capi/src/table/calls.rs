//! Set-up, limits and statistics.

use std::ffi::{c_char, c_int};

use millpond::summary::Terms;
use millpond_backend::{Backend, ClassId};

use super::opened;
use super::pond::{Pond, on};
use super::types::{Family, Host, Limits, Pool, Stat, Stats};
use super::{ponds, told};
use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::device::Device;
use crate::statistics::{self, Usage, usage_of};

pub(super) unsafe extern "C" fn configure(conf: *const c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let conf = if conf.is_null() { None } else { Some(unsafe { boundary::text("conf", conf) }?) };
        ponds::configure(conf)
    })
}

pub(super) unsafe extern "C" fn configuration(out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(boundary::give_text(&ponds::configuration()?));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn lend(host: *const Host) -> i32 {
    boundary::status(|| {
        if host.is_null() {
            return Err(Failure::null("host"));
        }
        // SAFETY: it is not null, and the caller promises that it is valid.
        let size = unsafe { (*host).size } as usize;
        if size < size_of::<Host>() {
            let text = format!("the host lends {size} bytes of functions, and {} are needed", size_of::<Host>());
            return Err(Failure::bad_argument(text));
        }
        told::lend(host);
        Ok(())
    })
}

pub(super) extern "C" fn trace(on: i32) -> i32 {
    told::turn(on != 0);
    0
}

pub(super) unsafe extern "C" fn empty_cache(device: i32, pool: *const Pool) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let pool = unsafe { pool.as_ref() }.filter(|pool| **pool != Pool::default());
        let Some(pond) = opened::of_device(device)? else { return Ok(()) };
        on!(pond, of => match pool {
            None => of.served.empty_cache()?,
            Some(pool) => if let Some(id) = of.pools.id_of(*pool) { of.served.allocator.empty_cache_of(id)? },
        });
        Ok(())
    })
}

pub(super) unsafe extern "C" fn poll(device: i32, released: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let released = unsafe { Out::optional(released) };
        released.put(match opened::of_device(device)? {
            Some(pond) => on!(pond, of => of.served.allocator.poll()?),
            None => 0,
        });
        Ok(())
    })
}

pub(super) extern "C" fn open_to(device: i32, other: i32) -> i32 {
    boundary::status(|| {
        let other = ponds::number(other)?;
        on!(ponds::get(device)?, of => of.served.allocator.backend().open_to(other))
    })
}

pub(super) extern "C" fn set_fraction(device: i32, fraction: f64) -> i32 {
    boundary::status(|| ponds::set_fraction(device, fraction))
}

pub(super) unsafe extern "C" fn get_fraction(device: i32, out: *mut f64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(ponds::fraction(device)?);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn limits(device: i32, out: *mut Limits) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let limits = on!(ponds::get(device)?, of => Limits {
            total_bytes: of.served.allocator.backend().caps().class(ClassId::DEVICE).total_bytes,
            free_bytes: of.free_bytes()?,
            limit_bytes: of.served.allocator.limit().unwrap_or(u64::MAX),
            reserved_bytes: of.served.allocator.memory_reserved(),
            allocated_bytes: of.served.allocator.memory_allocated(),
        });
        out.put(limits);
        Ok(())
    })
}

fn stat(of: &millpond::stats::Stat) -> Stat {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (current, peak) = (number(of.current), number(of.peak));
    Stat { current, peak, allocated: number(of.allocated), freed: number(of.freed) }
}

pub(super) fn family(of: &millpond::stats::StatByPool) -> Family {
    [stat(&of.all), stat(&of.small_pool), stat(&of.large_pool)]
}

fn stats_of(pond: &Pond) -> Stats {
    let stats = on!(pond, of => of.served.allocator.stats());
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Stats {
        allocation: family(&stats.allocation),
        segment: family(&stats.segment),
        active: family(&stats.active),
        inactive_split: family(&stats.inactive_split),
        allocated_bytes: family(&stats.allocated_bytes),
        reserved_bytes: family(&stats.reserved_bytes),
        active_bytes: family(&stats.active_bytes),
        inactive_split_bytes: family(&stats.inactive_split_bytes),
        requested_bytes: family(&stats.requested_bytes),
        oversize_allocations: stat(&stats.oversize_allocations),
        oversize_segments: stat(&stats.oversize_segments),
        num_alloc_retries: number(stats.num_alloc_retries),
        num_ooms: number(stats.num_ooms),
        num_sync_all_streams: number(stats.num_sync_all_streams),
        num_device_alloc: number(stats.num_device_alloc),
        num_device_free: number(stats.num_device_free),
        num_oom_rejections: number(stats.num_oom_rejections),
        max_split_size: stats.max_split_size.map_or(-1, number),
    }
}

pub(super) unsafe extern "C" fn stats(device: i32, out: *mut Stats) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let unused = || Stats { max_split_size: -1, ..Stats::default() };
        out.put(opened::of_device(device)?.map_or_else(unused, stats_of));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn usage(device: i32, out: *mut Usage) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let stats = opened::of_device(device)?.map(|pond| on!(pond, of => of.served.allocator.stats()));
        out.put(usage_of(&stats.unwrap_or_default()));
        Ok(())
    })
}

pub(super) extern "C" fn reset_peaks(device: i32) -> i32 {
    boundary::status(|| {
        opened::of_device(device)?.into_iter().for_each(|pond| on!(pond, of => of.served.allocator.reset_peak_stats()));
        Ok(())
    })
}

pub(super) extern "C" fn reset_totals(device: i32) -> i32 {
    boundary::status(|| {
        opened::of_device(device)?
            .into_iter()
            .for_each(|pond| on!(pond, of => of.served.allocator.reset_accumulated_stats()));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn stats_json(device: i32, out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let text = on!(ponds::get(device)?, of => {
            let pond = &of.served.allocator;
            statistics::json(pond)
        });
        out.put(boundary::give_text(&text));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn peak_open(device: i32, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(on!(ponds::get(device)?, of => of.served.scopes.open(&of.served.allocator)));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn peak_json(device: i32, peak: u64, out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let stats = on!(ponds::get(device)?, of => of.served.scopes.stats(peak)?);
        out.put(boundary::give_text(&statistics::memory_json(&stats)));
        Ok(())
    })
}

pub(super) extern "C" fn peak_close(device: i32, peak: u64) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.served.scopes.close(peak)))
}

pub(super) unsafe extern "C" fn summary(device: i32, abbreviated: c_int, out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let text =
            on!(ponds::get(device)?, of => of.served.allocator.memory_summary_with(Terms::PyTorch, abbreviated != 0));
        out.put(boundary::give_text(&text));
        Ok(())
    })
}
