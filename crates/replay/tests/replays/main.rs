//! Programs that are recorded, and run again.

mod addresses;
mod fitting;
mod history;
mod timing;
