//! The choice of a policy: what a configuration says, key by key, and the named variants.

use super::{Growth, Policy, ROOMS, Room};

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
    /// [`Segments::Snug`](super::Segments::Snug).
    pub slack: Option<f64>,
}

/// The name of a policy in configurations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyName(&'static str);

impl PolicyName {
    /// Returns the policy of that name, if there is one.
    pub fn find(name: &str) -> Option<Self> {
        ROOMS.iter().map(|room| room.name()).find(|known| *known == name).map(PolicyName)
    }

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    fn room(self) -> &'static dyn Room {
        let room = ROOMS.into_iter().find(|room| room.name() == self.0);
        room.unwrap_or_else(|| panic!("no policy is named {}", self.0))
    }
}

impl Choice {
    /// Returns the policy on a device with or without virtual memory.
    pub fn resolve(&self, has_virtual_memory: bool) -> Policy {
        let by_default = PolicyName(Policy::default_for(has_virtual_memory).name());
        self.policy.unwrap_or(by_default).room().choose(self)
    }
}

impl From<Policy> for Choice {
    /// Returns the choice that leads to the policy on every device.
    fn from(policy: Policy) -> Self {
        let (room, (_, choice)) = policy.room();
        Self { policy: Some(PolicyName(room.name())), ..choice }
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
        ROOMS.into_iter().flat_map(|room| room.variants()).copied()
    }

    /// Returns the variant of that name, if there is one.
    pub fn find(name: &str) -> Option<Variant> {
        Self::all().find(|variant| variant.name == name)
    }
}
