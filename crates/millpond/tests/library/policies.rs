//! The policy that an allocator gets.

use millpond::Allocator;
use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond_sim::Sim;

fn policy(has_pages: bool, set_up: impl FnOnce(millpond::Builder<Sim>) -> millpond::Builder<Sim>) -> Policy {
    let sim = if has_pages { Sim::builder() } else { Sim::builder().pages(None) }.build();
    set_up(Allocator::builder(sim)).build().unwrap().settings().policy
}

#[test]
fn auto_is_what_an_allocator_that_is_told_nothing_has() {
    for (has_pages, expected) in [(true, Policy::paged(Growth::Balanced)), (false, Policy::Classic(Segments::Plain))] {
        assert_eq!(policy(has_pages, |builder| builder), expected);
        assert_eq!(policy(has_pages, |builder| builder.conf("policy:direct").conf("policy:auto")), expected);
        let environment = |_: &str| Some("policy:auto".to_owned());
        assert_eq!(
            policy(has_pages, |builder| builder.settings(Settings::default()).environment_of(environment)),
            expected
        );
        assert_eq!(
            policy(has_pages, |builder| builder.settings(Settings::default())),
            Policy::Classic(Segments::Plain)
        );
    }
}
