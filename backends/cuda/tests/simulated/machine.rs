//! The simulated driver, in the place of a real one.

use millpond_cuda_driver::{Control, install};

/// Puts the simulator where the bindings look, once for the process.
pub(crate) fn control() -> Control {
    install().expect("the simulator is built with the tests")
}

pub(crate) fn prepare() {
    control();
}
