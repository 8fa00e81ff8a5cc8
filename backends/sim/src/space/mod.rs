//! The space of one device: capacity, addresses, physical memory and page tables, and which work uses what. It does not
//! know streams: what it holds of work is numbers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_backend::{ClassId, ClassKind};
use parking_lot::{Mutex, MutexGuard};

use crate::error::SimError;

mod conflicts;
pub(crate) mod segment;
mod sparse;
pub(crate) mod store;
pub(crate) mod users;
pub(crate) mod violation;

use store::Store;
use users::User;

/// The first address that is handed out unless a test says otherwise.
const FIRST_ADDRESS: u64 = 0x7_0000_0000;

/// The end of the addresses that a test may ask for, so that there is room behind them for all that follow.
const HIGHEST_ADDRESS: u64 = 1 << 56;

/// The step in which addresses rise, in bytes, as the CUDA driver's do.
const ADDRESS_STEP: u64 = 2 << 20;

/// The memory of one device. Segments hold it, so that another device can copy from and to them.
pub(crate) struct Memory {
    /// A number that differs for each device of the process.
    pub(crate) device: u64,
    /// For each class, whether the contents of its memory are kept.
    kept: Vec<bool>,
    space: Mutex<Space>,
}

/// The state of a device's memory.
///
/// Invariant: the bytes used of a class are the sum over its physical memory, and they never exceed the class's total.
/// Nor do they exceed it together with what other processes hold when memory is taken, unless memory is oversubscribed.
pub(crate) struct Space {
    kinds: Vec<ClassKind>,
    total: Vec<u64>,
    used: Vec<u64>,
    /// Bytes of class 0 that other processes hold.
    pub(crate) others: u64,
    /// Whether memory is granted although other processes hold it.
    oversubscribes: bool,
    /// The most pieces of physical memory that there may be.
    max_allocations: u64,
    /// The value of every byte of new device memory; `None` if its contents are not kept.
    fresh: Option<u8>,
    /// Bytes of addresses that ranges may take in total, and bytes that they have taken.
    range_total: u64,
    range_used: u64,
    next_number: u64,
    next_address: u64,
    /// The address at which the next segment or range has to start.
    pub(crate) place_next: Option<u64>,
    /// The addresses at which segments of class 0 are to start, by their bytes, in order.
    expected: HashMap<u64, VecDeque<u64>>,
    /// Live segments and ranges: start to end.
    live: BTreeMap<u64, u64>,
    pub(crate) physical: HashMap<u64, Physical>,
    /// Page tables: range to (offset to mapping).
    pub(crate) tables: HashMap<u64, BTreeMap<u64, Mapping>>,
    /// Where the ranges start: the same keys as `tables`.
    pub(crate) range_starts: BTreeMap<u64, u64>,
}

/// One piece of physical memory: the memory behind a segment, or a page.
pub(crate) struct Physical {
    class: ClassId,
    pub(crate) bytes: u64,
    pub(crate) store: Store,
    /// Unfinished work of any device that touches it.
    pub(crate) users: Vec<User>,
    /// The number of places where it is mapped.
    pub(crate) mapped: u64,
}

/// A whole page mapped in a range.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) physical: u64,
    pub(crate) bytes: u64,
}

/// Contiguous physical bytes, and the addresses through which a task sees them.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) memory: Arc<Memory>,
    pub(crate) physical: u64,
    /// The offset in the physical memory.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The segment or range, and the offset in it.
    pub(crate) segment: u64,
    pub(crate) at: u64,
    pub(crate) address: u64,
}

impl Memory {
    pub(crate) fn new(
        classes: &[millpond_backend::Class],
        (range_total, max_allocations): (u64, u64),
        oversubscribes: bool,
        fresh: Option<u8>,
    ) -> Memory {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let space = Space {
            kinds: classes.iter().map(|class| class.kind).collect(),
            total: classes.iter().map(|class| class.total_bytes).collect(),
            used: vec![0; classes.len()],
            others: 0,
            oversubscribes,
            max_allocations,
            fresh,
            range_total,
            range_used: 0,
            next_number: 0,
            next_address: FIRST_ADDRESS,
            place_next: None,
            expected: HashMap::new(),
            live: BTreeMap::new(),
            physical: HashMap::new(),
            tables: HashMap::new(),
            range_starts: BTreeMap::new(),
        };
        let kept = classes.iter().map(|class| class.kind == ClassKind::Host || fresh.is_some()).collect();
        Memory { device: DEVICES.fetch_add(1, Ordering::Relaxed), kept, space: Mutex::new(space) }
    }

    /// Returns whether the contents of memory of a class are kept.
    pub(crate) fn keeps(&self, class: ClassId) -> bool {
        self.kept[usize::from(class.0)]
    }

    /// Locks the memory. The lock is never held while another memory's or a lane's lock is taken.
    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock()
    }
}

impl Space {
    /// Returns the bytes left of a class. For class 0, what other processes hold is subtracted.
    pub(crate) fn free(&self, class: ClassId) -> u64 {
        let index = usize::from(class.0);
        let others = if class == ClassId::DEVICE { self.others } else { 0 };
        self.total[index] - self.used[index].saturating_add(others).min(self.total[index])
    }

    /// Returns the bytes of a class in segments and pages.
    pub(crate) fn used(&self, class: ClassId) -> u64 {
        self.used[usize::from(class.0)]
    }

    /// Returns the number of segments, pages and ranges. Each segment has one piece of physical memory, a range none.
    pub(crate) fn live(&self) -> (u64, u64, u64) {
        let ranges = self.tables.len();
        let segments = self.live.len() - ranges;
        (segments as u64, (self.physical.len() - segments) as u64, ranges as u64)
    }

    pub(crate) fn total(&self, class: ClassId) -> u64 {
        self.total[usize::from(class.0)]
    }

    /// Creates physical memory and returns its number.
    pub(crate) fn create(&mut self, class: ClassId, bytes: u64) -> Result<u64, SimError> {
        // Where memory is oversubscribed, what other processes hold is moved to the host to make room.
        let index = usize::from(class.0);
        let free = if self.oversubscribes { self.total[index] - self.used[index] } else { self.free(class) };
        if bytes > free {
            return Err(SimError::OutOfMemory { asked: bytes, free, total: self.total(class) });
        }
        if self.physical.len() as u64 >= self.max_allocations {
            return Err(SimError::TooMany { max: self.max_allocations });
        }
        self.used[usize::from(class.0)] += bytes;
        let store = match self.kinds[usize::from(class.0)] {
            ClassKind::Host => Store::host(bytes),
            _ => self.fresh.map_or(Store::Nothing, |value| Store::sparse(bytes, value)),
        };
        let number = self.number();
        self.physical.insert(number, Physical { class, bytes, store, users: Vec::new(), mapped: 0 });
        Ok(number)
    }

    /// Removes physical memory.
    pub(crate) fn destroy(&mut self, number: u64) {
        let Some(gone) = self.physical.remove(&number) else {
            panic!("physical memory {number} does not exist: released twice");
        };
        self.used[usize::from(gone.class.0)] -= gone.bytes;
    }

    /// Returns a new number for a segment, a range or physical memory.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Sets the bytes and the addresses of the segments of class 0 that are expected from now on, in order. Addresses
    /// that the device chooses are above all of them.
    pub(crate) fn expect(&mut self, segments: &[(u64, u64)]) {
        self.expected.clear();
        for &(bytes, address) in segments {
            self.expected.entry(bytes).or_default().push_back(address);
            let end = address.checked_add(bytes).filter(|&end| end <= HIGHEST_ADDRESS);
            self.next_address = self.next_address.max(end.unwrap_or(0));
        }
    }

    /// Works like [`place`](Space::place) for a segment, which starts where one of its bytes is expected unless a
    /// test has said otherwise.
    pub(crate) fn place_segment(&mut self, class: ClassId, bytes: u64, alignment: u64) -> u64 {
        if self.place_next.is_none() && class == ClassId::DEVICE {
            self.place_next = self.expected.get_mut(&bytes).and_then(VecDeque::pop_front);
        }
        self.place(bytes, alignment)
    }

    /// Takes addresses where the test wants them if they are free there, else behind all that were ever taken. Returns
    /// the first.
    pub(crate) fn place(&mut self, bytes: u64, alignment: u64) -> u64 {
        let wanted = self.place_next.take().filter(|&address| self.has_room(address, bytes, alignment));
        let address = wanted.unwrap_or_else(|| self.next_free(bytes, alignment.max(ADDRESS_STEP)));
        let end = address.checked_add(bytes).expect("a segment ends below 2^64");
        self.live.insert(address, end);
        self.next_address = self.next_address.max(end);
        address
    }

    /// Takes addresses that a test's own memory has. Those that the device chooses do not depend on them, but for those
    /// that they would overlap.
    pub(crate) fn claim(&mut self, address: u64, bytes: u64) -> Result<(), SimError> {
        if !self.has_room(address, bytes, 1) {
            return Err(SimError::Occupied { address, bytes });
        }
        self.live.insert(address, address + bytes);
        Ok(())
    }

    /// Returns the first free addresses behind all that the device ever chose.
    fn next_free(&self, bytes: u64, step: u64) -> u64 {
        let mut address = self.next_address.next_multiple_of(step);
        while let Some((_, &stop)) = self.live.range(..address.saturating_add(bytes)).next_back()
            && stop > address
        {
            address = stop.next_multiple_of(step);
        }
        address
    }

    /// Returns whether the addresses exist, are aligned, and overlap no live segment.
    fn has_room(&self, address: u64, bytes: u64, alignment: u64) -> bool {
        let end = address.checked_add(bytes).filter(|&end| end <= HIGHEST_ADDRESS);
        end.is_some_and(|end| self.live.range(..end).next_back().is_none_or(|(_, &stop)| stop <= address))
            && address.is_multiple_of(alignment)
    }

    /// Gives addresses back. They are not handed out again unless a test asks for them.
    pub(crate) fn vacate(&mut self, address: u64) {
        assert!(self.live.remove(&address).is_some(), "no live segment starts at {address:#x}: released twice");
    }

    /// Counts a range's bytes against the address space.
    pub(crate) fn take_range(&mut self, bytes: u64) -> Result<(), SimError> {
        let free = self.range_total - self.range_used;
        if bytes > free {
            return Err(SimError::AddressSpace { asked: bytes, free, total: self.range_total });
        }
        self.range_used += bytes;
        Ok(())
    }

    pub(crate) fn give_range(&mut self, bytes: u64) {
        self.range_used -= bytes;
    }

    /// Returns the places where a page is mapped, as (range, the range's address, offset), oldest range first. Looks at
    /// every table.
    pub(crate) fn mappings_of(&self, physical: u64) -> Vec<(u64, u64, u64)> {
        let mut found = Vec::new();
        for (range, start) in &self.range_starts {
            let here = self.tables[range].iter().filter(|(_, mapping)| mapping.physical == physical);
            found.extend(here.map(|(offset, _)| (*range, *start, *offset)));
        }
        found
    }

    /// Returns the mapping of a range that covers an offset: its start, and the mapping itself.
    pub(crate) fn mapping_at(&self, range: u64, offset: u64) -> Option<(u64, Mapping)> {
        let (start, mapping) = self.tables.get(&range)?.range(..=offset).next_back()?;
        (start + mapping.bytes > offset).then_some((*start, *mapping))
    }
}
