//! CUDA devices, and the options that `cuda:...` takes.

use millpond_cuda::{Alloc, Cuda, CudaBuilder, CudaError};

use super::{listed, twice};

/// The choice of a CUDA device, and how it is opened.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct CudaOptions {
    /// The device's place in the driver's list; the first if `None`.
    pub ordinal: Option<usize>,
    /// The driver's allocator that serves segments.
    pub alloc: Option<Alloc>,
    /// Whether the device is opened without virtual memory, even where it has it.
    pub no_pages: bool,
}

impl CudaOptions {
    /// Parses the options after `cuda:`, separated by commas.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the options.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in listed(text) {
            let again = match option {
                "alloc=async" => options.alloc.replace(Alloc::Async).is_some(),
                "alloc=sync" => options.alloc.replace(Alloc::Sync).is_some(),
                "pages=none" => std::mem::replace(&mut options.no_pages, true),
                number => match number.parse() {
                    Ok(ordinal) => options.ordinal.replace(ordinal).is_some(),
                    Err(_) => {
                        return Err(format!(
                            "`{option}` is no option; write the device's number, alloc=async, alloc=sync or \
                             pages=none, with commas between them, such as cuda:0,alloc=async"
                        ));
                    }
                },
            };
            if again {
                return Err(twice(option));
            }
        }
        Ok(options)
    }

    /// Returns the first device.
    ///
    /// # Errors
    ///
    /// Returns the reason, if there is none.
    pub fn preferred() -> Result<Self, String> {
        let devices = Cuda::devices().map_err(|error| millpond::text::with_causes(&error))?;
        let first = devices.first().ok_or("the driver has no device")?;
        Ok(Self { ordinal: Some(first.ordinal), ..Self::default() })
    }

    /// Returns the number of the device.
    pub fn ordinal(&self) -> usize {
        self.ordinal.unwrap_or(0)
    }

    /// Returns a builder of the device.
    pub fn builder(&self) -> CudaBuilder {
        Cuda::builder().device(self.ordinal()).alloc(self.alloc.unwrap_or_default()).pages(!self.no_pages)
    }

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// Returns what is missing, or the driver's error.
    pub fn open(&self) -> Result<Cuda, CudaError> {
        self.builder().build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_which_device_and_how() {
        let parsed = |text| CudaOptions::parse(text).expect(text);
        assert_eq!(parsed(""), CudaOptions::default());
        assert_eq!(parsed("3"), CudaOptions { ordinal: Some(3), ..CudaOptions::default() });
        let all = CudaOptions { ordinal: Some(0), alloc: Some(Alloc::Async), no_pages: true };
        assert_eq!((parsed("0,alloc=async,pages=none"), parsed("pages=none,alloc=async,0")), (all.clone(), all));
        for text in ["x", "-1", "0,", "0,,1", "0,1", "alloc=sync,alloc=async", "alloc=pool", "pages=2MiB"] {
            let error = CudaOptions::parse(text).expect_err(text);
            assert!(error.contains("is no option") || error.contains("comes on top"), "{text}: {error}");
        }
    }
}
