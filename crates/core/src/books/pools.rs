//! The private pools: who holds each, how much of what is reserved is theirs, and whether a capture is under way in it.

use alloc::collections::BTreeMap;

use crate::ids::{GroupId, PoolId, Side};
use crate::settings::PoolFlags;
use crate::stats::{Stat, StatByPool};

/// What is known of a pool.
#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    /// The number of references to it.
    uses: u64,
    /// The number of streams that are being captured in it.
    captures: u64,
    /// Whether a stream ever was.
    was_captured: bool,
    /// The bytes of its segments and of the pages that have their homes in it.
    reserved: StatByPool,
    /// The most bytes that were seen live in it at a time.
    most_live: u64,
    flags: PoolFlags,
    /// Whether its segments come from a source of its own.
    has_source: bool,
    /// The group that it belongs to.
    group: Option<GroupId>,
    /// The bytes of its pages that are paused.
    paused: u64,
}

impl Entry {
    /// Returns whether the pool has memory that nothing holds any more: no reference, and no graph that was captured.
    fn is_over(&self) -> bool {
        self.uses == 0 && !self.was_captured && self.reserved.all.current > 0
    }
}

/// All pools that exist. The default pool always does.
#[derive(Clone)]
pub(crate) struct Pools {
    table: BTreeMap<PoolId, Entry>,
    /// The number of private pools that have memory and that nothing holds any more.
    over: usize,
    /// The bytes that are reserved in all pools.
    reserved: u64,
    /// The bytes of pages that are paused, of all pools.
    paused: u64,
    /// The number that the next pool gets: no pool had it before.
    next: u64,
    /// Whether there ever was a pool with a source of its own.
    has_sourced: bool,
}

impl Default for Pools {
    fn default() -> Self {
        let table = BTreeMap::from([(PoolId::DEFAULT, Entry::default())]);
        Self { table, over: 0, reserved: 0, paused: 0, next: PoolId::DEFAULT.0 + 1, has_sourced: false }
    }
}

impl Pools {
    /// Adds a pool with one reference. `live` are the most bytes that were live so far, of which all were the default
    /// pool's before there was another one.
    pub(crate) fn create(&mut self, live: u64) -> PoolId {
        let pool = PoolId(self.next);
        self.know(pool, live);
        self.hold(pool);
        pool
    }

    /// Notes that the segments of a pool come from a source of its own.
    ///
    /// # Panics
    ///
    /// If there is no such pool.
    pub(crate) fn give_source(&mut self, pool: PoolId) {
        self.entry(pool).has_source = true;
        self.has_sourced = true;
    }

    /// Returns whether the segments of a pool come from a source of its own.
    pub(crate) fn has_source(&self, pool: PoolId) -> bool {
        self.has_sourced && self.table.get(&pool).is_some_and(|entry| entry.has_source)
    }

    /// Returns the reserved bytes that came from sources of pools.
    pub(crate) fn reserved_from_sources(&self) -> u64 {
        if !self.has_sourced {
            return 0;
        }
        let sourced = self.table.values().filter(|entry| entry.has_source);
        sourced.map(|entry| entry.reserved.all.current).sum()
    }

    /// Adds a pool without a reference, if it is not known.
    pub(crate) fn know(&mut self, pool: PoolId, live: u64) {
        if pool != PoolId::DEFAULT && !self.has_private() {
            self.note_live(PoolId::DEFAULT, live);
        }
        self.next = self.next.max(pool.0.saturating_add(1));
        self.table.entry(pool).or_default();
    }

    /// Returns whether some private pool has memory that nothing holds any more.
    pub(crate) fn has_over(&self) -> bool {
        self.over > 0
    }

    /// Returns whether the pool exists.
    pub(crate) fn has(&self, pool: PoolId) -> bool {
        self.table.contains_key(&pool)
    }

    /// Returns whether there ever was a private pool.
    pub(crate) fn has_private(&self) -> bool {
        self.next > PoolId::DEFAULT.0 + 1
    }

    /// Returns the private pools.
    pub(crate) fn private(&self) -> impl Iterator<Item = PoolId> {
        self.table.keys().copied().filter(|&pool| pool != PoolId::DEFAULT)
    }

    /// Adds a reference.
    ///
    /// # Panics
    ///
    /// If there is no such pool.
    pub(crate) fn hold(&mut self, pool: PoolId) {
        self.change(pool, |entry| entry.uses += 1);
    }

    /// Takes a reference away.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn let_go(&mut self, pool: PoolId) {
        self.change(pool, |entry| {
            assert!(entry.uses > 0, "{pool} is released more often than it was held");
            entry.uses -= 1;
            if entry.uses == 0 {
                entry.flags = PoolFlags::default();
            }
        });
    }

    /// Sets what is special about a pool, until its last reference is given up.
    ///
    /// # Panics
    ///
    /// If there is no such pool.
    pub(crate) fn set_flags(&mut self, pool: PoolId, flags: PoolFlags) {
        self.entry(pool).flags = flags;
    }

    /// Returns what is special about a pool.
    pub(crate) fn flags(&self, pool: PoolId) -> PoolFlags {
        self.table.get(&pool).map_or(PoolFlags::default(), |entry| entry.flags)
    }

    /// Returns the number of references to a pool.
    pub(crate) fn uses(&self, pool: PoolId) -> u64 {
        self.table.get(&pool).map_or(0, |entry| entry.uses)
    }

    /// Returns whether a pool has references, so that nothing of it may be given back. The default pool never has. In a
    /// group only a graph needs what no block has, so a pool without one is not held there.
    pub(crate) fn is_held(&self, pool: PoolId) -> bool {
        let needs = |entry: &Entry| entry.uses > 0 && (entry.group.is_none() || entry.was_captured);
        pool != PoolId::DEFAULT && self.table.get(&pool).is_some_and(needs)
    }

    /// Returns whether a pool serves requests of the default pool that would be refused. One of a group does not: what
    /// is lent would go away with the group.
    pub(crate) fn may_lend(&self, pool: PoolId) -> bool {
        self.flags(pool).use_on_oom && self.group_of(pool).is_none()
    }

    /// Makes a pool one of a group.
    ///
    /// # Panics
    ///
    /// If there is no such pool.
    pub(crate) fn join_group(&mut self, pool: PoolId, group: GroupId) {
        self.entry(pool).group = Some(group);
    }

    /// Returns the group of a pool, if it has one.
    pub(crate) fn group_of(&self, pool: PoolId) -> Option<GroupId> {
        self.table.get(&pool)?.group
    }

    /// Returns the pools of a group. Looks at every pool.
    pub(crate) fn of_group(&self, group: GroupId) -> impl Iterator<Item = PoolId> {
        self.table.iter().filter(move |(_, entry)| entry.group == Some(group)).map(|(&pool, _)| pool)
    }

    /// Books memory of a pool that is paused.
    pub(crate) fn pause(&mut self, pool: PoolId, side: Side, bytes: u64) {
        self.entry(pool).paused += bytes;
        self.paused += bytes;
        self.lose(pool, side, bytes);
    }

    /// Books paused memory of a pool that is there again.
    pub(crate) fn resume(&mut self, pool: PoolId, side: Side, bytes: u64) {
        self.entry(pool).paused -= bytes;
        self.paused -= bytes;
        self.gain(pool, side, bytes);
    }

    /// Returns the paused bytes of all pools.
    pub(crate) fn all_paused(&self) -> u64 {
        self.paused
    }

    /// Returns the paused bytes of a pool.
    pub(crate) fn paused(&self, pool: PoolId) -> u64 {
        self.table.get(&pool).map_or(0, |entry| entry.paused)
    }

    /// Notes that the capture of a stream has begun in a pool.
    pub(crate) fn begin_capture(&mut self, pool: PoolId) {
        self.change(pool, |entry| (entry.captures, entry.was_captured) = (entry.captures + 1, true));
    }

    /// Returns whether a stream ever was captured in a pool, so that a graph may use its memory at any time.
    pub(crate) fn was_captured(&self, pool: PoolId) -> bool {
        self.table.get(&pool).is_some_and(|entry| entry.was_captured)
    }

    /// Notes that the capture of a stream has ended.
    pub(crate) fn end_capture(&mut self, pool: PoolId) {
        self.entry(pool).captures -= 1;
    }

    /// Returns whether a stream is being captured in a private pool. In the default pool that concerns no other stream.
    pub(crate) fn is_capturing(&self, pool: PoolId) -> bool {
        pool != PoolId::DEFAULT && self.table.get(&pool).is_some_and(|entry| entry.captures > 0)
    }

    /// Books memory that a pool got from the driver.
    pub(crate) fn gain(&mut self, pool: PoolId, side: Side, bytes: u64) {
        self.change(pool, |entry| entry.reserved.change(side, |stat| stat.increase(bytes)));
        self.reserved += bytes;
    }

    /// Books memory of a pool that goes back to the driver.
    pub(crate) fn lose(&mut self, pool: PoolId, side: Side, bytes: u64) {
        self.change(pool, |entry| entry.reserved.change(side, |stat| stat.decrease(bytes)));
        self.reserved -= bytes;
    }

    /// Returns the reserved bytes of a pool, if it exists.
    pub(crate) fn reserved(&self, pool: PoolId) -> Option<StatByPool> {
        self.table.get(&pool).map(|entry| entry.reserved)
    }

    /// Returns the bytes that are reserved for other private pools than this one, and for the default pool if this is
    /// not it.
    pub(crate) fn reserved_elsewhere(&self, pool: PoolId) -> u64 {
        self.reserved - self.reserved(pool).map_or(0, |own| own.all.current)
    }

    /// Notes that this number of bytes is live in a pool.
    pub(crate) fn note_live(&mut self, pool: PoolId, bytes: u64) {
        let most = &mut self.entry(pool).most_live;
        *most = bytes.max(*most);
    }

    /// Returns the most bytes that were seen live in a pool at a time, since there are private pools.
    pub(crate) fn most_live(&self, pool: PoolId) -> u64 {
        self.table.get(&pool).map_or(0, |entry| entry.most_live)
    }

    /// Forgets what was live in pools that are not held, but for what is live now.
    pub(crate) fn begin_anew(&mut self, live: &BTreeMap<PoolId, u64>) {
        for (pool, entry) in &mut self.table {
            if *pool == PoolId::DEFAULT || entry.uses == 0 {
                entry.most_live = live.get(pool).copied().unwrap_or(0);
            }
        }
    }

    /// Lowers the remembered peak of each pool that is not held to this number of bytes.
    pub(crate) fn forget_beyond(&mut self, most: u64) {
        for (pool, entry) in &mut self.table {
            if *pool == PoolId::DEFAULT || entry.uses == 0 {
                entry.most_live = entry.most_live.min(most);
            }
        }
    }

    /// Returns the bytes that are reserved in pools that are held, or have a source of their own.
    pub(crate) fn reserved_in_held(&self) -> u64 {
        let stays = |pool: &PoolId, entry: &Entry| entry.has_source || (*pool != PoolId::DEFAULT && entry.uses > 0);
        self.table.iter().filter(|(pool, entry)| stays(pool, entry)).map(|(_, entry)| entry.reserved.all.current).sum()
    }

    /// Returns the most bytes that were seen live in each pool that has no source of its own.
    pub(crate) fn live_peaks(&self) -> impl Iterator<Item = u64> {
        self.table.values().filter(|entry| !entry.has_source).map(|entry| entry.most_live)
    }

    /// Forgets a pool that has no references and no memory. Returns whether it did.
    pub(crate) fn forget(&mut self, pool: PoolId) -> bool {
        let is_empty = |entry: &Entry| {
            let has_memory = entry.reserved.all.current > 0 || entry.paused > 0;
            entry.uses == 0 && entry.captures == 0 && !has_memory
        };
        let goes = pool != PoolId::DEFAULT && self.table.get(&pool).is_some_and(is_empty);
        goes && self.table.remove(&pool).is_some()
    }

    /// Sets every peak to what is there now.
    pub(crate) fn reset_peaks(&mut self) {
        self.table.values_mut().for_each(|entry| entry.reserved.each(Stat::reset_peak));
    }

    /// Sets what came and what went to 0.
    pub(crate) fn reset_totals(&mut self) {
        self.table.values_mut().for_each(|entry| entry.reserved.each(Stat::reset_totals));
    }

    /// Changes what is known of a pool, and counts those that have memory and that nothing holds.
    fn change(&mut self, pool: PoolId, change: impl FnOnce(&mut Entry)) {
        let entry = self.entry(pool);
        let was_over = entry.is_over();
        change(entry);
        let is_over = entry.is_over();
        if pool != PoolId::DEFAULT {
            self.over = self.over + usize::from(is_over) - usize::from(was_over);
        }
    }

    fn entry(&mut self, pool: PoolId) -> &mut Entry {
        self.table.get_mut(&pool).unwrap_or_else(|| panic!("{pool} does not exist"))
    }

    /// Verifies that `held`, the bytes in segments and in pages at home by pool and side, is what the pools have.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(crate) fn check(&self, held: &BTreeMap<PoolId, [u64; 2]>) {
        for (pool, entry) in &self.table {
            let reserved = [entry.reserved.small_pool.current, entry.reserved.large_pool.current];
            let held = held.get(pool).copied().unwrap_or_default();
            assert_eq!(held, reserved, "{pool}: bytes in segments against bytes reserved, by side");
        }
        let over = self.private().filter(|pool| self.table[pool].is_over()).count();
        assert_eq!(self.over, over, "private pools that are over");
        let reserved: u64 = self.table.values().map(|entry| entry.reserved.all.current).sum();
        assert_eq!(self.reserved, reserved, "bytes reserved in all pools");
        let paused: u64 = self.table.values().map(|entry| entry.paused).sum();
        assert_eq!(self.paused, paused, "bytes paused in all pools");
        let unknown = held.iter().find(|(pool, bytes)| !self.has(**pool) && **bytes != [0; 2]);
        assert_eq!(unknown, None, "memory of a pool that does not exist");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_held_as_long_as_it_has_references() {
        let mut book = Pools::default();
        let pool = book.create(0);
        book.hold(pool);
        assert_eq!((book.uses(pool), book.is_held(pool)), (2, true));
        book.let_go(pool);
        assert!(book.is_held(pool) && !book.forget(pool));
        book.let_go(pool);
        assert!(!book.is_held(pool) && book.has(pool));
        book.gain(pool, Side::Large, 5);
        assert!(!book.forget(pool), "it has memory");
        book.lose(pool, Side::Large, 5);
        assert!(book.forget(pool) && !book.has(pool));
        assert_ne!(book.create(0), pool, "a number is given out once");
    }

    #[test]
    #[should_panic(expected = "released more often than it was held")]
    fn a_reference_is_given_up_once() {
        let mut book = Pools::default();
        let pool = book.create(0);
        book.let_go(pool);
        book.let_go(pool);
    }

    #[test]
    fn the_default_pool_is_never_held_nor_forgotten() {
        let mut book = Pools::default();
        book.hold(PoolId::DEFAULT);
        book.begin_capture(PoolId::DEFAULT);
        assert!(!book.is_held(PoolId::DEFAULT) && !book.is_capturing(PoolId::DEFAULT));
        book.end_capture(PoolId::DEFAULT);
        book.let_go(PoolId::DEFAULT);
        assert!(!book.forget(PoolId::DEFAULT));
    }

    #[test]
    fn what_was_live_before_the_first_private_pool_was_the_default_pools() {
        let mut book = Pools::default();
        assert!(!book.has_private());
        let [first, second] = [70, 90].map(|live| book.create(live));
        book.note_live(first, 8);
        book.note_live(first, 5);
        assert_eq!([PoolId::DEFAULT, first, second].map(|pool| book.most_live(pool)), [70, 8, 0]);
    }

    #[test]
    #[should_panic(expected = "by side")]
    fn bytes_of_another_pool_are_found() {
        let mut book = Pools::default();
        let pool = book.create(0);
        book.gain(pool, Side::Small, 2);
        book.check(&BTreeMap::from([(PoolId::DEFAULT, [2, 0])]));
    }
}
