//! The kernels' source, and its translation for Vulkan.

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::{Kernel, Result};

/// The kernels, in WGSL.
pub(super) const SOURCE: &str = concat!(include_str!("kernels.wgsl"), include_str!("training.wgsl"));

impl Kernel {
    /// Returns its entry point in the source.
    pub(super) fn entry_point(self) -> &'static str {
        match self {
            Kernel::Matmul => "matmul",
            Kernel::Activate => "activate",
            Kernel::Product => "product",
            Kernel::Grade => "grade",
            Kernel::Mask => "mask",
            Kernel::Convert => "convert",
            Kernel::Descend => "descend",
            Kernel::Inspect => "inspect",
        }
    }
}

/// Returns all kernels as one SPIR-V module, translated as wgpu would translate them.
pub(super) fn spirv() -> Result<Vec<u32>> {
    let module = naga::front::wgsl::parse_str(SOURCE).map_err(|error| error.emit_to_string(SOURCE))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16_IN_FLOAT32)
        .validate(&module)
        .map_err(|error| error.emit_to_string(SOURCE))?;
    // The capability is for numbers of 16 bits in words: every Vulkan device unpacks them.
    // The kernels check their own bounds, and bindings keep the numbers that they have in the source: both are the
    // defaults.
    let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    Ok(spv::write_vec(&module, &info, &options, None)?)
}
