//! The policies: the rules for where blocks are placed and what is kept.
//!
//! Each policy has a folder, its [`Room`]: the settings that it alone has, its rules of growth, its ladder. What the
//! rest of the core needs to know of a policy it reads in its [`Traits`], instead of asking which one it is. A new
//! policy is a folder, a line here for the module, a variant of [`Policy`] and an entry of [`ROOMS`].

mod choice;
mod classic;
mod climb;
mod direct;
pub(crate) mod paged;
mod ranges;
pub(crate) mod segments;
mod shared;
mod sourced;
mod traits;

pub use choice::{Choice, PolicyName, Variant};
pub use classic::Segments;
pub(crate) use climb::Climb;
pub use paged::Growth;
pub(crate) use paged::least_page_bytes;
pub(crate) use ranges::{Addresses, exact_segment};
pub(crate) use sourced::Sourced;
pub(crate) use traits::{Collects, Keeps, Source, Traits};

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

/// The folder of each policy.
static ROOMS: [&dyn Room; 3] = [&classic::Classic, &direct::Direct, &paged::Paged];

/// The folder of a policy, as the rest of the core knows it.
pub(crate) trait Room: Sync {
    /// Returns the name of the policy in configurations.
    fn name(&self) -> &'static str;

    /// Returns the variants of the policy that have a name.
    fn variants(&self) -> &'static [Variant];

    /// Returns the policy that a configuration chooses that names it.
    fn choose(&self, choice: &Choice) -> Policy;

    /// Returns the traits of a policy, and the choice that leads to it. `None` if it is the policy of another folder.
    fn describe(&self, policy: Policy) -> Option<(Traits, Choice)>;
}

impl Default for Policy {
    /// Returns PyTorch's allocator as it is without any configuration.
    fn default() -> Self {
        Policy::Classic(Segments::Plain)
    }
}

impl Policy {
    /// Returns the policy of an allocator for which none was chosen: `paged` where the device has virtual memory, or
    /// else `classic`.
    pub const fn default_for(has_virtual_memory: bool) -> Policy {
        if has_virtual_memory { Policy::paged(Growth::Balanced) } else { Policy::Classic(Segments::Plain) }
    }

    /// Returns the name that configurations use.
    pub fn name(self) -> &'static str {
        self.room().0.name()
    }

    /// Returns the name of the variant, as in [`Variant::all`], whatever its slack is; that of the policy if the
    /// variant has none.
    pub fn variant_name(self) -> &'static str {
        let room = self.room().0;
        let choice = |policy| Choice { slack: None, ..Choice::from(policy) };
        let named = room.variants().iter().find(|variant| choice(variant.policy) == choice(self));
        named.map_or(room.name(), |variant| variant.name)
    }

    /// Returns whether the device must have virtual memory.
    pub fn needs_pages(self) -> bool {
        self.traits().source != Source::Segments
    }

    /// Returns whether free memory is gathered page by page, as `paged` does.
    pub fn moves_pages(self) -> bool {
        self.traits().source == Source::Pages
    }

    /// Returns the share of what was ever live by which more may be reserved, for a policy that bounds it.
    pub fn slack(self) -> Option<f64> {
        self.traits().slack
    }

    /// Returns whether freed memory is kept for later requests, rather than given back as soon as that is possible.
    pub fn caches(self) -> bool {
        self.traits().keeps == Keeps::Freed
    }

    pub(crate) fn traits(self) -> Traits {
        self.room().1.0
    }

    fn room(self) -> (&'static dyn Room, (Traits, Choice)) {
        let described = ROOMS.into_iter().find_map(|room| Some((room, room.describe(self)?)));
        described.unwrap_or_else(|| panic!("no folder has the policy {self:?}"))
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
        let rooms: BTreeSet<_> = ROOMS.iter().map(|room| room.name()).collect();
        assert_eq!(rooms.len(), ROOMS.len());
    }

    #[test]
    fn without_a_choice_the_device_decides() {
        for has_virtual_memory in [true, false] {
            assert_eq!(Choice::default().resolve(has_virtual_memory), Policy::default_for(has_virtual_memory));
        }
        assert!(Policy::default_for(true).moves_pages() && !Policy::default_for(false).needs_pages());
    }
}
