//! The cases: the policies, the streams, the sizes, and how much may be reserved.

use std::fmt;

use millpond::settings::{Growth, Policy, Segments, Settings};

const MIB: u64 = 1 << 20;
/// The number of threads in every case.
pub(crate) const THREADS: usize = 8;

/// The allocator of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Classic,
    Expandable,
    /// `classic` that keeps large blocks whole, which adds a step to how a miss is served.
    Oversize,
    Direct,
    Balanced,
    Tight,
    Pinned,
}

const KINDS: [Kind; 7] =
    [Kind::Classic, Kind::Expandable, Kind::Oversize, Kind::Direct, Kind::Balanced, Kind::Tight, Kind::Pinned];

impl Kind {
    pub(crate) fn settings(self) -> Settings {
        let paged = |growth| Settings { policy: Policy::paged(growth), ..Settings::default() };
        match self {
            Kind::Classic => Settings::default(),
            Kind::Expandable => Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() },
            Kind::Oversize => Settings { max_split_bytes: Some(20 * MIB), ..Settings::default() },
            Kind::Direct => Settings { policy: Policy::Direct, ..Settings::default() },
            Kind::Balanced => paged(Growth::Balanced),
            Kind::Tight => paged(Growth::Tight),
            Kind::Pinned => Settings::for_host(),
        }
    }
}

/// The amount of memory that may be reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// The largest block of every thread, and no more.
    Exact,
    /// One largest block more than there are threads.
    OneToSpare,
    /// Two largest blocks fewer than there are threads: refusals are right when all threads want theirs.
    TwoShort,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    /// The number of streams of each thread.
    pub(crate) streams: usize,
    /// Block sizes, in bytes.
    pub(crate) sizes: &'static [u64],
    pub(crate) room: Room,
    /// Whether the driver refuses, rather than a limit of the allocator.
    pub(crate) by_driver: bool,
    /// Whether work is under way on the blocks that are freed.
    pub(crate) busy: bool,
}

/// One size: that of a page of classic's expandable segments, so that a block pins no more than its own bytes.
const EQUAL: &[u64] = &[20 * MIB];
/// The block size in the first bug report of this kind.
const EQUAL_16: &[u64] = &[16 * MIB];
const MIXED: &[u64] = &[4 * MIB, 12 * MIB, 16 * MIB, 24 * MIB];

impl Case {
    /// Returns all cases.
    pub(crate) fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for kind in KINDS {
            let equal = if kind == Kind::Expandable { EQUAL } else { EQUAL_16 };
            let case = Case { kind, streams: 2, sizes: equal, room: Room::Exact, by_driver: false, busy: false };
            all.extend([1, 2, 3].map(|streams| Case { streams, ..case }));
            all.push(Case { streams: 3, room: Room::OneToSpare, ..case });
            all.push(Case { busy: true, streams: 3, ..case });
            all.push(Case { sizes: MIXED, ..case });
            all.push(Case { sizes: MIXED, streams: 3, busy: true, room: Room::OneToSpare, ..case });
            all.push(Case { room: Room::TwoShort, ..case });
            if kind != Kind::Pinned {
                all.push(Case { by_driver: true, ..case });
                all.push(Case { by_driver: true, busy: true, sizes: MIXED, ..case });
            }
        }
        all
    }

    /// Returns the most bytes that one live block keeps from going back to the driver.
    fn most(&self) -> u64 {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        match self.kind {
            // Pages of 20 MiB: a block of up to 24 MiB that begins anywhere may lie in three of them.
            Kind::Expandable if largest > 20 * MIB => 60 * MIB,
            _ => largest,
        }
    }

    /// Returns the number of bytes that may be reserved.
    pub(crate) fn limit(&self) -> u64 {
        let blocks = match self.room {
            Room::Exact => THREADS,
            Room::OneToSpare => THREADS + 1,
            Room::TwoShort => THREADS - 2,
        };
        blocks as u64 * self.most()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = if self.sizes.len() == 1 { "equal" } else { "mixed" };
        let room = match self.room {
            Room::Exact => "exactly enough",
            Room::OneToSpare => "one to spare",
            Room::TwoShort => "two too few",
        };
        let by = if self.by_driver { ", by the driver" } else { "" };
        let busy = if self.busy { ", work under way" } else { "" };
        write!(f, "{:?}, {} streams each, {sizes} sizes, {room}{by}{busy}", self.kind, self.streams)
    }
}
