//! The simulated driver, in the place of a real one.

use millpond_cuda::Cuda;
use millpond_cuda_driver::{Control, DEVICE_NAME, DEVICES, install};

/// Puts the simulator where the bindings look, once for the process.
pub(crate) fn control() -> Control {
    install().expect("the simulator is built with the tests")
}

pub(crate) const IS_SIMULATED: bool = true;

pub(crate) fn prepare() {
    control();
}

/// The other tests skip what is not there.
#[test]
fn the_simulator_is_what_is_tested() {
    prepare();
    let devices = Cuda::devices().expect("the simulator has all that is needed");
    assert_eq!(devices.len(), DEVICES);
    for device in devices {
        assert!(device.name.starts_with(DEVICE_NAME), "{}", device.name);
        Cuda::open(device.ordinal).expect("a device that is listed can be opened");
    }
}
