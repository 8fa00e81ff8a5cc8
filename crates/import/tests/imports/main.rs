//! Recordings of other tools, and bytes that are none.

mod formats;
mod hostile;
mod parts;
