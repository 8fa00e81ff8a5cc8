//! The physical devices: their properties and features.

mod facts;
mod info;

pub(crate) use facts::{Probe, transfers};
pub use info::{DeviceInfo, FamilyInfo, HeapInfo};
