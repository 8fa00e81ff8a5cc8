//! Opening a device or adopting one, and the handles through which all rooms call the driver.

mod adopt;
mod builder;
mod devices;
mod driver;
mod host;
mod instance;
mod queue;
mod settings;
mod sync2;
mod validation;

pub use adopt::{Adopted, AdoptedQueue};
pub use builder::VulkanBuilder;
pub(crate) use devices::list;
pub(crate) use driver::Driver;
pub use driver::EnabledFeatures;
pub(crate) use host::{HostPointer, MappedBuffer};
pub(crate) use queue::{Queue, describe};
pub use queue::{QueueChoice, QueueLock};
pub(crate) use settings::{COUNT, Settings, TRANSFER};
pub use validation::ValidationLog;
