//! wgpu devices, and the options that `wgpu:...` takes.

use millpond_wgpu::wgpu::{AdapterInfo, DeviceType};
use millpond_wgpu::{Wgpu, WgpuBuilder, WgpuError};

use super::{listed, twice};

/// The choice of a wgpu adapter, and how its device is opened.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct WgpuOptions {
    /// The adapter's place in wgpu's list. If `None`, the first GPU, or else the first adapter.
    pub index: Option<usize>,
    /// Whether the device is opened without a semaphore, so that only polls of wgpu show what is done.
    pub polls: bool,
}

/// Returns whether an adapter is a GPU: not in software, as far as it says.
pub(crate) fn is_gpu(adapter: &AdapterInfo) -> bool {
    !matches!(adapter.device_type, DeviceType::Cpu | DeviceType::Other)
}

fn first_gpu(adapters: &[AdapterInfo]) -> Option<usize> {
    adapters.iter().position(is_gpu)
}

impl WgpuOptions {
    /// Parses the options after `wgpu:`, separated by commas.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the options.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in listed(text) {
            let again = match option {
                "polls" => std::mem::replace(&mut options.polls, true),
                number => match number.parse() {
                    Ok(index) => options.index.replace(index).is_some(),
                    Err(_) => {
                        return Err(format!(
                            "`{option}` is no option; write the adapter's number or polls, with a comma between them, \
                             such as wgpu:0,polls"
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

    /// Returns the first adapter that is a GPU.
    ///
    /// # Errors
    ///
    /// Returns the reason, if there is none.
    pub fn preferred() -> Result<Self, String> {
        // On Linux, wgpu reaches GPUs through Vulkan alone, which is cheaper to query. Loading the drivers through wgpu
        // as well costs time, and some of them print warnings on standard error.
        #[cfg(all(feature = "vulkan", target_os = "linux"))]
        if !super::vulkan::has_gpu() {
            return Err("Vulkan, through which wgpu reaches GPUs, has none".into());
        }
        let adapters = Wgpu::adapters().map_err(|error| millpond::text::with_causes(&error))?;
        match first_gpu(&adapters) {
            Some(index) => Ok(Self { index: Some(index), ..Self::default() }),
            None => Err(super::no_gpu("wgpu", adapters.iter().map(|adapter| adapter.name.as_str()))),
        }
    }

    /// Returns a builder of the device.
    ///
    /// # Errors
    ///
    /// Returns wgpu's error, if its list is needed.
    pub fn builder(&self) -> Result<WgpuBuilder, WgpuError> {
        let index = match self.index {
            Some(index) => index,
            None => first_gpu(&Wgpu::adapters()?).unwrap_or(0),
        };
        Ok(Wgpu::builder().adapter(index).semaphore(!self.polls))
    }

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// Returns what is missing, or wgpu's error.
    pub fn open(&self) -> Result<Wgpu, WgpuError> {
        self.builder()?.build()
    }

    /// Returns the name of the device with its options, as it is written to choose it.
    pub fn label(&self) -> String {
        let index = self.index.map_or(String::new(), |index| format!(":{index}"));
        format!("wgpu{index}{}", if self.polls { ",polls" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_which_adapter_and_how() {
        let parsed = |text| WgpuOptions::parse(text).expect(text);
        assert_eq!(parsed(""), WgpuOptions::default());
        assert_eq!(parsed("2"), WgpuOptions { index: Some(2), polls: false });
        assert_eq!((parsed("0,polls"), parsed("polls,0")), (parsed("0,polls"), parsed("0,polls")));
        assert_eq!([parsed("0,polls").label(), parsed("").label()], ["wgpu:0,polls", "wgpu"]);
        for text in ["x", "-1", "0,", "0,1", "polls,polls", "validation"] {
            let error = WgpuOptions::parse(text).expect_err(text);
            assert!(error.contains("is no option") || error.contains("comes on top"), "{text}: {error}");
        }
    }
}
