//! Statistics as C programs get them: the figures that they look at most, and all of them as JSON, in one object of
//! whole numbers.

use std::fmt::Write as _;

use millpond::stats::{IdleStats, SlackStats};
use millpond::{Allocator, DriverActivity, MemoryStats, PageStats};
use millpond_backend::Backend;

/// `millpond_usage` of the header.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The bytes in live blocks, after rounding.
    pub allocated_bytes: u64,
    /// The peak of it.
    pub max_allocated_bytes: u64,
    /// The bytes taken from the driver.
    pub reserved_bytes: u64,
    /// The peak of it.
    pub max_reserved_bytes: u64,
}

/// Returns those figures of the statistics.
pub(crate) fn usage_of(stats: &MemoryStats) -> Usage {
    let (allocated, reserved) = (stats.allocated_bytes.all, stats.reserved_bytes.all);
    Usage {
        allocated_bytes: allocated.current,
        max_allocated_bytes: allocated.peak,
        reserved_bytes: reserved.current,
        max_reserved_bytes: reserved.peak,
    }
}

/// All statistics of an allocator.
struct All {
    memory: MemoryStats,
    pages: PageStats,
    slack: SlackStats,
    idle: IdleStats,
    paused_bytes: u64,
    driver: DriverActivity,
}

/// Returns all statistics of an allocator as one object.
pub(crate) fn json<B: Backend>(of: &Allocator<B>) -> String {
    let (memory, pages, slack) = (of.stats(), of.page_stats(), of.slack_stats());
    let (idle, paused_bytes) = (of.idle_stats(), of.memory_paused());
    object(&All { memory, pages, slack, idle, paused_bytes, driver: of.driver_activity() })
}

/// Returns all statistics as one object. Keys have no characters that JSON escapes.
fn object(All { memory: stats, pages, slack, idle, paused_bytes, driver }: &All) -> String {
    let mut text = object_of(stats);
    let mut add = |key: &str, value: i128| add_to(&mut text, key, value);
    add("num_oom_rejections", stats.num_oom_rejections.into());
    let PageStats { pages, shadows, created, released, moved, moved_behind_wait, returned, unmapped } = *pages;
    let pages = [
        ("pages.pages", pages),
        ("pages.shadows", shadows),
        ("pages.created", created),
        ("pages.released", released),
        ("pages.moved", moved),
        ("pages.moved_behind_wait", moved_behind_wait),
        ("pages.returned", returned),
        ("pages.unmapped", unmapped),
    ];
    for (key, value) in pages {
        add(key, value.into());
    }
    add("slack.most_live_bytes", slack.most_live_bytes.into());
    add("slack.bound_bytes", slack.bound_bytes.map_or(-1, i128::from));
    add("slack.beyond_bytes", slack.beyond_bytes.into());
    add("slack.pinned_bytes", slack.pinned_bytes.into());
    let nanoseconds = |time: std::time::Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    add("idle.releases", idle.releases.into());
    add("idle.released_bytes", idle.released_bytes.into());
    add("idle.since_last_nanoseconds", idle.since_last.map_or(-1, nanoseconds));
    add("groups.paused_bytes", (*paused_bytes).into());
    add("driver.calls", driver.calls.into());
    add("driver.nanoseconds", nanoseconds(driver.time));
    add("driver.stalls", driver.stalls.into());
    add("driver.stall_nanoseconds", nanoseconds(driver.stall_time));
    add("driver.stream_waits", driver.stream_waits.into());
    text.push('}');
    text
}

/// Returns PyTorch's statistics as one object.
pub(crate) fn memory_json(stats: &MemoryStats) -> String {
    let mut text = object_of(stats);
    text.push('}');
    text
}

/// Returns an object of PyTorch's statistics that has not ended.
fn object_of(stats: &MemoryStats) -> String {
    let mut text = String::with_capacity(6 << 10);
    text.push('{');
    stats.flat().iter().for_each(|(key, value)| add_to(&mut text, key, (*value).into()));
    text
}

fn add_to(text: &mut String, key: &str, value: i128) {
    let comma = if text.len() > 1 { ", " } else { "" };
    let _ = write!(text, "{comma}\"{key}\": {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_with_its_value() {
        let mut memory = MemoryStats { num_oom_rejections: 7, ..MemoryStats::default() };
        memory.allocated_bytes.all.peak = u64::MAX;
        let pages = PageStats { returned: 3, ..PageStats::default() };
        let driver = DriverActivity { stall_time: std::time::Duration::from_micros(2), ..DriverActivity::default() };
        let slack = SlackStats { most_live_bytes: 9, ..SlackStats::default() };
        let idle = IdleStats { released_bytes: 5, ..IdleStats::default() };
        let text = object(&All { memory, pages, slack, idle, paused_bytes: 6, driver });
        let parsed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.len(), 122 + 1 + 8 + 4 + 3 + 1 + 5);
        for (key, value) in memory.flat() {
            assert_eq!(parsed[&key], value, "{key}");
        }
        let torch: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&memory_json(&memory)).unwrap();
        assert!(torch.len() == 122 && torch.iter().all(|(key, value)| parsed[key] == *value));
        assert_eq!(parsed["allocated_bytes.all.peak"], i64::MAX);
        assert_eq!(parsed["max_split_size"], -1);
        assert_eq!(parsed["num_oom_rejections"], 7);
        assert_eq!(parsed["pages.returned"], 3);
        assert_eq!((&parsed["slack.most_live_bytes"], &parsed["slack.bound_bytes"]), (&9.into(), &(-1).into()));
        assert_eq!((&parsed["idle.released_bytes"], &parsed["idle.since_last_nanoseconds"]), (&5.into(), &(-1).into()));
        assert_eq!(parsed["driver.stall_nanoseconds"], 2000);
    }
}
