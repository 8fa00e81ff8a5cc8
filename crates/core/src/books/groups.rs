//! The groups: private pools whose memory goes back to the driver together while the program does something else.

use alloc::collections::BTreeMap;

use crate::ids::{GroupId, PoolId};

/// Whether the memory of a group is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupState {
    /// Its pools serve requests.
    Running,
    /// Its memory is mapped, and nothing of it is granted or given back: between running and paused.
    Closed,
    /// Its pages are with the driver. Blocks keep their addresses, with nothing behind them.
    Paused,
}

/// Why a pool cannot become one of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member {
    /// It can, or is one already.
    Welcome,
    /// It belongs to another group.
    OfAnother,
    /// It is the default pool.
    Default,
    /// Its segments come from a source of its own.
    Sourced,
    /// The group is not running.
    Asleep,
}

/// All groups, by number.
#[derive(Clone, Default)]
pub(crate) struct Groups {
    table: BTreeMap<GroupId, GroupState>,
    next: u64,
    /// The number of groups that are not running.
    asleep: usize,
}

impl Groups {
    pub(crate) fn create(&mut self) -> GroupId {
        let group = GroupId(self.next);
        self.next += 1;
        self.table.insert(group, GroupState::Running);
        group
    }

    /// Returns the state of a group.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub(crate) fn state(&self, group: GroupId) -> GroupState {
        *self.table.get(&group).unwrap_or_else(|| panic!("group {} does not exist", group.0))
    }

    /// Sets the state of a group.
    ///
    /// # Panics
    ///
    /// If there is no such group, or it can't go from its state to that one: closed is between the other two.
    pub(crate) fn set(&mut self, group: GroupId, to: GroupState) {
        let from = self.state(group);
        let is_next = from != to && (from == GroupState::Closed || to == GroupState::Closed);
        assert!(is_next, "group {} goes from {from:?} to {to:?}", group.0);
        self.table.insert(group, to);
        self.asleep = self.table.values().filter(|&&state| state != GroupState::Running).count();
    }

    /// Returns whether requests of a pool of this group, if it is in one, are refused.
    pub(crate) fn is_closed(&self, group: Option<GroupId>) -> bool {
        self.asleep > 0 && group.is_some_and(|group| self.state(group) != GroupState::Running)
    }
}

impl Member {
    /// Returns whether a pool can become one of `group`, of which the book of pools says this.
    pub(crate) fn of(pool: PoolId, has_source: bool, in_group: Option<GroupId>, group: GroupId) -> Self {
        match in_group {
            Some(other) if other == group => Self::Welcome,
            Some(_) => Self::OfAnother,
            None if pool == PoolId::DEFAULT => Self::Default,
            None if has_source => Self::Sourced,
            None => Self::Welcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_are_not_running_are_closed() {
        let mut book = Groups::default();
        let [first, second] = [book.create(), book.create()];
        assert!(!book.is_closed(Some(first)) && !book.is_closed(None));
        book.set(first, GroupState::Closed);
        assert!(book.is_closed(Some(first)) && !book.is_closed(Some(second)) && !book.is_closed(None));
        book.set(first, GroupState::Paused);
        assert!(book.is_closed(Some(first)));
        book.set(first, GroupState::Closed);
        book.set(first, GroupState::Running);
        assert!(!book.is_closed(Some(first)));
    }

    #[test]
    #[should_panic(expected = "goes from Running to Paused")]
    fn a_group_is_closed_before_it_is_paused() {
        let mut book = Groups::default();
        let group = book.create();
        book.set(group, GroupState::Paused);
    }
}
