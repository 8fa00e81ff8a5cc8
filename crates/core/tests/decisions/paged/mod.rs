//! `paged`, step by step: windows and the memory behind them, slabs, plans that fail, and operations of other threads.

mod beside;
mod borrowers;
mod budget;
mod device;
mod ending;
mod fails;
mod known;
mod loans;
mod looks;
mod mappings;
mod overview;
mod pace;
mod ready;
mod slabs;
mod slack;
mod windows;
