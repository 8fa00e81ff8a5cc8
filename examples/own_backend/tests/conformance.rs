//! The device is certified: each group of the suite is a test.

use millpond_conformance::{DeviceUnderTest, Need, Unavailable, conformance_tests};
use own_backend::HostDevice;

struct Mine;

impl DeviceUnderTest for Mine {
    type Backend = HostDevice;

    fn name(&self) -> String {
        "memory of the host".to_owned()
    }

    fn open(&self, need: &Need) -> Result<HostDevice, Unavailable> {
        if need.pages {
            return Err(Unavailable("the device has no virtual memory".to_owned()));
        }
        Ok(HostDevice::new(1 << 30))
    }

    // With this the suite sees that everything is given back, to the byte.
    fn held_bytes(&self, device: &HostDevice) -> Option<u64> {
        Some(device.used_bytes())
    }
}

conformance_tests!(Mine, differences: []);
