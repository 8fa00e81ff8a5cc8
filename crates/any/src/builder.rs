//! The configuration of an allocator.

use std::fmt;

use millpond::Builder;
use millpond::settings::Settings;
use millpond_backend::ClassId;

use crate::allocator::AnyAllocator;
use crate::error::AnyError;
use crate::macros::{erase, erased, on};

erased! {
    /// An allocator that is being configured, created by [`AnyAllocator::builder`]: the erased form of [`Builder`].
    #[must_use = "nothing is set up until `build`"]
    AnyBuilder:
    Builder<millpond_sim::Sim>, Builder<millpond_cuda::Cuda>,
    Builder<millpond_vulkan::Vulkan>, Builder<millpond_wgpu::Wgpu>
}

impl AnyBuilder {
    /// Sets all settings, including the policy.
    pub fn settings(self, settings: Settings) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.settings(settings)))
    }

    /// Applies the settings of a configuration string in PyTorch's grammar on top of those given so far. A mistake in
    /// it is reported by [`build`](Self::build).
    pub fn conf(self, text: &str) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.conf(text)))
    }

    /// Returns the keys of the texts given so far that are accepted and have no effect here, each once, in their order.
    pub fn ignored(&self) -> &[&'static str] {
        on!(self, AnyBuilder(builder) => builder.ignored())
    }

    /// Applies the settings of the environment: of the first of [`millpond::ENVIRONMENT`] that is set, if there is one.
    pub fn environment(self) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.environment()))
    }

    /// Does the same as [`environment`](Self::environment) with another function that looks up variables.
    pub fn environment_of(self, look_up: impl Fn(&str) -> Option<String>) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.environment_of(look_up)))
    }

    /// Serves this class of memory instead of the device's own. [`Builder::class`] says what that changes.
    pub fn class(self, class: ClassId) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.class(class)))
    }

    /// Sets the number of the device in messages and summaries. The default is 0.
    pub fn device(self, number: u32) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.device(number)))
    }

    /// Limits the reserved bytes, whatever the memory fraction of the settings is.
    pub fn limit(self, bytes: u64) -> Self {
        erase!(self, AnyBuilder(builder) => AnyBuilder(builder.limit(bytes)))
    }

    /// Creates the allocator. It reserves no memory yet.
    ///
    /// # Errors
    ///
    /// [`AnyError::Build`] for a malformed configuration, a setting outside its range, and settings that the device
    /// cannot serve.
    pub fn build(self) -> Result<AnyAllocator, AnyError> {
        Ok(erase!(self, AnyBuilder(builder) => AnyAllocator(builder.build()?)))
    }
}

impl fmt::Debug for AnyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyBuilder({})", self.backend_name())
    }
}
