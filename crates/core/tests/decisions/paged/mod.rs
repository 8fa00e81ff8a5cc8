//! `paged`, step by step: windows and the memory behind them, slabs, plans that fail, and operations of other threads.

mod answers;
mod beside;
mod budget;
mod closed;
mod ending;
mod exact;
mod fails;
mod foreign;
mod guarded;
mod held;
mod home;
mod longer;
mod looks;
mod mappings;
mod overview;
mod pace;
mod ready;
mod restored;
mod slabs;
mod slack;
mod windows;
