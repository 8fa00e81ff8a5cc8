//! Tests of replays.

mod checked;
mod submitted;
mod until;
