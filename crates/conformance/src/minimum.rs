//! The minimum that a device may not skip: of each group whose power it announces, some scenario must have run, and
//! where it has virtual memory, some scenario of the group with virtual memory.

use std::collections::BTreeSet;

use millpond_backend::Caps;

use crate::contract::Power;
use crate::suite::Outcome;

/// The groups that need a power. All other groups apply to every device, except the exempt ones.
const POWERS: [(&str, Power); 9] = [
    ("mapping", Power::Pages),
    ("paged", Power::Pages),
    ("transfers", Power::Transfer),
    ("data", Power::Transfer),
    ("threads", Power::Transfer),
    ("integrity", Power::Transfer),
    ("scrubbing", Power::Transfer),
    ("host", Power::HostMemory),
    ("budget", Power::Budget),
];

/// Groups that need facts, or controls for tests that not every author implements: who closes ticks, how memory is
/// reused, work that can be held, calls that can be made to fail.
const EXEMPT: [&str; 6] = ["cross_stream", "points", "unsubmitted", "faults", "swarm", "decisions"];

/// Returns what is missing if a group is below the minimum. Each result comes with whether its scenario used virtual
/// memory.
pub(crate) fn missed(group: &str, caps: &Caps, results: &[(bool, &Outcome)]) -> Option<String> {
    let power = POWERS.iter().find(|(name, _)| *name == group).map_or(Power::None, |(_, power)| *power);
    if EXEMPT.contains(&group) || !power.is_announced(caps) {
        return None;
    }
    [false, true].into_iter().filter(|pages| !pages || caps.pages.is_some()).find_map(|pages| {
        let own = results.iter().filter(|(took, _)| *took == pages);
        let own: Vec<&Outcome> = own.map(|(_, outcome)| *outcome).collect();
        let skipped: Vec<&str> = own.iter().filter_map(|outcome| outcome.reason_to_skip()).collect();
        if own.is_empty() || skipped.len() < own.len() {
            return None;
        }
        let reasons: Vec<&str> = skipped.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let with = if pages { "that takes virtual memory, which the device announces, " } else { "" };
        let reasons = reasons.join("; ");
        Some(format!(
            "below the minimum: everything of the group {group} {with}was skipped ({reasons}); a power that Caps \
             announces may not be left untested"
        ))
    })
}

#[cfg(test)]
mod tests {
    use millpond_backend::{Backend as _, Closing, Reuse};
    use millpond_sim::{Completion, Sim};

    use super::missed;
    use crate::device::{DeviceUnderTest as _, Need};
    use crate::{Outcome, SimDevice};

    #[test]
    fn what_is_announced_may_not_be_skipped() {
        let skipped = Outcome::Skipped("no mood".to_owned());
        let device = SimDevice::new(Closing::Backend, Reuse::InOrder, Completion::Immediate);
        let with_all = device.open(&Need::default()).map(|sim| sim.caps().clone()).expect("it is always there");
        let with_none = Sim::builder().pages(None).transfer(false).build().caps().clone();
        let text = missed("transfers", &with_all, &[(false, &skipped)]).expect("the power is announced");
        assert!(text.contains("group transfers") && text.contains("no mood"), "{text}");
        assert_eq!(missed("transfers", &with_none, &[(false, &skipped)]), None, "the power is not announced");
        assert_eq!(missed("transfers", &with_all, &[(false, &skipped), (false, &Outcome::Passed)]), None);
        let half = [(false, &Outcome::Passed), (true, &skipped)];
        let text = missed("reuse", &with_all, &half).expect("nothing took pages");
        assert!(text.contains("that takes virtual memory"), "{text}");
        assert_eq!(missed("reuse", &with_none, &half), None, "there are no pages");
        assert_eq!(missed("faults", &with_all, &[(false, &skipped)]), None, "that takes strings");
    }
}
