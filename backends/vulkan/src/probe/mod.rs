//! The physical devices: their properties and features.

mod facts;
mod info;

pub(crate) use facts::{Features, Probe, transfers, version};
pub use info::{DeviceInfo, FamilyInfo, HeapInfo};
