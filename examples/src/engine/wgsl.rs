//! The kernels' source, and its translation for Vulkan.

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::{Kernel, Result};

/// Returns the kernels in WGSL, with numbers of 16 bits as such, or two to a word.
pub(super) fn source(has_f16: bool) -> String {
    let (before, halves) = if has_f16 {
        ("enable f16;\n", include_str!("halves_f16.wgsl"))
    } else {
        ("", include_str!("halves_words.wgsl"))
    };
    [before, include_str!("kernels.wgsl"), include_str!("training.wgsl"), halves].concat()
}

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
    let source = source(false);
    let module = naga::front::wgsl::parse_str(&source).map_err(|error| error.emit_to_string(&source))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16_IN_FLOAT32)
        .validate(&module)
        .map_err(|error| error.emit_to_string(&source))?;
    // The capability is for numbers of 16 bits in words: every Vulkan device unpacks them.
    // The kernels check their own bounds, and bindings keep the numbers that they have in the source: both are the
    // defaults.
    let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    Ok(spv::write_vec(&module, &info, &options, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_halves_are_valid() {
        for (has_f16, capabilities) in
            [(true, Capabilities::SHADER_FLOAT16), (false, Capabilities::SHADER_FLOAT16_IN_FLOAT32)]
        {
            let source = source(has_f16);
            let module = naga::front::wgsl::parse_str(&source).map_err(|error| error.emit_to_string(&source)).unwrap();
            let valid = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
            valid.map_err(|error| error.emit_to_string(&source)).unwrap();
            assert_eq!(source.contains("array<f16>"), has_f16);
        }
    }
}
