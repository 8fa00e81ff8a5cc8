//! Settings that change while an allocator serves.

use millpond_backend::{Backend, ClassId};
use millpond_core::settings::Options;

use crate::allocator::Allocator;
use crate::conf::{self, ConfError};
use crate::state::LockedShards;
use crate::sync::Ordering;

/// The keys of a configuration text that had no effect: from [`Allocator::configure`]. All others have theirs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[must_use = "keys that had no effect are named here"]
pub struct Configured {
    /// Those that stay as they were when the allocator was built: create another one for them. A key is here only if
    /// its value would make a difference.
    pub kept: Vec<&'static str>,
    /// Those that have no effect in any allocator: see [`Builder::ignored`](crate::Builder::ignored).
    pub ignored: Vec<&'static str>,
    /// Those of `ignored` that ask for what Millpond does not do: see [`Parsed::unserved`](conf::Parsed::unserved).
    pub unserved: Vec<&'static str>,
}

impl<B: Backend> Allocator<B> {
    /// Changes settings from the next request on, in the grammar of [`Builder::conf`](crate::Builder::conf). What the
    /// text does not name stays as it is.
    ///
    /// These keys act: `max_split_size_mb`, `max_non_split_rounding_mb`, `large_segment_size_mb`,
    /// `roundup_power2_divisions`, `garbage_collection_threshold`, `per_process_memory_fraction`,
    /// `throw_on_cudamalloc_oom`, `record_stream`, `release_idle_after`, `keep_idle_mb` and
    /// `release_idle_in_background`. A key cannot be removed: give the value that turns it off where it has one.
    /// Nothing moves, and nothing is released for it: memory that is reserved stays, and a limit applies to what comes
    /// after it.
    ///
    /// `policy`, `growth`, `slack`, `expandable_segments` and `scrub` stay as they were at
    /// [`build`](crate::Builder::build), and are returned in [`kept`](Configured::kept) if that makes a difference.
    ///
    /// Takes a lock that all streams share, visits every stream, and also every block if `max_split_size_mb` has a new
    /// value. Other threads may allocate meanwhile, and are served by the old settings or by the new ones.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::builder(Sim::new()).conf("policy:classic").build()?;
    /// let done = allocator.configure("roundup_power2_divisions:4,expandable_segments:True")?;
    /// assert_eq!(allocator.create_stream()?.allocate(5000)?.capacity(), 5120);
    /// assert_eq!(done.kept, ["expandable_segments"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A mistake in the text, as in [`conf::parse_over`]. Nothing has changed then.
    pub fn configure(&self, text: &str) -> Result<Configured, ConfError> {
        let state = self.state();
        let mut coordinator = state.coordinator.lock();
        let has_virtual_memory = state.class == ClassId::DEVICE && state.backend.caps().pages.is_some();
        let base = Options::from(coordinator.settings().clone());
        let parsed = conf::parse_over(base.clone(), text)?;
        let kept = parsed.kept(&base, has_virtual_memory);
        let to = &parsed.options.rest;
        if let Err(error) = coordinator.change_settings(to, &mut LockedShards(state)) {
            panic!("what the parser accepts is in its range, and yet: {error}");
        }
        if parsed.keys.contains(&"per_process_memory_fraction") {
            coordinator.set_memory_fraction(to.memory_fraction);
        }
        state.sizes.divide(coordinator.sizes().divisions());
        state.releases_idle.store(to.idle.after.is_some(), Ordering::Relaxed);
        state.publish(&coordinator);
        drop(coordinator);
        #[cfg(not(loom))]
        if parsed.keys.iter().any(|key| matches!(*key, "release_idle_after" | "release_idle_in_background")) {
            self.handle().restart_background();
        }
        Ok(Configured { kept, ignored: parsed.ignored, unserved: parsed.unserved })
    }
}
