//! The macro that generates a backend's test file.

/// Generates one `#[test]` for each group of checks and scenarios, and one that checks the declared differences.
///
/// Takes an expression that creates the device, and the differences that its author declares, each with a reason. Put
/// each of several devices into its own module.
///
/// ```
/// use millpond_backend::{Closing, Reuse};
/// use millpond_conformance::{SimDevice, conformance_tests};
/// use millpond_sim::Completion;
///
/// conformance_tests!(SimDevice::new(Closing::Backend, Reuse::InOrder, Completion::Manual), differences: []);
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($device:expr, differences: [$($scenario:literal => $reason:literal),* $(,)?]) => {
        const DIFFERENCES: &[$crate::Difference<'static>] =
            &[$($crate::Difference { scenario: $scenario, reason: $reason }),*];

        $crate::conformance_tests!(@groups $device;
            facts space time mapping transfers host budget
            alignment sizes reuse cross_stream points unsubmitted pressure limits trim paged statistics data
            faults drop_order threads integrity swarm scrubbing reserved decisions
        );

        #[test]
        fn declared_differences_are_known() {
            fn known<D: $crate::DeviceUnderTest>(_: &D) {
                $crate::suite::expect_known_differences::<D>(DIFFERENCES);
            }
            known(&$device);
        }

        #[test]
        fn every_group_has_a_test() {
            assert_eq!(GROUPS, $crate::suite::groups());
        }
    };
    (@groups $device:expr; $($group:ident)*) => {
        const GROUPS: &[&str] = &[$(stringify!($group)),*];
        $(
            #[test]
            fn $group() {
                $crate::suite::expect_group(&$device, stringify!($group), DIFFERENCES);
            }
        )*
    };
}
