//! Progress on a terminal, and silence everywhere else.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use millpond_trace::printable;

/// A bar on standard error that goes away when it is done. It is shown only if both outputs are terminals: in a pipe it
/// would disturb the program at the other end.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar of a known number of steps.
    pub(crate) fn new(steps: usize) -> Self {
        Self::with(Some(steps as u64), "{bar:30} {pos}/{len}  {wide_msg}")
    }

    /// Creates a bar that shows the elapsed part of a time, and the number of steps made in it.
    pub(crate) fn timed(time: Duration) -> Self {
        let progress = Self::with(None, &format!("{{elapsed}} of {}s  {{pos}}  {{wide_msg}}", time.as_secs()));
        // The display is updated while a step is under way, too.
        if !progress.0.is_hidden() {
            progress.0.enable_steady_tick(Duration::from_secs(1));
        }
        progress
    }

    /// Creates a count of steps, for when the number of steps is not known in advance.
    pub(crate) fn unbounded() -> Self {
        Self::with(None, "{spinner} {pos}  {wide_msg}")
    }

    /// Creates a bar that is never shown.
    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    fn with(steps: Option<u64>, template: &str) -> Self {
        let watched = io::stderr().is_terminal() && io::stdout().is_terminal();
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(steps, target);
        let style = match ProgressStyle::with_template(template) {
            Ok(style) => style,
            Err(error) => panic!("the template of the progress bar is malformed: {error}"),
        };
        bar.set_style(style);
        Self(bar)
    }

    /// Shows what is being done.
    pub(crate) fn doing(&self, what: String) {
        self.0.set_message(printable(&what).into_owned());
    }

    /// Counts one step as done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Writes to the outputs while the bar is out of the way.
    pub(crate) fn aside<R>(&self, write: impl FnOnce() -> R) -> R {
        self.0.suspend(write)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
