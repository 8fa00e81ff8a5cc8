#![doc = include_str!("../README.md")]

#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod evidence;
pub mod golden;
mod model;
pub mod oracle;
mod programs;
pub mod sameness;
pub mod scenario;
mod session;
mod sim;
pub mod soak;
pub mod suite;
pub mod swarm;
mod tests_macro;
mod watched;

#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use device::{DeviceUnderTest, Need, Unavailable};
pub use model::Model;
pub use sim::SimDevice;
pub use suite::{Difference, Outcome, ScenarioResult};
pub use watched::{Order, Tenancy, Trouble, Watched};
