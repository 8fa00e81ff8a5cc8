//! The conformance suite on every kind of simulated device.

use millpond_backend::{Closing, Reuse};
use millpond_conformance::{SimDevice, conformance_tests};
use millpond_sim::Completion;

macro_rules! devices {
    ($($name:ident: $closing:ident $reuse:ident $completion:expr $(, $with:ident($($with_arg:expr)?))*;)*) => {
        $(mod $name {
            use super::*;
            conformance_tests!(
                SimDevice::new(Closing::$closing, Reuse::$reuse, $completion)$(.$with($($with_arg)?))*,
                differences: []
            );
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
    no_aliasing_manual: Backend InOrder Completion::Manual, without_aliasing();
    no_aliasing_submit_seeded: Submit InOrder Completion::Seeded(7), without_aliasing();
    no_stream_wait_manual: Backend InOrder Completion::Manual, without_stream_wait();
    no_stream_wait_submit_seeded: Submit InOrder Completion::Seeded(8), without_stream_wait();
    neither_seeded: Backend InOrder Completion::Seeded(9), without_aliasing(), without_stream_wait();
    neither_after_done: Submit AfterDone Completion::Seeded(10), without_aliasing(), without_stream_wait();
    pages_of_64_kib: Backend InOrder Completion::Seeded(11), granularity(64 << 10);
    pages_of_4_mib: Backend InOrder Completion::Manual, granularity(4 << 20);
    no_pages: Backend InOrder Completion::Manual, pages(None);
    tracking_immediate: Submit InOrder Completion::Immediate, tracking();
    tracking_manual: Submit InOrder Completion::Manual, tracking();
    tracking_seeded: Submit InOrder Completion::Seeded(12), tracking();
    tracking_no_stream_wait: Submit InOrder Completion::Manual, tracking(), without_stream_wait();
    barriers_manual: Backend InOrder Completion::Manual, with_barriers();
    barriers_submit_seeded: Submit InOrder Completion::Seeded(13), with_barriers();
    barriers_after_submit: Submit AfterSubmit Completion::Manual, with_barriers();
}

/// Whatever a device is like, a group is running or paused after each failure, with its contents.
#[test]
fn groups_are_paused_and_resumed() {
    let completions = [Completion::Immediate, Completion::Seeded(11)];
    let with = |closing, reuse| completions.map(|completion| SimDevice::new(closing, reuse, completion));
    let devices = [
        with(Closing::Backend, Reuse::InOrder),
        with(Closing::Backend, Reuse::AfterDone),
        with(Closing::Submit, Reuse::AfterSubmit),
    ];
    for device in devices.as_flattened() {
        let skipped = millpond_conformance::sleep::pause_and_resume(device).unwrap_or_else(|text| panic!("{text}"));
        assert_eq!(skipped, None);
    }
}
