//! Clocks, rounds and their results.

mod evictor;
mod latency;
mod player;
mod process;
mod rounds;
mod spread;
mod threads;

pub use evictor::Evictor;
pub use latency::{Latency, Meter, histogram};
pub use player::{Player, Replayer, Runner};
pub use process::{Stopwatch, resident_bytes};
pub use rounds::{Measured, WARM_PASSES, measure};
pub use spread::Spread;
pub use threads::{Race, Races, Team, Timing, measure_threads, team};
