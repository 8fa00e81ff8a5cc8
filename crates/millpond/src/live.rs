//! What is alive: who holds which buffers, by label, and what is left when the last handle ends.
//!
//! Nothing of this is known unless [`Allocator::track_live`] turns it on: then each allocation and each free takes a
//! lock that all streams share and notes the buffer in a table, beside what a sink of [events](crate::events) costs. It
//! is the flag of the sinks that both look at, so an allocator that tracks nothing executes no instruction more than
//! one without labels would, and a buffer has no place for a label.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::panic::Location;

use millpond_backend::Backend;
use millpond_core::{BlockId, Grant, ShardId};

use crate::allocator::Allocator;
use crate::buffer::{Buffer, EMPTY};
use crate::error::Error;
use crate::stream::Stream;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::text::format_bytes;

/// A label, shared by the buffers that have it.
type Label = std::sync::Arc<str>;

/// A place in a program.
type Site = &'static Location<'static>;

/// What an allocator notes of each buffer that it hands out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Tracking {
    /// Nothing.
    #[default]
    Off,
    /// Its label and its size.
    Labels,
    /// The place in the program as well at which it got its label.
    Sites,
}

/// Buffers with one label, or without one, and of one place in the program where places are tracked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveGroup {
    /// The label; `None` for buffers that were given none.
    pub label: Option<Label>,
    /// The place at which the buffers got their label, with [`Tracking::Sites`].
    pub site: Option<Site>,
    /// The number of buffers.
    pub count: u64,
    /// The bytes of their blocks, after rounding.
    pub bytes: u64,
    /// The bytes that were asked for.
    pub requested_bytes: u64,
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

/// The difference between two moments, from [`Live::since`]. Groups that are as they were are left out. Prints one line
/// for each group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LiveChange {
    groups: Vec<GroupChange>,
}

impl Live {
    /// Returns the groups, the one with the most bytes first; equal ones in the order of label and place.
    pub fn groups(&self) -> &[LiveGroup] {
        &self.groups
    }

    /// Returns whether no buffer is alive that was noted.
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

    /// Returns what has changed since an earlier moment: what a step of a program that should leave nothing behind has
    /// left behind.
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

fn name_of(f: &mut fmt::Formatter<'_>, label: Option<&Label>, site: Option<Site>) -> fmt::Result {
    f.write_str(label.map_or("(no label)", |label| label))?;
    site.map_or(Ok(()), |site| write!(f, " at {site}"))
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, group) in self.groups.iter().enumerate() {
            write!(f, "{}{} in {} of ", if at > 0 { "\n" } else { "" }, format_bytes(group.bytes), group.count)?;
            name_of(f, group.label.as_ref(), group.site)?;
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

/// A function that is told what is left.
type Hook = Box<dyn Fn(&Live) + Send + Sync>;

/// The buffers of an allocator that are noted.
pub(crate) struct Tracker {
    sites: AtomicBool,
    on: AtomicBool,
    inner: Mutex<Table>,
    hook: Mutex<Option<Hook>>,
}

#[derive(Default)]
struct Table {
    labels: BTreeSet<Label>,
    /// Each buffer by its lane and block, which no other live buffer has.
    buffers: HashMap<(u32, u32), Noted>,
}

struct Noted {
    label: Option<Label>,
    site: Option<Site>,
    bytes: u64,
    requested_bytes: u64,
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self {
            sites: AtomicBool::new(false),
            on: AtomicBool::new(false),
            inner: Mutex::new(Table::default()),
            hook: Mutex::new(None),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn set(&self, tracking: Tracking) {
        self.sites.store(tracking == Tracking::Sites, Ordering::Relaxed);
        self.on.store(tracking != Tracking::Off, Ordering::Relaxed);
        if tracking == Tracking::Off {
            self.inner.lock().buffers.clear();
        }
    }

    /// Notes a buffer that is handed out.
    pub(crate) fn note(&self, shard: ShardId, grant: &Grant, requested_bytes: u64) {
        if self.is_on() {
            let noted = Noted { label: None, site: None, bytes: grant.size, requested_bytes };
            self.inner.lock().buffers.insert((shard.0, grant.block.0), noted);
        }
    }

    /// Forgets a buffer that is about to be freed.
    pub(crate) fn forget(&self, shard: ShardId, block: BlockId) {
        if self.is_on() {
            self.inner.lock().buffers.remove(&(shard.0, block.0));
        }
    }

    fn name(&self, (shard, block): (ShardId, BlockId), label: &str, site: Site) {
        if !self.is_on() {
            return;
        }
        let mut table = self.inner.lock();
        let label = match table.labels.get(label) {
            Some(known) => Label::clone(known),
            None => {
                let new = Label::from(label);
                table.labels.insert(Label::clone(&new));
                new
            }
        };
        let site = self.sites.load(Ordering::Relaxed).then_some(site);
        if let Some(noted) = table.buffers.get_mut(&(shard.0, block.0)) {
            (noted.label, noted.site) = (Some(label), site);
        }
    }

    fn label_of(&self, shard: ShardId, block: BlockId) -> Option<Label> {
        self.inner.lock().buffers.get(&(shard.0, block.0))?.label.clone()
    }

    fn live(&self) -> Live {
        let mut by_name: BTreeMap<(Option<Label>, Option<Site>), [u64; 3]> = BTreeMap::new();
        for noted in self.inner.lock().buffers.values() {
            let sums = by_name.entry((noted.label.clone(), noted.site)).or_default();
            for (sum, more) in sums.iter_mut().zip([1, noted.bytes, noted.requested_bytes]) {
                *sum += more;
            }
        }
        let group = |((label, site), [count, bytes, requested_bytes]): ((_, _), [u64; 3])| LiveGroup {
            label,
            site,
            count,
            bytes,
            requested_bytes,
        };
        let mut groups: Vec<_> = by_name.into_iter().map(group).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        Live { groups }
    }

    /// Tells the hook what is left, as the last handle ends.
    pub(crate) fn tell_of_what_is_left(&self) {
        if self.is_on()
            && let Some(hook) = self.hook.lock().take()
        {
            let live = self.live();
            if !live.is_empty() {
                hook(&live);
            }
        }
    }
}

/// What is alive, by label.
impl<B: Backend> Allocator<B> {
    /// Turns on, or off, that each buffer is noted that is handed out, with its label and size, for
    /// [`live`](Self::live). Buffers that were handed out before are not known; those that were noted are forgotten
    /// when it is turned off. Turn it on before threads allocate.
    ///
    /// While it is on, every allocation and every free takes locks that all streams share, and costs some hundred
    /// nanoseconds more. While it is off, it costs nothing.
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
        let state = self.state();
        state.sinks.tracker.set(tracking);
        state.sinks.look();
    }

    /// Returns what is alive of the buffers that were noted, by label, and by the place where they were given it with
    /// [`Tracking::Sites`]. Empty unless [`track_live`](Self::track_live) has turned it on. Goes over all of them under
    /// a lock that allocations and frees take, too.
    pub fn live(&self) -> Live {
        self.state().sinks.tracker.live()
    }

    /// Sets the function that is told what is still alive when the last handle of the allocator ends (every
    /// [`Allocator`], [`Stream`] and [`Pinned`](crate::Pinned)), if anything is. It replaces an earlier one. Buffers
    /// may outlive the handles by right; a program whose buffers do not learns here of those that are left.
    ///
    /// It is told nothing unless [`track_live`](Self::track_live) is on. It runs once, on the thread that drops the
    /// handle, and must not panic. Nothing is printed unless it prints: `|live| tracing::warn!("{live}")` and
    /// `|live| eprintln!("{live}")` are two that do.
    pub fn on_left_alive(&self, hook: impl Fn(&Live) + Send + Sync + 'static) {
        let replaced = self.state().sinks.tracker.hook.lock().replace(Box::new(hook));
        drop(replaced);
    }
}

impl<B: Backend> Stream<B> {
    /// Does the same as [`allocate`](Self::allocate), and gives the buffer a label.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_labelled(&self, label: &str, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        let buffer = self.allocate(bytes)?;
        buffer.set_label(label);
        Ok(buffer)
    }
}

impl<B: Backend> Buffer<B> {
    /// Gives the buffer a label, under which [`Allocator::live`] counts it. It replaces an earlier one, and has no
    /// effect on an empty buffer and unless [`Allocator::track_live`] was on when the buffer was handed out. The place
    /// of the call is noted with [`Tracking::Sites`]. Without tracking it costs a load and a branch.
    ///
    /// An allocator keeps one copy of each label that it was ever given, so labels are names of kinds of buffers, and
    /// not of each one.
    #[track_caller]
    pub fn set_label(&self, label: &str) {
        let state = self.lane().owner();
        if state.sinks.is_on() && self.held().block != EMPTY {
            state.sinks.tracker.name((self.lane().shard, self.held().block), label, Location::caller());
        }
    }

    /// Returns the label, if the buffer was noted and has one.
    pub fn label(&self) -> Option<std::sync::Arc<str>> {
        self.lane().owner().sinks.tracker.label_of(self.lane().shard, self.held().block)
    }
}
