//! The words of the page, and how its numbers are written.

use crate::measure::Spread;

/// What stands above the rows of a table.
pub(super) struct Head {
    title: &'static str,
    columns: &'static str,
    /// What the columns mean.
    legend: &'static str,
}

impl Head {
    /// Returns it in Markdown.
    pub(super) fn text(&self) -> String {
        let rule = "|---".repeat(self.columns.matches('|').count() + 1);
        format!("## {}\n\n{}\n\n| {} |\n{rule}|\n", self.title, self.legend, self.columns)
    }
}

/// One column for each of [`STREAMS`](super::streams::STREAMS).
pub(super) const STREAMS: Head = Head {
    title: "Streams: one thread uses them in turn",
    columns: "policy | block | start | 1 | 4 | 16 | 64 | 256 | calls | goal",
    legend: "\
Nanoseconds for an allocation and its free, the median over the rounds, by the number of streams. In parentheses is the
multiple of one stream's, within a round.

- *at the peak*: all streams have had many blocks at once, and peaks were reset since
- *held*: the same, and a block is freed only when half of the streams have had their turn since
- *below the peak*: all streams have had many blocks at once, and peaks were not reset
- *one block*: all streams have had one block at once, and peaks were not reset
- *from nothing*: the streams had no blocks before

*Calls* are driver calls of a pair with the most streams. *Goal* is the multiple that such a pair may take.",
};

pub(super) const AGE: Head = Head {
    title: "Age: one stream for a long time",
    columns: "policy | load | operations | us | times | calls | refused | reserved MiB | host MiB",
    legend: "\
2,000 blocks are live. An operation frees one, drawn at random, and allocates another.

- *drawn*: sizes are uniform, 3.5 GiB are live on a device of 4 GiB
- *rising*: each block has 512 bytes more than the one before, from 1 to 3 MiB and again; 4 GiB are live on a large
  device
- *rising-full*: the same from 0.5 to 2.5 MiB; 3 GiB are live on a device of 4 GiB

*Us* is the time of an operation, the mean since the row before, and *times* its multiple of the second row. *Calls* are
driver calls of an operation. *Host* is the memory of the process. Goals for the last row: 1.5 times, 20 us, and the
second row's host memory.",
};

pub(super) const CHURN: Head = Head {
    title: "Pools and streams that come and go",
    columns: "what | how | policy | number | first | last | times | refused | host MiB | reserved MiB | ranges",
    legend: "\
Each pool or stream is created, allocates four blocks of 4 KiB and two of 4 MiB, frees them and is dropped: *in turn*,
or *at once*, with all of them alive before the first is dropped. *First* and *last* are the microseconds of each in the
first and in the last hundred, and *times* compares them. *Refused* is how many were refused a block.

*Host* is the memory of the process before the first, after the last, and in the end, when all is dropped and the cache
emptied. *Reserved* is the device's memory after the last and in the end. *Ranges* are the address ranges that are left
in the end. *No allocator* is the simulated device by itself: only what is beyond it is the allocator's.

Goals: nothing is refused, nothing is reserved in the end, host memory stays flat, the last is as fast as the first.",
};

pub(super) const THREADS: Head = Head {
    title: "Threads: recorded programs, each on streams of its own",
    columns: "trace | threads | classic | paged | times | goal | CPU: classic | paged | times | refused",
    legend: "\
Nanoseconds for an event of the slowest thread in a warm pass, the median over the rounds. All sizes are an eighth of
the recorded ones. *CPU* is the processor time of all threads for an event of any of them. It hardly depends on what
else runs, while the slowest thread also waits for its turn where there are more threads than cores. *Times* is `paged`
to `classic` in the same round. Where the time was over before the first round, the last pass counts, and its number is
in parentheses. *Refused* counts both policies.",
};

/// What stands where nothing was measured.
pub(super) const NONE: &str = "-";

/// Returns a number with two digits that count, and all of those before the point.
pub(super) fn few(number: f64) -> String {
    if number < 0.995 {
        format!("{number:.2}")
    } else if number < 9.95 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

/// Returns the median of the ratios of several rounds; a dash if there are none.
pub(super) fn ratio(ratios: Vec<f64>) -> String {
    if ratios.is_empty() { NONE.to_owned() } else { few(Spread::of(ratios).median) }
}

/// Returns bytes in MiB.
pub(super) fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::{few, mib, ratio};

    #[test]
    fn numbers_have_two_digits_that_count() {
        assert_eq!([0.123, 0.994, 0.996, 9.94, 9.96, 1234.5].map(few), ["0.12", "0.99", "1.0", "9.9", "10", "1234"]);
        assert_eq!((ratio(vec![3.0, 1.0, 2.0]), ratio(vec![])), ("2.0".to_owned(), "-".to_owned()));
        assert_eq!(mib(3 << 19), "2");
    }
}
