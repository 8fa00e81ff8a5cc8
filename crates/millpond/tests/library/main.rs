//! The library as programs use it, on the simulated device.

mod addresses;
mod advice;
mod captures;
mod checkpoints;
mod devices;
mod ends;
mod hammer;
mod history;
mod later;
mod limits;
mod live;
mod out_of_memory;
mod peaks;
mod pinned;
mod policies;
mod pools;
mod reclaimed;
mod reuse;
mod scopes;
mod scrubbing;
mod settings;
mod snapshot;
mod streams;
mod transfers;
mod typed;
mod unknown_streams;
