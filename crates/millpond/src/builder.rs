//! The configuration of an allocator.

use std::time::Duration;

use millpond_backend::{Backend, Caps, ClassId};
use millpond_core::settings::{IdleRelease, Options, Scrub, Settings};
use millpond_core::{Coordinator, DeviceFacts};
#[cfg(feature = "tracing")]
use tracing::warn;

use crate::allocator::Allocator;
use crate::conf::{self, ConfError};
use crate::error::BuildError;
use crate::scrub;
use crate::state::State;

/// The environment variables that hold a configuration, in the order in which they are looked up. Only the first one
/// that is set is used.
pub const ENVIRONMENT: [&str; 3] = ["MILLPOND_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// An allocator that is being configured, created by [`Allocator::builder`].
///
/// Without a policy, or with `policy:auto`, the policy is `paged` where the device has virtual memory. It is `classic`
/// on other devices, and for classes of memory that do not come in pages, which are all but the device's own.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::builder(Sim::new()).conf("policy:paged,slack:0.02").limit(1 << 30).build()?;
/// assert_eq!(allocator.limit(), Some(1 << 30));
///
/// let mistake = Allocator::builder(Sim::new()).conf("policy:page").build();
/// println!("{}", mistake.unwrap_err()); // Shows the place, and what is accepted there.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is set up until `build`"]
pub struct Builder<B: Backend> {
    backend: B,
    class: ClassId,
    device: u32,
    limit: Option<u64>,
    options: Result<Options, BuildError>,
    ignored: Vec<&'static str>,
}

impl<B: Backend> Builder<B> {
    fn new(backend: B) -> Self {
        Self {
            backend,
            class: ClassId::DEVICE,
            device: 0,
            limit: None,
            options: Ok(Options::default()),
            ignored: Vec::new(),
        }
    }

    /// Replaces all settings given so far, including the policy.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.options = Ok(settings.into());
        self.ignored.clear();
        self
    }

    /// Applies the settings of a configuration string in PyTorch's grammar on top of those given so far. A mistake in
    /// it is reported by [`build`](Self::build).
    pub fn conf(self, text: &str) -> Self {
        self.parse(text, |source| BuildError::Conf { source })
    }

    fn parse(mut self, text: &str, error: impl FnOnce(ConfError) -> BuildError) -> Self {
        let ignored = &mut self.ignored;
        self.options = self.options.and_then(|base| {
            let parsed = conf::parse_over(base, text).map_err(error)?;
            let new: Vec<_> = parsed.ignored.into_iter().filter(|key| !ignored.contains(key)).collect();
            ignored.extend(new);
            Ok(parsed.options)
        });
        self
    }

    /// Returns the keys given so far that are accepted but have no effect: each once, in order, and under its CUDA
    /// name. PyTorch has them for parts that Millpond lacks; their values were checked. With the feature `tracing`,
    /// [`build`](Self::build) warns about each. [`Allocator::ignored_settings`] returns them later.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let builder = Allocator::builder(Sim::new()).conf("pinned_use_background_threads:True,max_split_size_mb:64");
    /// assert_eq!(builder.ignored(), ["pinned_use_background_threads"]);
    /// ```
    pub fn ignored(&self) -> &[&'static str] {
        &self.ignored
    }

    /// Applies the settings of the environment: the first of [`ENVIRONMENT`] that is set, if any.
    ///
    /// Nothing else in the library reads the environment. Without this call, an allocator has the same settings
    /// wherever it runs.
    pub fn environment(self) -> Self {
        self.environment_of(|name| std::env::var(name).ok())
    }

    /// Works like [`environment`](Self::environment) with another function that looks up variables.
    pub fn environment_of(self, look_up: impl Fn(&str) -> Option<String>) -> Self {
        let found = ENVIRONMENT.into_iter().find_map(|variable| Some((variable, look_up(variable)?)));
        match found {
            Some((variable, text)) => self.parse(&text, |source| BuildError::Environment { variable, source }),
            None => self,
        }
    }

    /// Serves this class of memory instead of the device's own. Memory of a class of the kind [`ClassKind::Host`] is
    /// handed out again only once the device is done with it, even on the stream that it was freed on, because the host
    /// may be the next to use it. [`Allocator::pinned`] creates a cache of such memory that belongs to no stream.
    ///
    /// [`ClassKind::Host`]: millpond_backend::ClassKind::Host
    pub fn class(mut self, class: ClassId) -> Self {
        self.class = class;
        self
    }

    /// Sets the number of the device in messages and summaries. The default is 0.
    pub fn device(mut self, number: u32) -> Self {
        self.device = number;
        self
    }

    /// Gives memory back to the driver that nothing has needed for this long: at calls of [`Allocator::poll`], which
    /// the program makes now and then, or [in the background](Self::release_idle_in_background). By default it stays.
    /// This is the key `release_idle_after` of a configuration.
    ///
    /// In turns of this length, the allocator measures the most that is live. What the policy may reserve for that much
    /// was needed, and stays, with what [`keep_idle`](Self::keep_idle) adds. Of the rest, whole free pages and segments
    /// go back once the device is done with them. The host waits for nothing, except that CUDA itself waits for the
    /// device where it frees a segment. Nothing goes back during a capture, nor from a private pool with references or
    /// with a source of its own.
    ///
    /// If most of what went back is taken again within such a turn, the next ones are twice as long, up to sixteen
    /// times; so a program that has its peaks further apart, or free memory in pieces, does not call the driver all the
    /// time. [`Allocator::idle_stats`] says what went back.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let builder = Allocator::builder(Sim::new()).release_idle_after(Duration::from_millis(1));
    /// let (allocator, mut released) = (builder.build()?, 0);
    /// drop(allocator.create_stream()?.allocate(1 << 30)?);
    /// while released == 0 {
    ///     released += allocator.poll()?;
    /// }
    /// assert!(allocator.memory_reserved() < 32 << 20);
    /// assert_eq!(allocator.idle_stats().released_bytes, released);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release_idle_after(self, after: Duration) -> Self {
        self.with_idle(|idle| idle.after = Some(after))
    }

    /// Has this number of bytes stay when idle memory goes back, beyond what was needed: `keep_idle_mb` of a
    /// configuration. The default is 0.
    pub fn keep_idle(self, bytes: u64) -> Self {
        self.with_idle(|idle| idle.keep_bytes = bytes)
    }

    /// Gives idle memory back on a thread of the allocator, which ends with it: `release_idle_in_background:True` of a
    /// configuration. It has no effect without [`release_idle_after`](Self::release_idle_after). The thread makes
    /// driver calls, and none while a capture is under way that the allocator was told of. So announce a CUDA capture
    /// before the driver's own call.
    pub fn release_idle_in_background(self) -> Self {
        self.with_idle(|idle| idle.in_background = true)
    }

    fn with_idle(mut self, set: impl FnOnce(&mut IdleRelease)) -> Self {
        if let Ok(options) = &mut self.options {
            set(&mut options.rest.idle);
        }
        self
    }

    /// Limits the reserved bytes, whatever the memory fraction of the settings is.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Creates the allocator. It reserves no memory yet.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed configuration, a setting outside its range, a class that the device does not
    /// have, and settings that it cannot serve.
    pub fn build(self) -> Result<Allocator<B>, BuildError> {
        let mut coordinator = coordinator_for(self.backend.caps(), self.class, self.options?)?;
        if self.limit.is_some() {
            coordinator.set_limit(self.limit);
        }
        #[cfg(feature = "tracing")]
        warn_ignored(&self.ignored);
        let mut state = State::new(self.backend, self.class, self.device, coordinator);
        state.ignored = self.ignored;
        Ok(Allocator::from_state(state))
    }
}

impl<B: Backend> Allocator<B> {
    /// Creates an allocator for the device's own memory, with default settings. It reads no environment variable:
    /// [`Builder::environment`] does.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// let stream = allocator.create_stream()?;
    /// let buffer = stream.allocate(1000)?;
    /// assert_eq!((buffer.len(), buffer.capacity()), (1000, 1024));
    /// assert_eq!(allocator.memory_allocated(), 1024);
    /// drop(buffer);
    /// assert_eq!((allocator.memory_allocated(), allocator.memory_reserved()), (0, 2 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(backend: B) -> Self {
        match Self::builder(backend).build() {
            Ok(allocator) => allocator,
            Err(error) => panic!("the default settings suit every device, and yet: {error}"),
        }
    }

    /// Returns a builder to configure an allocator.
    pub fn builder(backend: B) -> Builder<B> {
        Builder::new(backend)
    }
}

/// Warns of the keys of a configuration that have no effect.
#[cfg(feature = "tracing")]
fn warn_ignored(keys: &[&'static str]) {
    for key in keys {
        warn!(target: "millpond", key, "the setting has no effect here: it is of a part that only PyTorch has");
    }
}

/// Creates the coordinator for a class of a device. Only the device's own memory comes in pages.
pub(crate) fn coordinator_for(caps: &Caps, class: ClassId, options: Options) -> Result<Coordinator, BuildError> {
    if usize::from(class.0) >= caps.classes.len() {
        let classes = caps.classes.iter().map(|class| class.name.clone()).collect();
        return Err(BuildError::UnknownClass { class, device: caps.name.clone(), classes });
    }
    let pages = caps.pages.filter(|_| class == ClassId::DEVICE);
    let settings = options.resolve(pages.is_some());
    settings.validate().map_err(|source| BuildError::Setting { source })?;
    if settings.policy.needs_pages() && pages.is_none() {
        let setting = if settings.policy.moves_pages() { "policy:paged" } else { "expandable_segments" };
        return Err(BuildError::Unsupported { setting, needs: "virtual memory", device: caps.name.clone() });
    }
    if settings.scrub != Scrub::Off
        && let Some(needs) = scrub::missing(caps, class)
    {
        return Err(BuildError::Unsupported { setting: "scrub", needs, device: caps.name.clone() });
    }
    let facts = DeviceFacts {
        total_bytes: caps.class(class).total_bytes,
        reuse: caps.reuse_of(class),
        pages,
        stream_wait: caps.stream_wait,
    };
    Ok(Coordinator::new(settings, facts))
}
