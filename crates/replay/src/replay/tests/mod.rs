//! Tests of replays.

mod checked;
mod flight;
mod life;
mod submitted;
mod timed;
mod timing;
mod until;
