//! The table that `torch.cuda.memory_summary` prints, over Millpond's statistics.
//!
//! Row names, order, widths and the steps of units are PyTorch's, so that people and scripts that know that table can
//! read this one. The title names Millpond, and two last sections describe pages, where the policy is `paged`, and the
//! device's memory, where the device reports it. PyTorch's line of counts speaks of CUDA, so that line is PyTorch's
//! only where PyTorch's table is asked for.

use std::fmt::Write as _;

use millpond_backend::Backend;
use millpond_core::settings::{Policy, Segments, Settings};
use millpond_core::stats::{IdleStats, MemoryStats, PageStats, SlackStats, Stat, StatByPool};
use millpond_core::{BlockState, SegmentView};

use crate::allocator::Allocator;
use crate::observe::usage::Usage;
use crate::text::format_bytes;

impl<B: Backend> Allocator<B> {
    /// Returns the table of `torch.cuda.memory_summary`, with sections on pages and on the slack where the policy is
    /// `paged`, and one on the device's memory where the device reports what is free. A line below the table says what
    /// `max_split_size_mb` does where segments are expandable, another one what went back because nothing had needed
    /// it, if anything did, one what paused groups have given back, and one if the device [grants more than it lists].
    /// Costs as much as
    /// [`memory_usage`](Self::memory_usage), [`slack_stats`](Self::slack_stats) and [`layout`](Self::layout).
    ///
    /// The counts of refusals and of retries have names that suit every device;
    /// [`memory_summary_with`](Self::memory_summary_with) has PyTorch's.
    ///
    /// [grants more than it lists]: Self::beyond_device
    pub fn memory_summary(&self, abbreviated: bool) -> String {
        self.memory_summary_with(Terms::Driver, abbreviated)
    }

    /// Works like [`memory_summary`](Self::memory_summary), in terms of your choice.
    pub fn memory_summary_with(&self, terms: Terms, abbreviated: bool) -> String {
        let usage = self.memory_usage().ok().flatten();
        let (stats, pages, slack) = (self.stats(), self.page_stats(), self.slack_stats());
        let device = self.state().device;
        let mut text = memory_summary(&stats, &pages, &slack, usage.as_ref(), device, terms, abbreviated);
        let split = split_note(&self.settings(), &self.layout());
        let idle = idle_note(&self.idle_stats());
        let paused = paused_note(self.memory_paused());
        for note in
            split.into_iter().chain(idle).chain(paused).chain(self.beyond_device().map(|beyond| beyond.to_string()))
        {
            text += &format!("note: {note}\n");
        }
        text
    }
}

/// The names of the counts of out-of-memory errors and of retries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Terms {
    /// "out of memory" and "driver allocation retries", which suit every device.
    #[default]
    Driver,
    /// "CUDA OOMs" and "cudaMalloc retries", as PyTorch's table has them.
    PyTorch,
}

/// The number of characters between the two bars of a row.
const WIDTH: usize = 75;

/// The quantity that the cells of a group of rows have.
#[derive(Clone, Copy)]
enum Quantity {
    Bytes,
    Count,
}

/// Returns the statistics as a table, in the layout of `torch.cuda.memory_summary`. It ends with a line break.
///
/// `device` is the number in the title, and `terms` are those of the counts below it. With `abbreviated`, the rows of
/// the large and the small pool are left out. Where `pages` counts any, a section that PyTorch does not have ends the
/// table: pages created and released; their mappings in windows, with those that the driver has unmapped; requests that
/// were served through a window that was kept; and pieces of free memory that were taken after device-side waits. A
/// section on the slack follows: the most that was live, the most that may be reserved for it, what is reserved beyond
/// that, and the freed memory that work in flight pins, with the part of each stream and, below it, the free memory
/// that the stream itself was the last to use. With `usage` a section describes the use of the device's memory: the
/// parts add up to what is used, except for the remainders that each cell drops.
///
/// Each cell is a whole number: bytes step up a unit (B, KiB, ... PiB) while the value is 768 * 1024 or more, counts
/// (none, K, M) while it is 750,000 or more, and the remainder is dropped. A pool's cell has the unit of the cell of
/// both pools above it, so that they compare, and may therefore read 0. Builds one string of at most 5 KiB,
/// and 160 bytes for each stream with work in flight.
pub fn memory_summary(
    stats: &MemoryStats,
    pages: &PageStats,
    slack: &SlackStats,
    usage: Option<&Usage>,
    device: u32,
    terms: Terms,
    abbreviated: bool,
) -> String {
    use Quantity::{Bytes, Count};
    let groups = [
        ("Allocated memory", &stats.allocated_bytes, Bytes),
        ("Active memory", &stats.active_bytes, Bytes),
        ("Requested memory", &stats.requested_bytes, Bytes),
        ("GPU reserved memory", &stats.reserved_bytes, Bytes),
        ("Non-releasable memory", &stats.inactive_split_bytes, Bytes),
        ("Allocations", &stats.allocation, Count),
        ("Active allocs", &stats.active, Count),
        ("GPU reserved segments", &stats.segment, Count),
        ("Non-releasable allocs", &stats.inactive_split, Count),
    ];
    let oversize =
        [("Oversize allocations", &stats.oversize_allocations), ("Oversize GPU segments", &stats.oversize_segments)];

    let mut table = String::with_capacity(4096);
    head(&mut table, stats, device, terms);
    for (name, by_pool, quantity) in groups {
        rule(&mut table, '-');
        group(&mut table, name, by_pool, quantity, abbreviated);
    }
    for (name, stat) in oversize {
        rule(&mut table, '-');
        row(&mut table, name, stat, stat, Count);
    }
    if pages.created > 0 {
        rule(&mut table, '-');
        page_section(&mut table, pages);
        rule(&mut table, '-');
        slack_section(&mut table, slack);
    }
    if let Some(usage) = usage {
        rule(&mut table, '-');
        usage_section(&mut table, usage);
    }
    rule(&mut table, '=');
    table
}

/// Returns a sentence on what `max_split_size_mb` does with expandable segments; `None` if it is not set or segments
/// are not expandable. `layout` has the current segments, if they are known. Visits every block.
pub fn split_note(settings: &Settings, layout: &[SegmentView]) -> Option<String> {
    let most = settings.max_split_bytes.filter(|_| settings.policy == Policy::Classic(Segments::Expandable))?;
    if settings.open_ranges {
        return Some(
            "max_split_size_mb has no effect with expandable segments, whose blocks are cut at any size".into(),
        );
    }
    let ranges = layout.iter().filter(|view| view.page_bytes > 0).flat_map(|view| &view.blocks);
    let apart = ranges.filter(|block| block.state == BlockState::Inactive && block.size >= most);
    let apart = match apart.map(|block| block.size).sum() {
        0 => String::new(),
        bytes => format!("; {} are kept apart so", format_bytes(bytes)),
    };
    Some(format!(
        "max_split_size_mb keeps free blocks of {} or more from smaller requests, and with expandable segments nothing \
         bounds what these take instead{apart}",
        format_bytes(most),
    ))
}

/// Returns a sentence on the memory of paused groups; `None` if none is paused.
fn paused_note(bytes: u64) -> Option<String> {
    let paused = format_bytes(bytes);
    (bytes > 0).then(|| format!("{paused} of paused groups went back to the driver until they are resumed"))
}

/// Returns a sentence on the memory that went back because nothing had needed it; `None` if none did.
fn idle_note(idle: &IdleStats) -> Option<String> {
    let (bytes, ago) = (format_bytes(idle.released_bytes), idle.since_last?.as_secs());
    let often = if idle.releases == 1 { "once".into() } else { format!("{} times", idle.releases) };
    Some(format!("idle memory went back {often}: {bytes} in all, {ago} s ago the last time"))
}

/// Writes the pages in the columns for now, peak, came and went. What is not counted is left blank.
fn page_section(table: &mut String, pages: &PageStats) {
    let rows = [
        ("Pages", [Some(pages.pages), None, Some(pages.created), Some(pages.released)]),
        ("      in windows", [Some(pages.shadows), None, Some(pages.moved), Some(pages.unmapped)]),
        ("Windows used again", [None, None, Some(pages.returned), None]),
        ("Behind a wait", [None, None, Some(pages.moved_behind_wait), None]),
    ];
    for (name, values) in rows {
        let cells = values.map(|value| value.map_or(String::new(), |value| cell(value, value, Quantity::Count)));
        let [now, peak, came, went] = cells;
        line(table, format_args!(" {name:<21} | {now:10} | {peak:10} | {came:10} | {went:10} "));
    }
}

/// Writes what is reserved beyond the slack, and what work in flight pins, in the column for now.
fn slack_section(table: &mut String, slack: &SlackStats) {
    let mut now = |name: &str, bytes: u64| now(table, name, bytes, bytes);
    now("Most memory live", slack.most_live_bytes);
    if let Some(bound) = slack.bound_bytes {
        now("Allowed by the slack", bound);
        now("Reserved beyond it", slack.beyond_bytes);
    }
    now("Pinned by work", slack.pinned_bytes);
    for pinned in &slack.pinned_by {
        now(&format!("      of {}", pinned.stream), pinned.bytes);
        now("      its own, free", pinned.own_bytes);
    }
}

/// Writes the use of the device's memory, in the column for now.
fn usage_section(table: &mut String, usage: &Usage) {
    let used = usage.used_bytes();
    let mut now = |name: &str, bytes: u64, reference: u64| now(table, name, bytes, reference);
    now("Device memory in use", used, used);
    for (name, bytes) in usage.parts() {
        now(&format!("      {name}"), bytes, used);
    }
    now("Device memory free", usage.free_bytes, usage.free_bytes);
    now("Device memory", usage.total_bytes, usage.total_bytes);
}

/// Writes the title, the counts of out-of-memory errors and of retries, and the names of the columns.
fn head(table: &mut String, stats: &MemoryStats, device: u32, terms: Terms) {
    rule(table, '=');
    line(table, format_args!("{:20}Millpond memory summary, device ID {device:<20}", ""));
    rule(table, '-');
    let (ooms, retries) = (stats.num_ooms, stats.num_alloc_retries);
    match terms {
        Terms::Driver => {
            line(table, format_args!("{:8}out of memory: {ooms:<12} |    driver allocation retries: {retries:<7}", ""))
        }
        Terms::PyTorch => {
            line(table, format_args!("{:12}CUDA OOMs: {ooms:<12} |{:8}cudaMalloc retries: {retries:<8}  ", "", ""))
        }
    }
    rule(table, '=');
    line(table, format_args!("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "));
}

/// Writes the row of both pools and, unless abbreviated, one row for each.
fn group(table: &mut String, name: &str, by_pool: &StatByPool, quantity: Quantity, abbreviated: bool) {
    row(table, name, &by_pool.all, &by_pool.all, quantity);
    if !abbreviated {
        row(table, "      from large pool", &by_pool.large_pool, &by_pool.all, quantity);
        row(table, "      from small pool", &by_pool.small_pool, &by_pool.all, quantity);
    }
}

/// Writes one row. `reference` chooses the unit of each of its cells.
fn row(table: &mut String, name: &str, stat: &Stat, reference: &Stat, quantity: Quantity) {
    let columns = [
        (stat.current, reference.current),
        (stat.peak, reference.peak),
        (stat.allocated, reference.allocated),
        (stat.freed, reference.freed),
    ];
    let [current, peak, allocated, freed] = columns.map(|(value, reference)| cell(value, reference, quantity));
    line(table, format_args!(" {name:<21} | {current} | {peak} | {allocated} | {freed} "));
}

/// Writes a row that has a number of bytes for now alone.
fn now(table: &mut String, name: &str, bytes: u64, reference: u64) {
    let cell = cell(bytes, reference, Quantity::Bytes);
    line(table, format_args!(" {name:<21} | {cell} | {:10} | {:10} | {:10} ", "", "", ""));
}

/// Returns a value in the unit that suits `reference`, ten characters wide while the number has at most six digits
/// (bytes) or seven (counts).
fn cell(value: u64, reference: u64, quantity: Quantity) -> String {
    match quantity {
        Quantity::Bytes => {
            let (value, unit) = scale(value, reference, 1024, 768 * 1024, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]);
            format!("{value:6} {unit}")
        }
        Quantity::Count => {
            let (value, unit) = scale(value, reference, 1000, 750 * 1000, &[" ", "K", "M"]);
            format!("{value:7} {unit} ")
        }
    }
}

/// Divides `value` by `step` for each unit that `reference` steps up: one while it is at least `limit`.
fn scale(mut value: u64, mut reference: u64, step: u64, limit: u64, units: &[&'static str]) -> (u64, &'static str) {
    let mut unit = 0;
    while reference >= limit && unit + 1 < units.len() {
        value /= step;
        reference /= step;
        unit += 1;
    }
    (value, units[unit])
}

fn rule(table: &mut String, stroke: char) {
    table.push('|');
    table.extend(std::iter::repeat_n(stroke, WIDTH));
    table.push_str("|\n");
}

fn line(table: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(table, "|{content}|").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use millpond_core::stats::PinnedBy;

    use super::*;

    #[test]
    fn what_went_back_is_told_once_there_is_some() {
        assert_eq!(paused_note(0), None);
        assert!(paused_note(5 << 30).is_some_and(|told| told.starts_with("5.00 GiB of paused groups went back")));
        let mut idle = IdleStats::default();
        assert_eq!(idle_note(&idle), None);
        let since_last = Some(std::time::Duration::from_millis(61_500));
        idle = IdleStats { releases: 1, released_bytes: 3 << 30, since_last };
        let told = "idle memory went back once: 3.00 GiB in all, 61 s ago the last time";
        assert_eq!(idle_note(&idle).as_deref(), Some(told));
        idle.releases = 4;
        assert!(idle_note(&idle).is_some_and(|told| told.contains("back 4 times: ")));
    }

    /// The line has the same width in both terms.
    #[test]
    fn the_counts_have_names_that_suit_every_device() {
        let told = |terms| {
            memory_summary(&busy(), &PageStats::default(), &SlackStats::default(), None, 0, terms, true)
                .lines()
                .nth(3)
                .map(str::to_owned)
        };
        let [own, torch] = [Terms::Driver, Terms::PyTorch].map(|terms| told(terms).unwrap());
        assert_eq!(own, "|        out of memory: 12           |    driver allocation retries: 34     |");
        assert_eq!(own.len(), torch.len());
        assert!(torch.contains("cudaMalloc retries: 34"), "{torch}");
    }

    const EMPTY: &str = "\
|===========================================================================|
|                    Millpond memory summary, device ID 3                   |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Active memory         |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Requested memory      |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| GPU reserved memory   |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Non-releasable memory |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Active allocs         |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| GPU reserved segments |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Non-releasable allocs |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize allocations  |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize GPU segments |       0    |       0    |       0    |       0    |
|===========================================================================|
";

    /// A training step's numbers: every group differs, every unit from B to TiB and from none to M occurs.
    const BUSY: &str = "\
|===========================================================================|
|                    Millpond memory summary, device ID 10                  |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 12           |        cudaMalloc retries: 34        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      | 184648 KiB | 192833 KiB | 258378 KiB |  73729 KiB |
|       from large pool | 184576 KiB | 192768 KiB | 254208 KiB |  69632 KiB |
|       from small pool |     72 KiB |   1060 KiB |   4170 KiB |   4097 KiB |
|---------------------------------------------------------------------------|
| Active memory         | 786431 B   |    768 KiB | 786431 KiB |    768 MiB |
|       from large pool | 786000 B   |    767 KiB | 786430 KiB |    767 MiB |
|       from small pool |    431 B   |      0 KiB |      1 KiB |      0 MiB |
|---------------------------------------------------------------------------|
| Requested memory      |   1000 MiB |   1000 GiB |   1000 TiB |   1000 PiB |
|       from large pool |    999 MiB |    999 GiB |    999 TiB |    999 PiB |
|       from small pool |      0 MiB |      0 GiB |      0 TiB |      0 PiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  71680 KiB |  71680 KiB |  71680 KiB |      0 B   |
|       from large pool |  67584 KiB |  67584 KiB |  67584 KiB |      0 B   |
|       from small pool |   4096 KiB |   4096 KiB |   4096 KiB |      0 B   |
|---------------------------------------------------------------------------|
| Non-releasable memory |   1536 B   |   1536 B   |   2048 B   |    512 B   |
|       from large pool |   1024 B   |   1024 B   |   1024 B   |      0 B   |
|       from small pool |    512 B   |    512 B   |   1024 B   |    512 B   |
|---------------------------------------------------------------------------|
| Allocations           |  749999    |     750 K  |  749999 K  |     750 M  |
|       from large pool |  700000    |     700 K  |  700000 K  |     700 M  |
|       from small pool |   49999    |      49 K  |   49999 K  |      49 M  |
|---------------------------------------------------------------------------|
| Active allocs         |      17    |      19    |     100    |      83    |
|       from large pool |       4    |       5    |      40    |      36    |
|       from small pool |      13    |      15    |      60    |      47    |
|---------------------------------------------------------------------------|
| GPU reserved segments |       5    |       5    |       5    |       0    |
|       from large pool |       3    |       3    |       3    |       0    |
|       from small pool |       2    |       2    |       2    |       0    |
|---------------------------------------------------------------------------|
| Non-releasable allocs |       3    |       4    |      44    |      41    |
|       from large pool |       1    |       2    |      22    |      21    |
|       from small pool |       2    |       2    |      22    |      20    |
|---------------------------------------------------------------------------|
| Oversize allocations  |       1    |       2    |       3    |       2    |
|---------------------------------------------------------------------------|
| Oversize GPU segments |       4    |       5    |       6    |       2    |
|===========================================================================|
";

    fn stat([current, peak, allocated, freed]: [u64; 4]) -> Stat {
        Stat { current, peak, allocated, freed }
    }

    /// Returns the statistic of both pools, the large pool and the small pool, with every value multiplied by `unit`.
    fn pools(unit: u64, [all, large, small]: [[u64; 4]; 3]) -> StatByPool {
        let times = |values: [u64; 4]| stat(values.map(|value| value * unit));
        StatByPool { all: times(all), large_pool: times(large), small_pool: times(small) }
    }

    fn busy() -> MemoryStats {
        const K: u64 = 1 << 10;
        const M: u64 = 1 << 20;
        const G: u64 = 1 << 30;
        const T: u64 = 1 << 40;
        const P: u64 = 1 << 50;
        let large = [184_576, 192_768, 254_208, 69_632];
        let small = [72, 1060, 4170, 4097];
        let split = [[3, 4, 44, 41], [1, 2, 22, 21], [2, 2, 22, 20]];
        MemoryStats {
            allocated_bytes: pools(K, [[184_648, 192_833, 258_378, 73_729], large, small]),
            active_bytes: pools(
                1,
                [
                    [786_431, 786_432, 786_432 * K - 1, 786_432 * K],
                    [786_000, 786_431, 786_431 * K - 1, 768 * M - 1],
                    [431, 1, K, 1],
                ],
            ),
            requested_bytes: pools(
                1,
                [
                    [1000 * M, 1000 * G, 1000 * T, 1000 * P],
                    [1000 * M - 1, 1000 * G - 1, 1000 * T - 1, 1000 * P - 1],
                    [1, 1, 1, 1],
                ],
            ),
            reserved_bytes: pools(K, [[71_680, 71_680, 71_680, 0], [67_584, 67_584, 67_584, 0], [4096, 4096, 4096, 0]]),
            inactive_split_bytes: pools(512, [[3, 3, 4, 1], [2, 2, 2, 0], [1, 1, 2, 1]]),
            allocation: pools(
                1,
                [
                    [749_999, 750_000, 749_999_999, 750_000_000],
                    [700_000, 700_001, 700_000_000, 700_000_001],
                    [49_999, 49_999, 49_999_999, 49_999_999],
                ],
            ),
            active: pools(1, [[17, 19, 100, 83], [4, 5, 40, 36], [13, 15, 60, 47]]),
            segment: pools(1, [[5, 5, 5, 0], [3, 3, 3, 0], [2, 2, 2, 0]]),
            inactive_split: pools(1, split),
            oversize_allocations: stat([1, 2, 3, 2]),
            oversize_segments: stat([4, 5, 6, 2]),
            num_ooms: 12,
            num_alloc_retries: 34,
            ..MemoryStats::default()
        }
    }

    #[test]
    fn an_unused_device_prints_zeros() {
        assert_eq!(
            memory_summary(
                &MemoryStats::default(),
                &PageStats::default(),
                &SlackStats::default(),
                None,
                3,
                Terms::PyTorch,
                true
            ),
            EMPTY
        );
    }

    #[test]
    fn a_full_table_names_both_pools_in_the_units_of_their_sum() {
        assert_eq!(
            memory_summary(&busy(), &PageStats::default(), &SlackStats::default(), None, 10, Terms::PyTorch, false),
            BUSY
        );
    }

    #[test]
    fn an_abbreviated_table_leaves_out_the_pools_and_nothing_else() {
        let kept: String = BUSY.lines().filter(|line| !line.contains("      from ")).flat_map(|l| [l, "\n"]).collect();
        assert_eq!(
            memory_summary(&busy(), &PageStats::default(), &SlackStats::default(), None, 10, Terms::PyTorch, true),
            kept
        );
    }

    #[test]
    fn pages_and_the_slack_end_the_table_where_there_were_pages() {
        let pages = PageStats {
            pages: 421,
            created: 500,
            released: 79,
            moved: 1_234_567,
            moved_behind_wait: 5,
            returned: 40,
            shadows: 120,
            unmapped: 197,
        };
        let section = "\
|---------------------------------------------------------------------------|
| Pages                 |     421    |            |     500    |      79    |
|       in windows      |     120    |            |    1234 K  |     197    |
| Windows used again    |            |            |      40    |            |
| Behind a wait         |            |            |       5    |            |
|---------------------------------------------------------------------------|
| Most memory live      |   1000 MiB |            |            |            |
| Allowed by the slack  |   1050 MiB |            |            |            |
| Reserved beyond it    | 786431 B   |            |            |            |
| Pinned by work        |  24576 KiB |            |            |            |
|       of stream 1     |  24576 KiB |            |            |            |
|       its own, free   |      0 B   |            |            |            |
|       of stream 12    |   8192 KiB |            |            |            |
|       its own, free   |  40960 KiB |            |            |            |
";
        let by = |stream, mib: u64, own: u64| PinnedBy {
            stream: millpond_backend::StreamId(stream),
            bytes: mib << 20,
            own_bytes: own << 20,
        };
        let slack = SlackStats {
            most_live_bytes: 1000 << 20,
            bound_bytes: Some(1050 << 20),
            beyond_bytes: 786_431,
            pinned_bytes: 24 << 20,
            pinned_by: vec![by(1, 24, 0), by(12, 8, 40)],
            ..SlackStats::default()
        };
        let end = BUSY.len() - BUSY.lines().last().map_or(0, |line| line.len() + 1);
        let expected = [&BUSY[..end], section, &BUSY[end..]].concat();
        assert_eq!(memory_summary(&busy(), &pages, &slack, None, 10, Terms::PyTorch, false), expected);
    }

    #[test]
    fn the_devices_memory_comes_last_and_adds_up() {
        const G: u64 = 1 << 30;
        let budget = millpond_backend::BudgetInfo::new(100 * G, 139 * G + 5)
            .with_others_bytes(Some(10 * G))
            .with_process_bytes(Some(29 * G));
        let section = "\
|---------------------------------------------------------------------------|
| Device memory in use  |  39936 MiB |            |            |            |
|       reserved here   |  28672 MiB |            |            |            |
|       rest of process |   1024 MiB |            |            |            |
|       other processes |  10240 MiB |            |            |            |
|       driver          |      0 MiB |            |            |            |
| Device memory free    | 102400 MiB |            |            |            |
| Device memory         | 142336 MiB |            |            |            |
";
        let end = BUSY.len() - BUSY.lines().last().map_or(0, |line| line.len() + 1);
        let expected = [&BUSY[..end], section, &BUSY[end..]].concat();
        let usage = Usage::new(&budget, 28 * G);
        assert_eq!(
            memory_summary(
                &busy(),
                &PageStats::default(),
                &SlackStats::default(),
                Some(&usage),
                10,
                Terms::PyTorch,
                false
            ),
            expected
        );
    }

    #[test]
    fn units_step_at_their_limits_and_stop_at_the_last() {
        assert_eq!(cell(768 * 1024 - 1, 768 * 1024 - 1, Quantity::Bytes), "786431 B  ");
        assert_eq!(cell(768 * 1024, 768 * 1024, Quantity::Bytes), "   768 KiB");
        assert_eq!(cell(u64::MAX, u64::MAX, Quantity::Bytes), " 16383 PiB");
        assert_eq!(cell(749_999, 749_999, Quantity::Count), " 749999   ");
        assert_eq!(cell(750_000, 750_000, Quantity::Count), "    750 K ");
        assert_eq!(cell(u64::MAX, u64::MAX, Quantity::Count), "18446744073709 M ");
    }
}
