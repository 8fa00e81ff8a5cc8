//! The physical devices: their properties and features.

mod export;
mod facts;
mod info;

pub use export::ExportKind;
pub(crate) use facts::{Features, Probe, transfers, version};
pub use info::{DeviceInfo, FamilyInfo, HeapInfo};
