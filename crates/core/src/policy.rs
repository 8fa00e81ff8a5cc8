//! The policies: the rules for where blocks are placed and what is kept.
//!
//! The rest of the core asks where the memory of a policy comes from, its [`Backing`], and not which policy it is.
//! All climb one ladder, in `plan/rung.rs`. Memory of `classic` and `direct` comes in segments (`plan/segments.rs`);
//! [`paged`](crate::paged) has its own ways.

/// The rules for where blocks are placed and what is kept.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Policy {
    /// PyTorch's native caching allocator, to the counter.
    Classic(Segments),
    /// Blocks over pages, of which those that are free are mapped together where a request needs them, so that little
    /// more is reserved than is live. It needs a device with virtual memory, and is the default there.
    Paged {
        /// What it does first when memory is short and free memory may still be in use by the device.
        growth: Growth,
        /// `slack`: how much more than the most that was ever live `paged` aims to reserve at most, as a share of it,
        /// beside what work in flight keeps from being used again. Nothing is refused because of it.
        ///
        /// Pages are created up to two fifths of it before free memory is gathered: the larger it is, the fewer driver
        /// calls are made.
        slack: f64,
    },
    /// No caching: each allocation is one driver allocation. It is meant for memory checkers, and as a lower bound for
    /// comparisons.
    Direct,
}

/// The segments of `classic`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Segments {
    /// PyTorch's: 2 MiB for small requests, 20 MiB or the size of the request for large ones.
    #[default]
    Plain,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments. They need a
    /// device with virtual memory.
    Expandable,
    /// `slack`: segments of which no more stays reserved than this share beyond what was ever live, for example 0.125
    /// for an eighth. They are meant for memory that is expensive to take and whose segments cannot be taken apart,
    /// such as page-locked memory of the host ([`Settings::for_host`](crate::settings::Settings::for_host)).
    ///
    /// A segment then has the size of the request or, for requests that are small compared with that peak, a part of
    /// the peak. Before one is taken, idle ones are given back as far as the share demands; garbage is not collected.
    /// The smaller the slack, the more often the driver is called.
    Snug(f64),
}

/// What `paged` does first when memory is short and free memory may still be in use by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// The use of free memory behind a device-side wait, which needs the least memory.
    Tight,
    /// The creation of pages, up to a cap. Beyond it, streams wait for each other.
    #[default]
    Balanced,
}

impl Growth {
    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Growth::Tight => "tight",
            Growth::Balanced => "balanced",
        }
    }
}

/// Where memory for blocks comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Segments.
    Segments,
    /// Ranges of addresses that grow by pages.
    Ranges,
    /// Ranges in which pages have their homes, and windows over them.
    Pages,
}

impl Backing {
    /// Returns whether a stream is synchronised before pages of it are unmapped, as PyTorch does.
    pub(crate) fn synchronizes(self) -> bool {
        self == Backing::Ranges
    }
}

impl Default for Policy {
    /// Returns PyTorch's allocator as it is without any configuration.
    fn default() -> Self {
        Policy::Classic(Segments::Plain)
    }
}

impl Policy {
    /// The slack of `paged` where none is set: 5 %.
    pub const DEFAULT_SLACK: f64 = 0.05;

    /// Returns `paged` with the slack that it has where none is set.
    pub const fn paged(growth: Growth) -> Policy {
        Policy::Paged { growth, slack: Self::DEFAULT_SLACK }
    }

    /// Returns the policy of an allocator for which none was chosen: `paged` where the device has virtual memory, or
    /// else `classic`.
    pub const fn default_for(has_virtual_memory: bool) -> Policy {
        if has_virtual_memory { Policy::paged(Growth::Balanced) } else { Policy::Classic(Segments::Plain) }
    }

    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Classic(_) => "classic",
            Policy::Direct => "direct",
            Policy::Paged { .. } => "paged",
        }
    }

    /// Returns the name of the variant, as in [`Variant::all`], whatever its slack is.
    pub fn variant_name(self) -> &'static str {
        match self {
            Policy::Classic(Segments::Expandable) => "expandable",
            Policy::Paged { growth: Growth::Tight, .. } => "tight",
            other => other.name(),
        }
    }

    /// Returns whether the device must have virtual memory.
    pub fn needs_pages(self) -> bool {
        self.backing() != Backing::Segments
    }

    /// Returns whether free memory is gathered page by page, as `paged` does.
    pub fn moves_pages(self) -> bool {
        self.backing() == Backing::Pages
    }

    /// Returns the share of what was ever live by which more may be reserved, for a policy that bounds it.
    pub fn slack(self) -> Option<f64> {
        match self {
            Policy::Paged { slack, .. } => Some(slack),
            other => other.slack_of_segments(),
        }
    }

    /// Returns the slack within which segments are kept whole, where there are such.
    pub(crate) fn slack_of_segments(self) -> Option<f64> {
        if let Policy::Classic(Segments::Snug(slack)) = self { Some(slack) } else { None }
    }

    /// Returns whether freed memory is kept for later requests, rather than given back as soon as that is possible.
    pub fn caches(self) -> bool {
        self != Policy::Direct
    }

    /// Returns where its memory comes from.
    pub(crate) fn backing(self) -> Backing {
        match self {
            Policy::Classic(Segments::Expandable) => Backing::Ranges,
            Policy::Paged { .. } => Backing::Pages,
            Policy::Classic(_) | Policy::Direct => Backing::Segments,
        }
    }
}

/// What a configuration says about the policy: each key for itself, in whatever order they came. A key that does not
/// concern the policy that is chosen has no effect.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Choice {
    /// `policy`: `None` leaves it to the device ([`Policy::default_for`]).
    pub policy: Option<PolicyName>,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments.
    pub expandable_segments: bool,
    /// `growth`: what `paged` does first when memory is short.
    pub growth: Growth,
    /// `slack`: how much more than was ever live may stay reserved; see [`Policy::Paged`] and
    /// [`Segments::Snug`].
    pub slack: Option<f64>,
}

/// The name of a policy in configurations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyName(&'static str);

impl PolicyName {
    /// Returns the policy of that name, if there is one.
    pub fn find(name: &str) -> Option<Self> {
        ["classic", "direct", "paged"].into_iter().find(|known| *known == name).map(PolicyName)
    }

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl Choice {
    /// Returns the policy on a device with or without virtual memory.
    pub fn resolve(&self, has_virtual_memory: bool) -> Policy {
        let by_default = Policy::default_for(has_virtual_memory).name();
        match (self.policy.map_or(by_default, PolicyName::as_str), self.slack) {
            ("direct", _) => Policy::Direct,
            ("paged", slack) => Policy::Paged { growth: self.growth, slack: slack.unwrap_or(Policy::DEFAULT_SLACK) },
            _ if self.expandable_segments => Policy::Classic(Segments::Expandable),
            (_, slack) => Policy::Classic(slack.map_or(Segments::Plain, Segments::Snug)),
        }
    }
}

impl From<Policy> for Choice {
    /// Returns the choice that leads to the policy on every device.
    fn from(policy: Policy) -> Self {
        let growth = if let Policy::Paged { growth, .. } = policy { growth } else { Growth::default() };
        Self {
            policy: Some(PolicyName(policy.name())),
            expandable_segments: policy == Policy::Classic(Segments::Expandable),
            growth,
            slack: policy.slack().filter(|slack| !policy.moves_pages() || *slack != Policy::DEFAULT_SLACK),
        }
    }
}

/// A policy with a name: what tables, scenarios and benchmarks compare.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
}

impl Variant {
    /// Returns every variant: those of each policy, after those of the one before.
    pub fn all() -> impl Iterator<Item = Variant> {
        let segments = [Policy::Classic(Segments::Plain), Policy::Classic(Segments::Expandable), Policy::Direct];
        let policies = segments.into_iter().chain([Growth::Balanced, Growth::Tight].map(Policy::paged));
        policies.map(|policy| Variant { name: policy.variant_name(), policy })
    }

    /// Returns the variant of that name, if there is one.
    pub fn find(name: &str) -> Option<Variant> {
        Self::all().find(|variant| variant.name == name)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_variant_is_chosen_by_its_own_choice() {
        for variant in Variant::all() {
            let choice = Choice::from(variant.policy);
            assert_eq!(choice.resolve(true), variant.policy, "{}", variant.name);
            assert_eq!(choice.resolve(false), variant.policy, "a choice that names a policy is the same everywhere");
            assert_eq!(variant.policy.variant_name(), variant.name);
        }
    }

    #[test]
    fn names_are_told_apart() {
        let names: BTreeSet<_> = Variant::all().map(|variant| variant.name).collect();
        assert_eq!(names.len(), Variant::all().count());
    }

    #[test]
    fn without_a_choice_the_device_decides() {
        for has_virtual_memory in [true, false] {
            assert_eq!(Choice::default().resolve(has_virtual_memory), Policy::default_for(has_virtual_memory));
        }
        assert!(Policy::default_for(true).moves_pages() && !Policy::default_for(false).needs_pages());
    }
}
