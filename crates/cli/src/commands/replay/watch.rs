//! `--watch`: a view of an allocator while a replay runs on it.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use millpond::DriverActivity;
use millpond::text::format_bytes;
use millpond_any::AnyAllocator;

use crate::output::{WIDTH, hanging, tell, written};
use crate::quantity::format_time;

/// The time between two looks on a terminal, and between two lines elsewhere.
const REDRAW: Duration = Duration::from_millis(100);
const LINE: Duration = Duration::from_secs(1);

/// The characters of a bar.
const BAR: usize = 40;

/// What is known of a replay beside its allocator.
pub(super) struct Watched {
    /// The trace and the policy.
    pub(super) name: String,
    /// The number of passes, where it is known.
    pub(super) passes: Option<usize>,
    /// How many of them are done.
    pub(super) done: AtomicUsize,
}

/// One look.
struct Look {
    time: Duration,
    passes: String,
    reserved: u64,
    most: u64,
    live: u64,
    /// The parts of what is reserved, each with its name.
    ledger: Vec<(&'static str, u64)>,
    refused: u64,
    driver: DriverActivity,
}

impl Watched {
    /// Does some work, and shows meanwhile what its allocator does: ten times a second where standard error is a
    /// terminal, and elsewhere in a line every second and one at the end.
    pub(super) fn during<R>(&self, allocator: &AnyAllocator, work: impl FnOnce() -> R) -> R {
        let is_terminal = io::stderr().is_terminal();
        let begin = Instant::now();
        thread::scope(|scope| {
            let (end, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                let view = is_terminal.then(view);
                let pause = if is_terminal { REDRAW } else { LINE };
                loop {
                    let is_over = ended.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected);
                    let look = self.look(allocator, begin.elapsed());
                    match &view {
                        Some(view) if is_over => view.finish_and_clear(),
                        Some(view) => view.set_message(written(&look.view(&self.name))),
                        None => tell(&look.line(&self.name)),
                    }
                    if is_over {
                        break;
                    }
                }
            });
            let result = work();
            drop(end);
            result
        })
    }

    fn look(&self, allocator: &AnyAllocator, time: Duration) -> Look {
        let (stats, ledger) = (allocator.stats(), allocator.ledger());
        let done = self.done.load(Ordering::Relaxed);
        let passes = match self.passes {
            Some(passes) => format!("pass {} of {passes}", (done + 1).min(passes)),
            None => format!("pass {}", done + 1),
        };
        Look {
            time,
            passes,
            reserved: stats.reserved_bytes.all.current,
            most: stats.reserved_bytes.all.peak,
            live: stats.requested_bytes.all.current,
            ledger: ledger.parts().into_iter().filter(|(_, bytes)| *bytes > 0).collect(),
            refused: stats.num_ooms,
            driver: allocator.driver_activity(),
        }
    }
}

fn view() -> ProgressBar {
    let view = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{msg}") {
        Ok(style) => view.set_style(style),
        Err(error) => panic!("the template of the view is malformed: {error}"),
    }
    view
}

impl Look {
    /// Returns the lines of the view.
    fn view(&self, name: &str) -> String {
        let bar = |name: &str, bytes: u64, more: &str| {
            let filled = (bytes as f64 / self.most.max(1) as f64 * BAR as f64).round() as usize;
            let filled = filled.min(BAR);
            let (full, rest) = ("#".repeat(filled), ".".repeat(BAR - filled));
            format!("{name:<9}{:>11}  {full}{rest}  {more}", format_bytes(bytes))
        };
        let part = |(name, bytes): &(&str, u64)| format!("{name} {}", format_bytes(*bytes));
        let ledger = self.ledger.iter().map(part).collect::<Vec<_>>().join(", ");
        let ledger = if ledger.is_empty() { "nothing reserved".into() } else { ledger };
        [
            format!("{name}, {}, {}", self.passes, format_time(self.time)),
            bar("reserved", self.reserved, &format!("most {}", format_bytes(self.most))),
            bar("live", self.live, ""),
            hanging("ledger   ", &ledger, WIDTH).trim_end().to_owned(),
            self.calls(),
        ]
        .join("\n")
    }

    fn calls(&self) -> String {
        let DriverActivity { calls, time, stalls, stream_waits, .. } = self.driver;
        format!(
            "calls    {calls} of the driver in {}; {stream_waits} waits, {stalls} stalls, {} refused",
            format_time(time),
            self.refused
        )
    }

    fn line(&self, name: &str) -> String {
        let DriverActivity { calls, stalls, stream_waits, .. } = self.driver;
        format!(
            "{name}: {}, {}: {} live, {} reserved, {} at most; {calls} driver calls, {stream_waits} waits, {stalls} \
             stalls, {} refused",
            format_time(self.time),
            self.passes,
            format_bytes(self.live),
            format_bytes(self.reserved),
            format_bytes(self.most),
            self.refused
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_fits_a_terminal_and_says_what_there_is() {
        let look = Look {
            time: Duration::from_millis(1200),
            passes: "pass 2 of 6".into(),
            reserved: 12 << 30,
            most: 16 << 30,
            live: 8 << 30,
            ledger: vec![("allocated", 8 << 30), ("free", 4 << 30)],
            refused: 3,
            driver: DriverActivity { calls: 1176, stream_waits: 7, ..DriverActivity::default() },
        };
        let text = look.view("gpt2_train under paged");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(&format!("12.00 GiB  {}{}  most 16.00 GiB", "#".repeat(30), ".".repeat(10))), "{text}");
        assert!(text.contains("ledger   allocated 8.00 GiB, free 4.00 GiB\n"), "{text}");
        assert!(text.ends_with("1176 of the driver in 0; 7 waits, 0 stalls, 3 refused"), "{text}");
        assert!(look.line("a").starts_with("a: 1.2 s, pass 2 of 6: 8.00 GiB live, 12.00 GiB reserved, 16.00 GiB at"));
    }
}
