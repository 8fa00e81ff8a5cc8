//! What lanes note of their blocks beside what they need: who has them, and what happened lately.
//!
//! Each lane has its own [notes](lane::Notes), behind the lane's lock, and none unless something is turned on: what
//! [`crate::live`] shows, the [history](crate::history), or both. The switch is under the coordinator's lock, and is
//! thrown with all lanes held. So are copies made, so that they show one moment.
//!
//! Lanes write here. The explanation of a refusal and the observers read it, and none of them is known here.

pub(crate) mod groups;
pub(crate) mod lane;
pub(crate) mod note;
pub(crate) mod ring;
pub(crate) mod switches;
