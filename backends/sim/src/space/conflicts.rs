//! Which work touches which physical bytes right now.
//!
//! Each piece of physical memory lists the unfinished work that touches it. New work is compared with that list when it
//! is queued; a release or an unmap is compared with it when it is made. Bytes in conflict are poisoned at once, and
//! again when each task involved completes, so that the damage survives whatever those tasks write.

use millpond_backend::Point;

use super::store::POISON;
use super::users::{User, common};
use super::violation::{Access, Violation};
use super::{Memory, Piece, Space};

impl Space {
    /// Poisons bytes now, and again when each of their users completes.
    pub(crate) fn condemn(&mut self, physical: u64, span: (u64, u64)) {
        let Some(physical) = self.physical.get_mut(&physical) else { return };
        physical.store.fill(span.0, span.1, POISON);
        for user in &mut physical.users {
            if let Some(both) = common((user.start, user.bytes), span) {
                user.poison.push(both);
            }
        }
    }

    /// Returns a violation for each unfinished task that touches the physical memory.
    pub(crate) fn users(&self, physical: u64) -> Vec<Violation> {
        let users = self.physical.get(&physical).map_or(&[][..], |physical| &physical.users);
        users
            .iter()
            .map(|user| Violation::ReleasedInUse { other: user.point, address: user.address, bytes: user.bytes })
            .collect()
    }

    /// Returns a violation for each unfinished task that touches the physical memory through these addresses of a
    /// range, and poisons the bytes.
    pub(crate) fn users_through(&mut self, physical: u64, range: u64, offset: u64, bytes: u64) -> Vec<Violation> {
        let users = self.physical.get(&physical).map_or(&[][..], |physical| &physical.users);
        let mut found = Vec::new();
        let mut spans = Vec::new();
        for user in users.iter().filter(|user| user.segment == range) {
            if let Some((at, bytes)) = common((user.at, user.bytes), (offset, bytes)) {
                let address = user.address + (at - user.at);
                found.push(Violation::UnmappedInUse { other: user.point, address, bytes });
                spans.push((user.start + (at - user.at), bytes));
            }
        }
        for span in spans {
            self.condemn(physical, span);
        }
        found
    }
}

impl Memory {
    /// Adds an unfinished task, by its number on its device and the point that covers it, to the users of the memory
    /// that the piece covers.
    pub(crate) fn enlist(&self, piece: &Piece, device: u64, task: u64, point: Point, access: Access) {
        if let Some(physical) = self.space().physical.get_mut(&piece.physical) {
            physical.users.push(User {
                device,
                task,
                point,
                access,
                start: piece.start,
                bytes: piece.bytes,
                segment: piece.segment,
                at: piece.at,
                address: piece.address,
                poison: Vec::new(),
            });
        }
    }

    /// Removes a task that has completed, and poisons those of its bytes that were in conflict.
    pub(crate) fn retire(&self, physical: u64, device: u64, task: u64) {
        let mut space = self.space();
        let Some(physical) = space.physical.get_mut(&physical) else { return };
        let store = &mut physical.store;
        physical.users.retain(|user| {
            let over = user.device == device && user.task == task;
            if over {
                for (start, bytes) in &user.poison {
                    store.fill(*start, *bytes, POISON);
                }
            }
            !over
        });
    }

    /// Returns the users that are other tasks and share bytes with the piece, where at least one side writes, each with
    /// the span that both touch.
    pub(crate) fn rivals(
        &self,
        piece: &Piece,
        is_other: impl Fn(&User) -> bool,
        access: Access,
    ) -> Vec<(User, (u64, u64))> {
        let space = self.space();
        let Some(physical) = space.physical.get(&piece.physical) else { return Vec::new() };
        let clashes = |user: &&User| access == Access::Write || user.access == Access::Write;
        let both = |user: &User| common((user.start, user.bytes), (piece.start, piece.bytes));
        physical
            .users
            .iter()
            .filter(|user| is_other(user))
            .filter(clashes)
            .filter_map(|user| both(user).map(|span| (user.clone(), span)))
            .collect()
    }
}
