#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod lanes;
mod leavings;
mod misuse;
mod ring;
mod submits;
#[cfg(feature = "testing")]
pub mod testing;

pub use clock::TickClock;
pub use lanes::Lanes;
pub use leavings::Leavings;
pub use misuse::{Misuse, Named, Remedy, Role, is_inside};
pub use ring::{Piece, Ring};
pub use submits::SubmitClock;
