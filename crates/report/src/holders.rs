//! Who holds the memory when the most is live.

use std::collections::BTreeMap;

use millpond_trace::Details;
use serde::Serialize;

use crate::owners::{Block, Lifetime};
use crate::places::place;

/// The most groups that are listed.
const GROUPS: usize = 12;

/// Blocks of equal size that live about equally long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Group {
    /// The bytes of each block.
    pub bytes: u64,
    /// How long they live, in words.
    pub lifetime: &'static str,
    /// How many of them are live.
    pub blocks: u64,
    /// The event that allocates the first of them.
    pub first: usize,
    /// The place that allocates most of them, if one is known: a line of the program, or a label.
    pub place: Option<String>,
    /// How many other places allocate some of them.
    pub other_places: usize,
}

/// The holders of memory at the event at which the most is live. They are the program's: no policy changes them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Holders {
    /// The event.
    pub at: usize,
    /// The bytes that are live.
    pub live: u64,
    /// The blocks that are live.
    pub blocks: u64,
    /// The groups with the most bytes, the most first.
    pub groups: Vec<Group>,
    /// The bytes of all other groups together.
    pub other_bytes: u64,
    /// Their blocks.
    pub other_blocks: u64,
}

impl Group {
    /// Finds the places that allocate the blocks of the group, among all blocks that are live.
    fn find_places<'a>(&mut self, live: impl Iterator<Item = &'a Block>, details: &Details) {
        let mut places: BTreeMap<&str, u64> = BTreeMap::new();
        for block in live.filter(|block| (block.bytes, block.lifetime.name()) == (self.bytes, self.lifetime)) {
            if let Some(place) = place(block, details) {
                *places.entry(place).or_default() += 1;
            }
        }
        // Of equal ones the first by name.
        let most = places.iter().min_by_key(|(_, blocks)| u64::MAX - **blocks);
        self.place = most.map(|(place, _)| (*place).to_owned());
        self.other_places = places.len().saturating_sub(1);
    }
}

impl Holders {
    /// Finds the holders among the blocks of a pass of that many events.
    pub fn of(blocks: &[Block], events: usize, details: &Details) -> Self {
        // Sixteen blocks can be more than 64 bits count.
        let mut change = vec![(0_u128, 0_u128); events + 1];
        for block in blocks {
            change[block.born].0 += u128::from(block.bytes);
            change[block.died.unwrap_or(events)].1 += u128::from(block.bytes);
        }
        let (mut live, mut peak) = (0, (0, 0));
        for (at, (more, less)) in change[..events].iter().enumerate() {
            live = live + more - less;
            if live > peak.0 {
                peak = (live, at);
            }
        }
        let (live, at) = (u64::try_from(peak.0).unwrap_or(u64::MAX), peak.1);
        let mut groups: BTreeMap<(u64, Lifetime), (u64, usize)> = BTreeMap::new();
        let live_then = || blocks.iter().filter(|block| block.is_live_after(at));
        for block in live_then() {
            groups.entry((block.bytes, block.lifetime)).or_insert((0, block.born)).0 += 1;
        }
        let group = |((bytes, lifetime), (blocks, first)): ((u64, Lifetime), _)| Group {
            bytes,
            lifetime: lifetime.name(),
            blocks,
            first,
            place: None,
            other_places: 0,
        };
        let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
        let all = |group: &Group| group.bytes.saturating_mul(group.blocks);
        groups.sort_by_key(|group| (u64::MAX - all(group), group.first));
        let rest = groups.split_off(groups.len().min(GROUPS));
        if !details.is_empty() {
            groups.iter_mut().for_each(|group| group.find_places(live_then(), details));
        }
        Self {
            at,
            live,
            blocks: groups.iter().chain(&rest).map(|group| group.blocks).sum(),
            groups,
            other_bytes: rest.iter().map(all).fold(0, u64::saturating_add),
            other_blocks: rest.iter().map(|group| group.blocks).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_trace::{Place, Trace};

    use super::*;
    use crate::owners::blocks;

    #[test]
    fn holders_add_up_to_the_peak() {
        let trace = Trace::parse(b"a 0 10 0\na 1 10 0\na 2 500 0\nf 2\na 3 400 0\na 4 150 0\nf 0\n").expect("a trace");
        let holders = Holders::of(&blocks(&trace), trace.events.len(), &trace.details);
        assert_eq!((holders.at, holders.live, holders.blocks), (5, 570, 4));
        assert_eq!(holders.live, trace.live_peak());
        let first = &holders.groups[0];
        assert_eq!((first.bytes, first.blocks, first.first), (400, 1, 4));
        let listed: u64 = holders.groups.iter().map(|group| group.bytes * group.blocks).sum();
        assert_eq!(listed + holders.other_bytes, holders.live);
        assert_eq!(first.place, None, "nothing is known of where it is allocated");
    }

    #[test]
    fn a_group_names_the_line_that_allocates_most_of_it() {
        let mut trace = Trace::parse(b"a 0 10 0\na 1 10 0\na 2 10 0\na 3 20 0\n").expect("a trace");
        let details = &mut trace.details;
        let own = details.stack([
            "train.py:1 main",
            "model.py:7 mlp",
            "site-packages/torch/nn/modules/linear.py:125 forward",
        ]);
        let other = details.stack(["train.py:1 main", "data.py:3 load"]);
        let label = Some(details.label("cache"));
        for (event, stack) in [other, own, own].into_iter().enumerate() {
            details.push(event, Place { stack, label, micros: None });
        }
        details.push(3, Place { label, ..Place::default() });
        let holders = Holders::of(&blocks(&trace), trace.events.len(), &trace.details);
        let places: Vec<_> = holders.groups.iter().map(|group| (group.place.as_deref(), group.other_places)).collect();
        assert_eq!(places, [(Some("model.py:7 mlp"), 1), (Some("cache"), 0)]);
    }

    /// Seventeen of the largest requests are more than 2^64 bytes.
    #[test]
    fn more_than_a_number_holds_is_the_largest_number() {
        let text: String = (0..17).map(|id| format!("a {id} {} 0\n", (1_u64 << 60) - 1)).collect();
        let trace = Trace::parse(text.as_bytes()).expect("a trace");
        let holders = Holders::of(&blocks(&trace), trace.events.len(), &trace.details);
        assert_eq!((holders.live, holders.blocks, holders.groups[0].blocks), (u64::MAX, 17, 17));
    }
}
