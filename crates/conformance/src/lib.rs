#![doc = include_str!("../README.md")]

mod contract;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod evidence;
pub mod golden;
pub mod language;
mod minimum;
mod model;
pub mod oracle;
mod programs;
pub mod reserved;
pub mod sameness;
pub mod scenario;
mod session;
mod side_by_side;
mod sim;
pub mod sleep;
pub mod soak;
pub mod suite;
pub mod swarm;
mod tested;
mod tests_macro;
#[cfg(feature = "vulkan")]
mod vulkan;
mod watched;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use device::{DeviceUnderTest, Live, Need, Unavailable, caps_or_skip, required};
pub use model::Model;
pub use sim::SimDevice;
pub use suite::{Difference, Outcome, ScenarioResult};
pub use tested::Tested;
#[cfg(feature = "vulkan")]
pub use vulkan::VulkanDevice;
pub use watched::{Strings, Tenancy, Trouble, Watched};
#[cfg(feature = "wgpu")]
pub use wgpu::WgpuDevice;
