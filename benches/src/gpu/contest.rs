//! What a subject does in its turn, and how long it may take.

use std::error::Error;
use std::time::Duration;

use super::task::Task;
use crate::measure::{Latency, Race, Timing};

/// What kept a subject from its turn.
pub type Trouble = Box<dyn Error>;

/// How many passes, and for how long: whichever ends first. At least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Passes at most.
    pub passes: usize,
    /// No further pass begins after so long.
    pub budget: Duration,
}

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Rounds per case, at least 1.
    pub rounds: usize,
    /// Passes after the first that do not count.
    pub warm: Share,
    /// Those that count.
    pub timed: Share,
    /// Operations timed one by one, in whole passes.
    pub singles: Share,
    /// A subject that has used so much time in a case sits the remaining rounds out.
    pub budget: Duration,
    /// How long a race lasts.
    pub timing: Timing,
}

impl Effort {
    /// What a record is made of: about 5 minutes for everything.
    pub const FULL: Effort = Effort {
        rounds: 5,
        warm: Share { passes: 8, budget: Duration::from_millis(500) },
        timed: Share { passes: 16, budget: Duration::from_millis(150) },
        singles: Share { passes: 200_000, budget: Duration::from_millis(500) },
        budget: Duration::from_millis(2000),
        timing: Timing::USUAL,
    };

    /// Whether everything works: seconds.
    pub const QUICK: Effort = Effort {
        rounds: 1,
        warm: Share { passes: 1, budget: Duration::from_millis(50) },
        timed: Share { passes: 2, budget: Duration::from_millis(20) },
        singles: Share { passes: 1000, budget: Duration::from_millis(20) },
        budget: Duration::from_millis(200),
        timing: Timing { warm: Duration::from_millis(2), window: Duration::from_millis(5) },
    };
}

/// What one turn on one thread came to. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Turn {
    /// From an empty cache through the first pass, its preparation included: what the driver takes is in it.
    pub cold_ns: f64,
    /// One of the passes that count, the median.
    pub pass_ns: f64,
    /// How many they were.
    pub passes: usize,
    /// The most bytes held by the end of the first pass, where the subject counts them.
    pub reserved: Option<u64>,
    /// What only the first turn of a case looks at.
    pub closer: Option<Closer>,
}

/// A closer look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Closer {
    /// Single operations.
    pub latency: Latency,
    /// From no blocks at all through one pass, so many were checked to be there, and to be apart from all others alive.
    pub blocks: u64,
}

/// Somebody who is measured. Whatever it does, it begins and ends without blocks and with an empty cache.
pub trait Contestant {
    /// What the record calls it.
    fn name(&self) -> &str;

    /// What it says of its version, where it does.
    fn about(&self) -> Option<&str> {
        None
    }

    /// It takes so long for an operation that it gets a shorter list.
    fn is_slow(&self) -> bool {
        false
    }

    /// Goes over the only list of the task. `closer`: with a closer look.
    ///
    /// # Errors
    ///
    /// Whatever went wrong: it is out of the case then.
    fn turn(&mut self, task: &Task, effort: &Effort, closer: bool) -> Result<Turn, Trouble>;

    /// Lets the threads of the task race, for each of these numbers of them.
    ///
    /// # Errors
    ///
    /// As [`turn`](Contestant::turn).
    fn race(&mut self, task: &Task, threads: &[usize], timing: Timing) -> Result<Vec<Race>, Trouble>;
}

/// The median of some times in nanoseconds.
///
/// # Panics
///
/// If there are none.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
