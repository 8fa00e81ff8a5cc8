//! Replays of programs that live long: what differs between the passes, what stays, and what is under way meanwhile.

use millpond::{Allocator, Stream};
use millpond_backend::Backend;

use crate::acts::Acts;
use crate::check::{CheckError, Checker};
use crate::flight::{Flight, Flying};
use crate::observer::{Observed, Observer};
use crate::outcome::Replayed;
use crate::replay::Replay;
use crate::submits::Submits;
use crate::until::Until;
use crate::vary::Vary;
use crate::watch::{Unwatched, Watch};

/// What makes the passes of a replay one life. The default changes nothing: every pass is the trace.
pub struct Life<'a, B: Backend> {
    /// Whether bytes are checked, as [`Replay::run_checked`] describes.
    pub checked: bool,
    /// The blocks that are allocated once, in the first pass, and stay until the last pass is over: true at their
    /// numbers. Passes after the first do nothing with them. `Trace::long_lived` of `millpond-trace` chooses them.
    pub kept: Vec<bool>,
    /// How sizes differ from pass to pass.
    pub vary: Option<Vary>,
    /// The work that each allocation, and each first use on another stream, queues.
    pub in_flight: Option<Box<dyn Flight<B> + 'a>>,
    /// An observer that is told what happens. Its work is part of the time of the passes.
    pub observer: Option<&'a mut dyn Observer<B>>,
}

impl<B: Backend> Default for Life<'_, B> {
    fn default() -> Self {
        Self { checked: false, kept: Vec::new(), vary: None, in_flight: None, observer: None }
    }
}

impl Replay {
    /// Works like [`run_on`](Self::run_on), or like [`run_checked`](Self::run_checked) if bytes are checked, but the
    /// passes are one life. Kept blocks are freed after the last pass, which counts in no pass.
    ///
    /// With work in flight, streams are submitted where the application closes ticks as in a checked replay.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`run_checked`](Self::run_checked), and those of queuing the work.
    pub fn run_life<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        until: impl Into<Until>,
        life: Life<'_, B>,
        progress: impl FnMut(usize),
    ) -> Result<Replayed, CheckError<B::Error>> {
        let Life { checked, kept, vary, in_flight, observer } = life;
        let (acts, until) = (Acts::new(self, &kept, vary), until.into());
        let submits = self.submits(allocator, streams, !checked && in_flight.is_none());
        let place = (allocator, streams);
        if checked {
            let checker = Checker::new(allocator, 0, 0)?.keeping(kept.clone());
            let mut flying = Flying::new(Observed::new(checker, observer), in_flight);
            let replayed = self.lived(place, submits, until, (&acts, &kept), &mut flying, progress)?;
            Ok(Replayed { checked_blocks: flying.watch().watch().blocks(), ..replayed })
        } else {
            let mut flying = Flying::new(Observed::new(Unwatched, observer), in_flight);
            self.lived(place, submits, until, (&acts, &kept), &mut flying, progress)
        }
    }

    fn lived<B: Backend, W: Watch<B, Error: Into<CheckError<B::Error>>>>(
        &self,
        (allocator, streams): (&Allocator<B>, &[Stream<B>]),
        mut submits: Submits<'_, B>,
        until: Until,
        (acts, kept): (&Acts<'_>, &[bool]),
        flying: &mut Flying<'_, B, W>,
        progress: impl FnMut(usize),
    ) -> Result<Replayed, CheckError<B::Error>> {
        let (mut pass, mut stay) = (0, Vec::new());
        let replayed = acts.first().passes(allocator, until, progress, |deadline| {
            let act = acts.of(pass);
            let located = |error: W::Error| act.located(error.into());
            pass += 1;
            let begin = flying.clock();
            let done = act.open_pass(allocator, streams, &mut submits, flying, deadline);
            let (mut done, mut live) = done.map_err(located)?;
            if let (Some(begin), Some(end)) = (begin, flying.clock()) {
                done.time = end - begin;
            }
            stay.extend(live.extract_if(.., |(id, _)| kept.get(*id as usize).is_some_and(|kept| *kept)));
            act.end(done.events, live, &mut submits, flying).map_err(located)?;
            Ok::<_, CheckError<_>>(done)
        })?;
        self.end(self.events(), stay, &mut submits, flying).map_err(|error| self.located(error.into()))?;
        flying.land();
        Ok(Replayed { warm_events: acts.later_events(), ..replayed })
    }
}
