//! What may stand behind the name of a backend in the name of a device, and how such a device is opened.
//!
//! Each backend has its options, with `parse`, which reads them, `open`, which opens the device that they choose, and
//! `preferred`, which looks for the best device of the backend. The command `millpond` takes the same names.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "vulkan")]
mod vulkan;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub use cuda::CudaOptions;
#[cfg(feature = "sim")]
pub use sim::SimOptions;
#[cfg(feature = "vulkan")]
pub use vulkan::VulkanOptions;
#[cfg(feature = "wgpu")]
pub use wgpu::WgpuOptions;
#[cfg(feature = "wgpu")]
pub(crate) use wgpu::is_gpu;

/// Parses bytes from a text such as `1073741824`, `512KiB`, `300M` or `16GiB`. K, M, G and T stand for powers of 1024,
/// with or without `iB`, in upper or lower case.
///
/// # Errors
///
/// Returns a message that names what is accepted if the text is something else.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = trimmed.split_at(digits);
    let refused =
        || format!("`{text}` is no size: write whole bytes, or a whole number with K, M, G, T, KiB, MiB, GiB or TiB");
    if number.is_empty() {
        return Err(refused());
    }
    let shift = match suffix.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(refused()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` does not fit in 64 bits: write a smaller size"))
}

/// Returns the options of a text, between which there are commas.
#[cfg(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu"))]
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|_| !text.is_empty())
}

/// Returns the error of an option that comes twice.
#[cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]
fn twice(option: &str) -> String {
    format!("`{option}` comes on top of another of its kind; write one")
}

/// Returns the reason for no choice among devices that are not GPUs.
#[cfg(any(feature = "vulkan", feature = "wgpu"))]
fn no_gpu<'a>(backend: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return "there is no device".into();
    }
    format!("there is no GPU, but {}: devices in software are used by name, such as {backend}:0", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes_of_1024() {
        let cases = [
            ("0", 0),
            ("1073741824", 1 << 30),
            ("7b", 7),
            ("512KiB", 512 << 10),
            ("512k", 512 << 10),
            ("20 MiB", 20 << 20),
            ("300M", 300 << 20),
            ("16GiB", 16 << 30),
            (" 2g ", 2 << 30),
            ("1TiB", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_is_accepted() {
        for text in ["", "GiB", "-1", "1.5GiB", "1GB", "1 G i", "0x10", "+4K"] {
            let error = parse_bytes(text).expect_err(text);
            assert!(error.contains("is no size: write whole bytes"), "{error}");
        }
        for text in ["18446744073709551616", "16777216TiB"] {
            let error = parse_bytes(text).expect_err(text);
            assert!(error.contains("does not fit in 64 bits"), "{error}");
        }
    }
}
