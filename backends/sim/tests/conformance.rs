//! The conformance suite on every kind of simulated device.

use millpond_backend::{Closing, Reuse};
use millpond_conformance::{SimDevice, conformance_tests};
use millpond_sim::Completion;

macro_rules! devices {
    ($($name:ident: $closing:ident $reuse:ident $completion:expr;)*) => {
        $(mod $name {
            use super::*;
            conformance_tests!(SimDevice::new(Closing::$closing, Reuse::$reuse, $completion), differences: []);
        })*
    };
}

devices! {
    backend_in_order_immediate: Backend InOrder Completion::Immediate;
    backend_in_order_manual: Backend InOrder Completion::Manual;
    backend_in_order_seeded: Backend InOrder Completion::Seeded(1);
    backend_after_submit_immediate: Backend AfterSubmit Completion::Immediate;
    backend_after_submit_manual: Backend AfterSubmit Completion::Manual;
    backend_after_submit_seeded: Backend AfterSubmit Completion::Seeded(2);
    backend_after_done_immediate: Backend AfterDone Completion::Immediate;
    backend_after_done_manual: Backend AfterDone Completion::Manual;
    backend_after_done_seeded: Backend AfterDone Completion::Seeded(3);
    submit_in_order_immediate: Submit InOrder Completion::Immediate;
    submit_in_order_manual: Submit InOrder Completion::Manual;
    submit_in_order_seeded: Submit InOrder Completion::Seeded(4);
    submit_after_submit_immediate: Submit AfterSubmit Completion::Immediate;
    submit_after_submit_manual: Submit AfterSubmit Completion::Manual;
    submit_after_submit_seeded: Submit AfterSubmit Completion::Seeded(5);
    submit_after_done_immediate: Submit AfterDone Completion::Immediate;
    submit_after_done_manual: Submit AfterDone Completion::Manual;
    submit_after_done_seeded: Submit AfterDone Completion::Seeded(6);
}
