//! What is alive: who holds which buffers, by label, and what is left when the last handle ends.
//!
//! Nothing of this is known unless [`Allocator::track_live`] or a [recording](crate::history) turns it on: then each
//! allocation and each free writes a note, behind the lock of its stream that it takes anyway. It is the flag of the
//! sinks of [events](crate::events) that both look at, so an allocator that tracks nothing executes no instruction more
//! than one without labels would, and a buffer has no place for a label.
//!
//! Labels and [tags](crate::tag()) are one thing: a tag is the label of what is allocated while it is in force, and
//! [`Stream::allocate_labelled`] is an allocation within a tag.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

use millpond_backend::Backend;

use crate::allocator::Allocator;
use crate::buffer::{Buffer, EMPTY};
use crate::error::Error;
use crate::notes::groups::{Label, name_of};
use crate::notes::note::Site;
use crate::notes::switches::Detail;
use crate::stream::Stream;
use crate::tag::{self, Names};
use crate::text::format_bytes;

pub use crate::notes::groups::LiveGroup;

/// What an allocator records about each buffer that it hands out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Tracking {
    /// Nothing.
    #[default]
    Off,
    /// Its label and its size.
    Labels,
    /// The place in the program as well at which it was allocated, or was given its label.
    Sites,
}

/// The buffers that are alive, from [`Allocator::live`]. Prints one line for each group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Live {
    groups: Vec<LiveGroup>,
}

/// The difference of one group between two moments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupChange {
    /// The label.
    pub label: Option<Label>,
    /// The place.
    pub site: Option<Site>,
    /// How many buffers more there are, or fewer.
    pub count: i64,
    /// How many bytes of blocks more there are, or fewer.
    pub bytes: i64,
}

/// The difference between two moments, from [`Live::since`]. Unchanged groups are left out. Prints one line for each
/// group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LiveChange {
    groups: Vec<GroupChange>,
}

impl Live {
    /// Returns the groups, the one with the most bytes first; equal ones in the order of label and place.
    pub fn groups(&self) -> &[LiveGroup] {
        &self.groups
    }

    /// Returns whether no tracked buffer is alive.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Returns the bytes of all blocks, after rounding.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    /// Returns what has changed since an earlier moment, for example what a step has leaked.
    pub fn since(&self, baseline: &Live) -> LiveChange {
        let mut changes: BTreeMap<(Option<Label>, Option<Site>), (i64, i64)> = BTreeMap::new();
        for (live, sign) in [(self, 1), (baseline, -1)] {
            for group in &live.groups {
                let change = changes.entry((group.label.clone(), group.site)).or_default();
                change.0 += sign * group.count as i64;
                change.1 += sign * group.bytes as i64;
            }
        }
        let changed = changes.into_iter().filter(|&(_, change)| change != (0, 0));
        let change = |((label, site), (count, bytes)): ((_, _), (i64, i64))| GroupChange { label, site, count, bytes };
        let mut groups: Vec<_> = changed.map(change).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        LiveChange { groups }
    }
}

impl LiveChange {
    /// Returns the groups that differ, the one that has grown most first.
    pub fn groups(&self) -> &[GroupChange] {
        &self.groups
    }

    /// Returns whether as many buffers and bytes are alive in every group as before.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, group) in self.groups.iter().enumerate() {
            write!(f, "{}{group}", if at > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for LiveChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, group) in self.groups.iter().enumerate() {
            let sign = if group.bytes < 0 { '-' } else { '+' };
            let bytes = format_bytes(group.bytes.unsigned_abs());
            write!(f, "{}{sign}{bytes} in {:+} of ", if at > 0 { "\n" } else { "" }, group.count)?;
            name_of(f, group.label.as_ref(), group.site)?;
        }
        Ok(())
    }
}

/// What is alive, by label.
impl<B: Backend> Allocator<B> {
    /// Turns tracking for [`live`](Self::live) on or off: the label and the size of each buffer that is handed out.
    /// Buffers that were handed out before are not tracked, and turning it off forgets all. Turn it on before threads
    /// allocate.
    ///
    /// While it is on, an allocation and a free together take about forty nanoseconds longer, and no additional lock.
    /// While it is off, it costs nothing.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond::live::Tracking;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// allocator.track_live(Tracking::Labels);
    /// let stream = allocator.create_stream()?;
    /// let weights = stream.allocate_labelled("weights", 1 << 20)?;
    /// let before = allocator.live();
    /// assert_eq!((before.groups()[0].label.as_deref(), before.bytes()), (Some("weights"), 1 << 20));
    ///
    /// // A step that should leave nothing behind.
    /// let left = stream.allocate_labelled("activations", 2000)?;
    /// let change = allocator.live().since(&before);
    /// assert_eq!(change.to_string(), "+2.00 KiB in +1 of activations");
    /// # drop((weights, left));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn track_live(&self, tracking: Tracking) {
        let tracked = match tracking {
            Tracking::Off => Detail::Nothing,
            Tracking::Labels => Detail::Labels,
            Tracking::Sites => Detail::Sites,
        };
        self.state().throw(false, |switches| switches.tracked = tracked);
    }

    /// Returns the tracked buffers that are alive, by label, and with [`Tracking::Sites`] also by the place that set
    /// it. Empty unless [`track_live`](Self::track_live) is on. Visits all of them under a lock that allocations and
    /// frees also take.
    pub fn live(&self) -> Live {
        Live { groups: self.state().live_groups() }
    }

    /// Sets the function that receives the buffers that are still alive when the last handle of the allocator is
    /// dropped ([`Allocator`], [`Stream`] and [`Pinned`](crate::Pinned)), if there are any. It replaces an earlier one.
    /// Buffers may outlive the handles; a program whose buffers should not can find leaks here.
    ///
    /// It is called only while [`track_live`](Self::track_live) is on. It runs once, on the thread that drops the
    /// handle, and must not panic. It may print the buffers, as `|live| tracing::warn!("{live}")` and `|live|
    /// eprintln!("{live}")` do.
    pub fn on_left_alive(&self, hook: impl Fn(&Live) + Send + Sync + 'static) {
        let hook = move |groups| hook(&Live { groups });
        let replaced = self.state().sinks.noting.hook.lock().replace(Box::new(hook));
        drop(replaced);
    }
}

impl<B: Backend> Stream<B> {
    /// Works like [`allocate`](Self::allocate) within a [tag](crate::tag()) of this name, which becomes the buffer's
    /// label, inside the current tag.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_labelled(&self, label: &str, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        // The place is passed on here, and would not be through a closure.
        let _scope = self.lane().owner().sinks.is_on().then(|| tag::tag(label));
        self.allocate(bytes)
    }
}

impl<B: Backend> Buffer<B> {
    /// Gives the buffer a label, under which [`Allocator::live`] counts it. It replaces an earlier one, and has no
    /// effect on an empty buffer and unless [`Allocator::track_live`] was on when the buffer was handed out. With
    /// [`Tracking::Sites`] the place of the call is recorded. Without tracking it costs a load and a branch.
    ///
    /// The label is used as it is, even within a [tag](crate::tag()). The process keeps one copy of each recorded label
    /// forever, so name kinds of buffers, not each buffer.
    #[track_caller]
    pub fn set_label(&self, label: &str) {
        if self.lane().owner().sinks.noting.is_on() && self.held().block != EMPTY {
            let label = tag::number_of(label);
            if let Some(notes) = &mut self.lane().lock().notes {
                notes.label(self.held().block, label, Location::caller());
            }
        }
    }

    /// Returns the label, if the buffer is tracked and has one.
    pub fn label(&self) -> Option<std::sync::Arc<str>> {
        let label = self.lane().lock().notes.as_ref()?.note(self.held().block)?.label;
        Names::now().of(label)
    }
}
