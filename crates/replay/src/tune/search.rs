//! The search: which settings are tried in which order, on several threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millpond::settings::Settings;
use millpond_trace::Random;

use super::{Ended, Frontier, Measured, Space, Tried, conf_of};

/// The number of settings that are tried under the same frontier. What is tried next depends on all of them, and not on
/// the order in which threads end them.
const BATCH: usize = 48;

/// How often settings are drawn that were tried before, until there are taken to be no others.
const REPEATS_MAX: usize = 2000;

/// How long a search runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// Up to a number of settings.
    Settings(usize),
    /// For a time. How many settings are tried then depends on the machine.
    Time(Duration),
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The settings that there are.
    pub space: Space,
    /// How long it goes on.
    pub budget: Budget,
    /// The seed of what is drawn.
    pub seed: u64,
    /// The number of threads, at least 1.
    pub threads: usize,
}

/// The result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Searched {
    /// The settings that no other one beats.
    pub frontier: Frontier,
    /// What the program came to under the default settings; `None` if it does not fit, or the search was ended first.
    pub default: Option<Measured>,
    /// The number of settings that were tried.
    pub tried: usize,
    /// How many of them were replayed to the end.
    pub whole: usize,
    /// How many of them were stopped early, as they were beaten.
    pub beaten: usize,
    /// Under how many of them the program ran out of memory.
    pub unfit: usize,
    /// Whether no other settings were found before the budget was used up.
    pub is_exhausted: bool,
}

impl Search {
    /// Searches until the budget is used up, or `is_over` returns true. `measure` makes one trial, and ends it as
    /// [`Ended::Beaten`] where the frontier that it is given beats what it has come to. `step` is called after each
    /// trial, on the thread that made it.
    ///
    /// # Errors
    ///
    /// Returns the first error of `measure`, in the order of the settings.
    ///
    /// # Panics
    ///
    /// If there are no threads, and if `measure` panics.
    pub fn run<E: Send>(
        &self,
        measure: impl Fn(&Settings, &Frontier) -> Result<Ended, E> + Sync,
        is_over: impl Fn() -> bool + Sync,
        step: impl Fn() + Sync,
    ) -> Result<Searched, E> {
        let begin = Instant::now();
        let is_over = || is_over() || matches!(self.budget, Budget::Time(time) if begin.elapsed() >= time);
        let mut searched = Searched {
            frontier: Frontier::default(),
            default: None,
            tried: 0,
            whole: 0,
            beaten: 0,
            unfit: 0,
            is_exhausted: false,
        };
        let mut source = Source::new(self);
        while !is_over() {
            let left = match self.budget {
                Budget::Settings(most) => most - searched.tried,
                Budget::Time(_) => BATCH,
            };
            if left == 0 {
                break;
            }
            let batch = source.next(left.min(BATCH), &searched.frontier);
            if batch.is_empty() {
                searched.is_exhausted = true;
                break;
            }
            let frontier = searched.frontier.clone();
            let ended = each(&batch, self.threads, &is_over, |settings| {
                let ended = measure(settings, &frontier);
                step();
                ended
            });
            for (settings, ended) in batch.into_iter().zip(ended) {
                let Some(ended) = ended else { continue };
                searched.note(settings, ended?, &self.space);
            }
        }
        Ok(searched)
    }
}

impl Searched {
    fn note(&mut self, settings: Settings, ended: Ended, space: &Space) {
        self.tried += 1;
        match ended {
            Ended::Whole(measured) => {
                self.whole += 1;
                if settings == space.default_settings() {
                    self.default = Some(measured);
                }
                self.frontier.add(Tried { settings, measured });
            }
            Ended::Beaten => self.beaten += 1,
            Ended::OutOfMemory => self.unfit += 1,
        }
    }
}

/// The settings that a search tries, each once.
struct Source {
    space: Space,
    random: Random,
    /// The settings of the first batch, alone, so that what comes next is compared with them.
    first: Vec<Settings>,
    /// The settings to try before any are drawn, the last one first.
    grid: Vec<Settings>,
    seen: BTreeSet<String>,
}

impl Source {
    fn new(search: &Search) -> Self {
        let Search { space, seed, .. } = *search;
        let mut grid = space.grid();
        grid.reverse();
        Self { space, random: Random::new(seed), first: space.first(), grid, seen: BTreeSet::new() }
    }

    fn next(&mut self, most: usize, frontier: &Frontier) -> Vec<Settings> {
        let mut batch = Vec::with_capacity(most);
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            first.into_iter().take(most).for_each(|settings| self.offer(settings, &mut batch));
            return batch;
        }
        while batch.len() < most
            && let Some(settings) = self.grid.pop()
        {
            self.offer(settings, &mut batch);
        }
        let mut repeats = 0;
        while batch.len() < most && repeats < REPEATS_MAX {
            let before = batch.len();
            let known = frontier.all();
            let settings = if known.is_empty() || self.random.one_in(3) {
                self.space.drawn(&mut self.random)
            } else {
                let near = self.random.index(known.len());
                self.space.changed(&known[near].settings, &mut self.random)
            };
            self.offer(settings, &mut batch);
            repeats = if batch.len() == before { repeats + 1 } else { 0 };
        }
        batch
    }

    /// Adds settings that were not tried before.
    fn offer(&mut self, settings: Settings, batch: &mut Vec<Settings>) {
        if settings.validate().is_ok() && self.seen.insert(conf_of(&settings)) {
            batch.push(settings);
        }
    }
}

/// Calls `work` for each item, on a number of threads, and returns the results in the order of the items. Once
/// `is_over` returns true no other item is begun; those that were not begun have no result.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    is_over: &(impl Fn() -> bool + Sync),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<Option<R>> {
    assert!(threads > 0, "a search takes at least one thread");
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(items.len(), || None);
    let run = || {
        let mut done = Vec::new();
        while !is_over() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            done.push((at, work(item)));
        }
        done
    };
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads.min(items.len())).map(|_| scope.spawn(run)).collect();
        for thread in started {
            match thread.join() {
                Ok(done) => done.into_iter().for_each(|(at, result)| results[at] = Some(result)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    results
}
