//! The errors, with advice on what to do about them.

use std::fmt;

use millpond_backend::{BackendError, ClassId, Fault, Point, Shortage, StreamId, Tick};
use millpond_core::settings::SettingError;
use millpond_core::{NoRoom, Obstacle, PoolId, Report};

use crate::conf::ConfError;
use crate::text::{format_bytes, format_bytes_up, with_causes};

pub(crate) mod explain;
pub(crate) mod short;
mod sleep;
pub(crate) mod view;

use explain::{Ceiling, Explanation, Facts, RECORDED, Waits, beyond_any_policy, waits};
use short::Short;
pub use sleep::{PauseError, ResumeError};
use view::ViewError;

/// The kind of an error, for programs that act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no memory left: freeing some may help. [`Error::out_of_memory`] returns the report of a refused
    /// request. [`Error::NotResumed`] has a [`ResumeError`] instead, and a driver's error has neither.
    OutOfMemory,
    /// The device is lost: drop everything of it and start anew.
    Lost,
    /// A name, a setting or an argument is wrong. Nothing was changed.
    Input,
    /// The device does not have what the call or a setting needs.
    Unsupported,
    /// The device is still at work: wait or submit, then call again.
    NotReady,
    /// A buffer cannot grow at its place: copy what it has to a longer one.
    NoRoom,
    /// There is no such device, or it does not open: for programs that open devices by name, with `millpond-any`.
    NoDevice,
    /// The driver failed in another way.
    Driver,
}

/// Why an allocator could not serve a request.
///
/// ```
/// use millpond::{Allocator, ErrorKind};
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::builder(Sim::new()).limit(64 << 20).build()?;
/// let stream = allocator.create_stream()?;
/// let mut cached = vec![stream.allocate(48 << 20)?];
/// let buffer = loop {
///     match stream.allocate(32 << 20) {
///         Ok(buffer) => break buffer,
///         // Freeing something may help.
///         Err(error) if error.kind() == ErrorKind::OutOfMemory && cached.pop().is_some() => {}
///         Err(error) => return Err(error.into()),
///     }
/// };
/// assert!(cached.is_empty() && buffer.len() == 32 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E: BackendError> {
    /// There is no memory left for this request. The allocator stays usable: freeing something may let the request
    /// succeed.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A request for more bytes than any device has.
    #[error("{requested} bytes were requested, and the most is 2^60 - 1 (1 EiB)")]
    TooLarge {
        /// The requested size, in bytes.
        requested: u64,
    },
    /// An alignment that memory cannot have.
    #[error("an alignment of {alignment} bytes was requested; it has to be a power of two, and at most {max}")]
    Alignment {
        /// The alignment that was asked for, in bytes.
        alignment: u64,
        /// The largest alignment, in bytes.
        max: u64,
    },
    /// A buffer, stream or point of one allocator was given to another.
    #[error(
        "the {what} belongs to the allocator of {belongs_to} and was given to {}; give it to the allocator that it \
         came from",
        other_allocator(belongs_to, given_to)
    )]
    WrongDevice {
        /// The kind of object that was given.
        what: &'static str,
        /// The number and the name of the device of the allocator that it came from, and the class of memory where
        /// that alone differs.
        belongs_to: Box<str>,
        /// The same of the allocator that it was given to.
        given_to: Box<str>,
    },
    /// A stream number that the device or the allocator does not have. Nothing was changed.
    #[error(
        "{stream} is not one of this allocator's: open it with `create_stream`, or open it with the backend and give \
         its number to `Allocator::stream`"
    )]
    UnknownStream {
        /// The stream.
        stream: StreamId,
    },
    /// A setting outside its range.
    #[error(transparent)]
    Setting(Box<SettingError>),
    /// A stream was requested from a cache of page-locked memory, whose buffers belong to no stream.
    #[error(
        "a cache of page-locked memory has no streams to allocate on; take buffers with `Pinned::allocate`, and use \
         them on streams of the device's allocator"
    )]
    NoStreams,
    /// A cache of page-locked memory has set the stream aside for its own use.
    #[error(
        "{stream} is set aside by a cache of page-locked memory, which needs it free of other work; use another \
         stream, such as one that `create_stream` opens"
    )]
    SetAside {
        /// The stream.
        stream: StreamId,
    },
    /// A pool number that the allocator does not have.
    #[error(
        "{pool} is not one of this allocator's private pools: create one with `create_pool`, and keep a `Pool` of it \
         for as long as its number is used"
    )]
    UnknownPool {
        /// The pool.
        pool: PoolId,
    },
    /// A private pool that cannot go back to a checkpoint.
    #[error("{pool} cannot go back to the checkpoint: {why}")]
    NotRestorable {
        /// The pool.
        pool: PoolId,
        /// The reason.
        why: Box<Obstacle>,
    },
    /// A request of a group that is paused, or is being paused or resumed, or a transfer to or from its buffers.
    /// Nothing was changed.
    #[error("the group {group:?} is paused: resume it before anything is allocated, moved, captured or restored in it")]
    Paused {
        /// The name of the group.
        group: Box<str>,
    },
    /// A group that cannot be paused now. It is running, as before.
    #[error(transparent)]
    NotPaused(Box<PauseError>),
    /// A group that cannot be resumed now. It is paused, as before, with what was kept of its contents.
    #[error(transparent)]
    NotResumed(Box<ResumeError>),
    /// A stream whose capture has begun already.
    #[error("{stream} is being captured already: end that capture first, which dropping the `Capture` does")]
    Capturing {
        /// The stream.
        stream: StreamId,
    },
    /// A point with a tick that covers no recorded work of its stream yet.
    #[error(
        "{point} lies in the future: the newest tick of the stream is {marked}; take the point with `Stream::point` or \
         `Stream::submit`, after the work was queued"
    )]
    NotMarked {
        /// The point that was given.
        point: Point,
        /// The tick that covers everything recorded on the stream so far.
        marked: Tick,
    },
    /// The device does not have what the call needs.
    #[error("the device {device} has no {what}: {advice}")]
    Unsupported {
        /// The feature that the call needs.
        what: &'static str,
        /// The device's name.
        device: String,
        /// Advice on what to do instead.
        advice: &'static str,
    },
    /// The bytes are not all inside the buffer.
    #[error(
        "{bytes} bytes at offset {offset} do not fit a buffer of {len} bytes, the requested length; the rounded block \
         does not count, so allocate as many bytes as you use"
    )]
    OutOfRange {
        /// The offset at which the bytes begin, from the start of the buffer.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
        /// The requested size of the buffer, in bytes.
        len: u64,
    },
    /// A buffer that cannot grow at its place. Nothing has changed.
    #[error(
        "a buffer of {len} bytes cannot grow by {bytes}: {why}; reserve {} or more for it at the start, with \
         `allocate_growable` (in C `millpond_alloc_growable`), or allocate a longer one and copy",
        format_bytes_up(len.saturating_add(*bytes))
    )]
    NoRoom {
        /// The requested size of the buffer, in bytes.
        len: u64,
        /// The bytes by which it was to grow.
        bytes: u64,
        /// What is in the way.
        why: NoRoom,
    },
    /// A range, a cast or a number of elements that does not fit the buffer.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The host asked for memory that the device may still use.
    #[error(
        "the device may still use the buffer: {point} is not reached, and its stream is at tick {reached}; wait for \
         the buffer, or use another one"
    )]
    InUse {
        /// The point that covers the use.
        point: Point,
        /// The tick that the stream has reached.
        reached: Tick,
    },
    /// A wait ended early: the work waits for other work that was never submitted.
    #[error(
        "the wait for {point} ended at tick {reached}: submit the streams that its work waits for, then wait again"
    )]
    NotReached {
        /// The point that was waited for.
        point: Point,
        /// The tick that the stream reached.
        reached: Tick,
    },
    /// A [hook](crate::Allocator::on_out_of_memory) made a request of its own allocator that the cache does not serve
    /// at once. Nothing was changed.
    #[error(
        "a hook that runs because the allocator is out of memory asked it for {requested} bytes that the cache does \
         not serve at once; there, ask the cache alone with `allocate_cached`, or use memory that was allocated before"
    )]
    InHook {
        /// The requested size, in bytes.
        requested: u64,
    },
    /// The driver failed. The request had no effect.
    #[error("the driver failed in `{call}`: {}{}", with_causes(source), advice_if(*lost))]
    Driver {
        /// The name of the backend's call.
        call: &'static str,
        /// Whether the device is lost.
        lost: bool,
        /// The driver's own error, which [`Error::driver`] returns. The text has its text and those of its causes, so
        /// it is not the [source](std::error::Error::source).
        r#source: E,
    },
}

impl<E: BackendError> Error<E> {
    pub(crate) fn of_driver(call: &'static str, source: E) -> Self {
        Error::Driver { call, lost: source.fault() == Fault::Lost, source }
    }

    /// Returns the kind of the error: whether freeing memory may help, the device is lost, or neither.
    pub fn fault(&self) -> Fault {
        match self {
            Error::OutOfMemory(_) | Error::NotResumed(_) => Fault::OutOfMemory,
            Error::Driver { source, .. } => source.fault(),
            _ => Fault::Other,
        }
    }

    /// Returns the kind of the error, for programs that act on it.
    pub fn kind(&self) -> ErrorKind {
        match (self, self.fault()) {
            (_, Fault::OutOfMemory) => ErrorKind::OutOfMemory,
            (_, Fault::Lost) => ErrorKind::Lost,
            (Error::Driver { .. }, _) => ErrorKind::Driver,
            (Error::Unsupported { .. }, _) => ErrorKind::Unsupported,
            (Error::NoRoom { .. }, _) => ErrorKind::NoRoom,
            (Error::NotPaused(why), _) if matches!(**why, PauseError::Capturing { .. }) => ErrorKind::NotReady,
            (Error::InUse { .. } | Error::NotReached { .. }, _) => ErrorKind::NotReady,
            _ => ErrorKind::Input,
        }
    }

    /// Returns the explanation with the report, if there was no memory for a request.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Error::OutOfMemory(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the driver's own error, if a driver's call failed.
    pub fn driver(&self) -> Option<&E> {
        match self {
            Error::Driver { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Returns how the allocator is called that a thing was given to.
fn other_allocator(belongs_to: &str, given_to: &str) -> String {
    if belongs_to == given_to { format!("another allocator of {given_to}") } else { format!("that of {given_to}") }
}

fn advice_if(lost: bool) -> &'static str {
    if lost { "; drop the allocator and start anew" } else { "" }
}

/// Returns names with their numbers before them.
fn numbered(names: &[String]) -> String {
    names.iter().enumerate().map(|(number, name)| format!("{number} {name}")).collect::<Vec<_>>().join(", ")
}

/// Why an allocator could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration is malformed.
    #[error(transparent)]
    Conf {
        /// The problem and its position.
        source: ConfError,
    },
    /// The configuration in the environment is malformed.
    #[error("in the environment variable {variable}: {source}")]
    Environment {
        /// The name of the variable.
        variable: &'static str,
        /// The problem and its position. The text has it, so it is not the [source](std::error::Error::source).
        r#source: ConfError,
    },
    /// The settings need something that the device does not have.
    #[error("{setting} needs {needs}, which {device} does not have")]
    Unsupported {
        /// The setting.
        setting: &'static str,
        /// The feature that the setting needs.
        needs: &'static str,
        /// The device's name.
        device: String,
    },
    /// A number of a class of memory that the device does not have. The error names all of them.
    #[error("the device {device} has no class {}: it has {}", class.0, numbered(classes))]
    UnknownClass {
        /// The number that was given.
        class: ClassId,
        /// The device's name.
        device: String,
        /// The names of the device's classes, by number.
        classes: Vec<String>,
    },
    /// A setting outside its range.
    #[error(transparent)]
    Setting {
        /// The setting, its value, and the values that it may have.
        source: SettingError,
    },
}

/// An out-of-memory error with an explanation.
///
/// Prints PyTorch's amounts first, then what would have helped.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::builder(Sim::new()).limit(64 << 20).build()?;
/// let error = allocator.create_stream()?.allocate(100 << 20).unwrap_err();
/// let refused = error.out_of_memory().ok_or("another error")?;
/// println!("{refused}"); // For people.
/// if let Some(remedy) = refused.explanation().remedies.iter().find(|remedy| remedy.suffices) {
///     println!("{:?} by {} bytes is enough", remedy.action, remedy.bytes); // For programs.
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OutOfMemory {
    device: u32,
    /// The class, unless it is the device's own.
    class: Option<String>,
    facts: Facts,
    report: Report,
    explanation: Explanation,
    /// What the driver is short of, if it has said so and it is not memory.
    short: Option<Short>,
    /// The bytes and the alignment that were asked for, where the request is longer for the alignment.
    aligned: Option<(u64, u64)>,
}

impl OutOfMemory {
    pub(crate) fn new(
        device: u32,
        class: Option<String>,
        facts: Facts,
        (report, short): (Report, Option<Short>),
        explanation: Option<Explanation>,
    ) -> Self {
        let explanation = explanation.unwrap_or_else(|| Explanation::of(&report, facts));
        Self { device, class, facts, report, explanation, short, aligned: None }
    }

    /// Has the text name these bytes and this alignment, in bytes, instead of the longer request.
    pub(crate) fn aligned(mut self, bytes: u64, alignment: u64) -> Self {
        self.aligned = Some((bytes, alignment));
        self
    }

    /// Returns what there was too little of at the driver's last refusal. It is [`Shortage::Memory`] also where the
    /// driver was not asked, as the limit left no room.
    pub fn shortage(&self) -> Shortage {
        self.short.as_ref().map_or(Shortage::Memory, |short| short.of)
    }

    /// Returns which blocks are in the way, and what would have helped and by how much.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// Returns the numbers in the message.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl std::error::Error for OutOfMemory {}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.report;
        let (of, whose) = match &self.class {
            Some(name) => (format!(" of the class {name}"), "class"),
            None => (String::new(), "device"),
        };
        write!(
            f,
            "out of memory{of} on device {}. Tried to allocate {} for a request of {} on {}. The {whose} has a total \
             capacity of {}. ",
            self.device,
            format_bytes(r.tried_bytes),
            self.asked(),
            r.stream,
            format_bytes(r.total_bytes),
        )?;
        match r.limit_bytes {
            Some(limit) => write!(f, "{} allowed; of", format_bytes(limit))?,
            None => write!(f, "Of")?,
        }
        let unallocated = r.reserved_bytes.saturating_sub(r.allocated_bytes);
        write!(
            f,
            " the reserved memory {} is allocated, and {} is reserved but unallocated.",
            format_bytes(r.allocated_bytes),
            format_bytes(unallocated)
        )?;
        if r.rejected {
            write!(f, " Refused at once, without retries: throw_on_cudamalloc_oom is set.")?;
            let advice = self.advice_if_too_large().unwrap_or_else(|| self.advice_if_rejected());
            return write!(f, "\n  What to do: {advice}");
        }
        self.explain(f)
    }
}

impl OutOfMemory {
    /// Returns what the program asked for.
    fn asked(&self) -> String {
        match self.aligned {
            Some((bytes, to)) => format!("{} at a multiple of {}", format_bytes(bytes), format_bytes(to)),
            None => format_bytes(self.report.requested_bytes),
        }
    }

    /// Prints which stream the free memory belongs to, what pins it, and what would free it.
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.report;
        match &self.explanation.hole {
            None => write!(f, "\n  {}", self.explain_nothing_free())?,
            Some(hole) => {
                let free = &hole.range;
                let of = if free.stream == r.stream { "its own stream".to_string() } else { free.stream.to_string() };
                write!(f, "\n  Largest free range: {} of {of}, in {}", format_bytes(free.bytes), free.segment)?;
                for (at, block) in hole.pinned_by.iter().enumerate() {
                    write!(f, ", {} {block}", if at == 0 { "pinned by" } else { "and" })?;
                }
                write!(f, ".")?;
            }
        }
        let l = &r.ledger;
        write!(
            f,
            "\n  Reserved: {} live, {} rounding, {} ready, {} waiting for points, {} free after the work of \
             other streams, {} stranded next to blocks in use.",
            format_bytes(l.live_bytes),
            format_bytes(l.rounding_bytes),
            format_bytes(l.ready_bytes),
            format_bytes(l.waiting_bytes),
            format_bytes(l.guarded_bytes),
            format_bytes(l.stranded_bytes),
        )?;
        if r.in_private_pools > 0 {
            let (free, held) = (format_bytes(r.in_private_pools), format_bytes(l.held_bytes));
            write!(f, "\n  Private pools: {free} free, of which {held} stay there, as the pools are held.")?;
        }
        self.explain_source(f)?;
        self.explain_slack(f)?;
        self.explain_pages(f)?;
        self.explain_policies(f)?;
        if let Some(bytes) = r.refused_addresses {
            let bytes = format_bytes(bytes);
            write!(
                f,
                "\n  Addresses: the driver has no contiguous {bytes} of them to map pages at, so free pieces cannot be \
                 joined. Each stream of each pool takes some: use fewer of them."
            )?;
        }
        if let Some(short) = &self.short {
            write!(f, "\n  {}", short.text)?;
        }
        for (at, holder) in self.explanation.holders.iter().enumerate() {
            let end = if at + 1 == self.explanation.holders.len() { "." } else { "" };
            write!(f, "{}{holder}{end}", if at == 0 { "\n  Held most by: " } else { ", " })?;
        }
        if self.explanation.is_recorded {
            write!(f, "\n  {RECORDED}.")?;
        }
        write!(f, "\n  What to do: {}", self.advice_if_too_large().unwrap_or_else(|| self.advice()))
    }

    /// Returns why no memory is free.
    fn explain_nothing_free(&self) -> String {
        let r = &self.report;
        match r.waiting_frees {
            0 if r.reserved_bytes == 0 => "Nothing is reserved.".into(),
            0 if r.allocated_bytes == r.reserved_bytes => "Nothing is cached: the program holds all of it.".into(),
            0 => "Nothing is free.".into(),
            waiting => format!("Nothing is free: {} are freed, and wait for the device.", format_bytes(waiting)),
        }
    }

    /// Prints whether the source of the pool has refused.
    fn explain_source(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried = format_bytes(self.report.tried_bytes);
        match self.report.has_source {
            false => Ok(()),
            true if self.source_refused() => {
                write!(f, "\n  The pool's memory comes from a source of its own, which has refused {tried}.")
            }
            true => write!(
                f,
                "\n  The pool's memory comes from a source of its own, which was not asked for {tried}, as the limit \
                 leaves no room for it."
            ),
        }
    }

    /// Returns whether the source of the pool was asked for memory and had none.
    fn source_refused(&self) -> bool {
        self.report.has_source && self.report.beyond_limit_bytes() == 0
    }

    /// Prints what is reserved beyond the slack, and which streams may still use freed memory.
    fn explain_slack(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slack = &self.report.slack;
        if let Some(bound) = slack.bound_bytes.filter(|_| slack.beyond_bytes > 0) {
            let (beyond, bound) = (format_bytes(slack.beyond_bytes), format_bytes(bound));
            let most = format_bytes(slack.most_live_bytes);
            write!(f, "\n  Beyond the slack: {beyond}; it allows {bound}, as {most} were live at most.")?;
        }
        let pins = waits(&self.report).map(|(stream, bytes)| format!("{} by {stream}", format_bytes(bytes)));
        let pins: Vec<_> = pins.collect();
        if pins.is_empty() {
            return Ok(());
        }
        write!(f, "\n  Freed memory that work in flight may still use: {}.", pins.join(", "))
    }

    /// Prints how much memory of pages there is for any stream.
    fn explain_pages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.report;
        if !r.moves_pages {
            return Ok(());
        }
        let left =
            |limit: u64| format!("; {} left below the limit", format_bytes(limit.saturating_sub(r.reserved_bytes)));
        write!(
            f,
            "\n  Pages, of all streams together: {} idle, {} free once their last use is over{}.",
            format_bytes(r.idle_bytes()),
            format_bytes(r.by_waiting.bytes),
            r.limit_bytes.map_or(String::new(), left),
        )
    }

    /// Prints what is known of other policies: that none has room where more is asked for than there may be. Else a
    /// replay alone shows.
    fn explain_policies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.report;
        let is_limit = r.beyond_limit_bytes() > 0;
        let total = if self.facts.oversubscribes { u64::MAX } else { r.total_bytes };
        let (bound, whose) = match r.limit_bytes.filter(|&limit| is_limit && limit < total) {
            Some(limit) => (limit, "the limit allows"),
            None if self.is_beyond_device() => (r.total_bytes, "there is"),
            // Who has the rest of the device is not known.
            None => return Ok(()),
        };
        let asked = format_bytes(r.ledger.live_bytes + r.requested_bytes);
        let beyond = beyond_any_policy(r, bound);
        if beyond > 0 {
            let beyond = format_bytes_up(beyond);
            return write!(
                f,
                "\n  With this request {asked} must be live at once, {beyond} more than {whose}: no policy has room."
            );
        }
        write!(f, "\n  With this request {asked} must be live at once, no more than {whose}.")?;
        match self.explanation.is_recorded {
            true => Ok(()),
            false => f.write_str(
                " A replay of what Allocator::record_history recorded shows whether another policy has room.",
            ),
        }
    }

    /// Returns whether the request takes more than is left of the device, whoever else has memory of it.
    fn is_beyond_device(&self) -> bool {
        explain::is_beyond_device(&self.report, self.facts)
    }

    /// Returns what to do about a request that would be refused even if everything were free.
    fn advice_if_too_large(&self) -> Option<String> {
        let whose = if self.class.is_some() { "class" } else { "device" };
        let ask = match explain::ceiling(&self.report, self.facts)? {
            Ceiling::Limit(bytes) => format!("ask for less: the limit is {} in all", format_bytes(bytes)),
            Ceiling::Device(bytes) => format!("ask for less: the {whose} has {} in all", format_bytes(bytes)),
        };
        Some(match explain::limit_to_raise(&self.report, self.facts) {
            Some(beyond) => format!("raise the limit by {}, or {ask}.", format_bytes_up(beyond)),
            None => format!("{ask}."),
        })
    }

    fn advice_if_rejected(&self) -> String {
        if explain::is_emptying_enough(&self.report, self.facts) {
            let bytes = format_bytes(self.report.by_emptying.bytes);
            return format!("call empty_cache, which frees {bytes}, then try again.");
        }
        "free buffers, or leave throw_on_cudamalloc_oom unset, so that the allocator waits and releases first.".into()
    }

    fn advice(&self) -> String {
        let r = &self.report;
        let text = format_bytes;
        // The bytes that can be had without freeing anything are not missing.
        let missing = r.missing_bytes();
        if self.source_refused() {
            return "free buffers of the pool, or have its source supply more.".into();
        }
        let short = self.short.as_ref().filter(|_| r.beyond_limit_bytes() == 0);
        if let Some(short) = short.filter(|short| missing == 0 && short.of == Shortage::Addresses) {
            return short.advice().into();
        }
        if missing == 0 {
            return "try again, or free buffers: enough pages are idle, but other threads had them, or there are no \
                    addresses left to map them at."
                .into();
        }
        if let Some(waits) = explain::waits_serve(r) {
            let waiting = text(r.waiting_frees + r.unreached_bytes);
            return match waits {
                Waits::Named => {
                    format!("submit or finish the work that {waiting} of freed memory wait for, then try again.")
                }
                Waits::All => format!(
                    "submit or finish the work of all streams, then try again: {waiting} of freed memory wait for it."
                ),
            };
        }
        if r.by_dropping_pools.serves {
            let held = text(r.by_dropping_pools.bytes);
            let work =
                if explain::is_used_in_pools(r, self.facts) { ", and submit the work that used them" } else { "" };
            return format!(
                "drop the references to private pools that no graph needs{work}: they keep {held} of free memory."
            );
        }
        if let Some(beyond) = explain::limit_to_raise(r, self.facts) {
            let whose = if r.has_source { "its source" } else { "the device itself" };
            return format!("free buffers, or raise the limit by {}: {whose} may have more.", format_bytes_up(beyond));
        }
        if let Some(short) = short {
            return match beyond_any_policy(r, r.total_bytes) {
                more if more > 0 && short.of == Shortage::Piece && self.is_beyond_device() => {
                    format!("free buffers of {} or more, and {}", format_bytes_up(more), short.advice())
                }
                _ => short.advice().into(),
            };
        }
        let unreserved = text(r.total_bytes.saturating_sub(r.reserved_bytes));
        if !self.is_beyond_device() {
            return format!(
                "free buffers, here or in the programs that share the device: its driver refused, with {unreserved} of \
                 it not reserved here."
            );
        }
        match beyond_any_policy(r, r.total_bytes) {
            0 => format!(
                "free buffers: the request takes {}, and {unreserved} are not reserved.",
                format_bytes_up(missing)
            ),
            more => {
                format!(
                    "free buffers of {} or more: caching cannot make more room than the device has.",
                    format_bytes_up(more)
                )
            }
        }
    }
}
