//! The conformance suite on this machine's first CUDA device, with virtual memory and without.

mod with_pages {
    use millpond_conformance::{CudaDevice, conformance_tests};

    conformance_tests!(CudaDevice::new(0), differences: []);
}

mod without_pages {
    use millpond_conformance::{CudaDevice, conformance_tests};

    conformance_tests!(CudaDevice::new(0).pages(false), differences: []);
}
