//! The pause and the resume of a group.
//!
//! A group is running or paused, and closed in between: its memory is mapped, and nothing of it is granted. Whatever
//! fails, or panics, on the way leaves it running or paused.

use std::collections::BTreeSet;

use millpond_backend::{Backend, StreamId};
use millpond_core::{Denied, GroupState, Plan};

use super::{Contents, Group, HostCopy, Keep, Sleep};
use crate::drive::Ending;
use crate::error::{Error, PauseError, ResumeError};
use crate::state::LockedShards;

/// A closed group, which becomes running or paused again when this is dropped.
struct Closed<'a, B: Backend> {
    group: &'a Group<B>,
    /// What it was before, and becomes if nothing else was decided.
    to: GroupState,
}

impl<B: Backend> Drop for Closed<'_, B> {
    fn drop(&mut self) {
        match self.to {
            GroupState::Running => self.group.open(),
            // Neither an unmap nor a release can fail, and one that panics counts as done.
            _ => _ = self.group.run(&mut Plan::pause(self.group.entry.id, self.group.state().clocks())),
        }
    }
}

impl<B: Backend + Clone> Group<B> {
    /// Pauses the group: waits for the streams that use it, copies its contents to the host if they are to be kept,
    /// unmaps its pages everywhere and returns them to the driver. Does nothing if it is paused already, whatever is to
    /// be kept.
    ///
    /// The streams that use it are those on which its buffers were allocated, those that were named since
    /// ([`Buffer::record_stream`](crate::Buffer::record_stream)), and those that are not done with what was freed. Wait
    /// yourself for others, such as those on which a captured graph runs. Where the application's submit closes ticks
    /// (Vulkan), submit the work that uses the group before this; its end is waited for here.
    ///
    /// In pools in which a stream was captured, all memory is kept at its addresses, since a graph also uses what no
    /// buffer has. Elsewhere, memory that no buffer has is released, as by
    /// [`empty_cache`](crate::Allocator::empty_cache).
    ///
    /// Takes the time of the copy, if there is one, and of two or three driver calls for each page. Copies go through
    /// at most 96 MiB of page-locked memory, which stays with the allocator for the next ones. Other groups and pools
    /// go on meanwhile.
    ///
    /// # Errors
    ///
    /// The group keeps running. [`Error::NotPaused`] while a stream of the group is being captured, if pages of it were
    /// exported to other processes, or if the host has too little memory for the contents; [`Error::Unsupported`] if
    /// contents are to be kept on a device without page-locked memory that the host can address; [`Error::NotReached`]
    /// if a stream waits for work that was never submitted;
    /// [`Error::Driver`] if a driver call fails.
    pub fn pause(&self, keep: Keep) -> Result<(), Error<B::Error>> {
        let mut sleep = self.lock();
        if self.is_paused() {
            return Ok(());
        }
        let state = self.state();
        let pools = state.coordinator.lock().pools_of_group(self.entry.id);
        for pool in pools {
            state.run(&mut Plan::empty_pool(pool, state.clocks()))?;
        }
        if let Ending::Denied(denied) = state.run(&mut Plan::close(self.entry.id, state.clocks()))? {
            return Err(self.not_paused(denied));
        }
        let mut closed = Closed { group: self, to: GroupState::Running };
        self.expect_unshared()?;
        self.finish_work()?;
        sleep.contents = match keep {
            Keep::Discard => None,
            Keep::Host => Some(self.save(&mut sleep)?),
        };
        closed.to = GroupState::Paused;
        Ok(())
    }

    /// Resumes the group: creates and maps its pages again, at the same addresses, and copies the contents back if they
    /// were kept. Its pools serve requests again when this returns. Does nothing if it is running.
    ///
    /// Memory that is missing is first taken from the cache of other pools, as
    /// [`empty_cache`](crate::Allocator::empty_cache) does.
    ///
    /// # Errors
    ///
    /// The group is paused then, as before, with its contents. [`Error::NotResumed`] if the driver or the limit has no
    /// room for all of its pages: [`fault`](Error::fault) is out of memory. [`Error::Driver`] if a driver call fails.
    pub fn resume(&self) -> Result<(), Error<B::Error>> {
        let mut sleep = self.lock();
        let state = self.state();
        let was = state.coordinator.lock().group_state(self.entry.id);
        if was == GroupState::Running {
            return Ok(());
        }
        if let Ending::Denied(denied) = state.run(&mut Plan::resume(self.entry.id, state.clocks()))? {
            return Err(self.not_resumed(denied));
        }
        let mut closed = Closed { group: self, to: GroupState::Paused };
        if let Some(contents) = &sleep.contents {
            self.restore(contents)?;
        }
        closed.to = GroupState::Running;
        drop(closed);
        let kept = sleep.contents.take().map(|contents| contents.bytes);
        if sleep.keeps_host {
            sleep.spare = kept.or(sleep.spare.take());
        }
        Ok(())
    }

    /// Copies the contents to the host.
    fn save(&self, sleep: &mut Sleep) -> Result<Contents, Error<B::Error>> {
        let parts = {
            let coordinator = self.state().coordinator.lock();
            coordinator.contents_of(self.entry.id, &mut LockedShards(self.state()))
        };
        let bytes = parts.iter().map(|part| part.extent.bytes).sum();
        let spare = sleep.spare.take().filter(|spare| spare.bytes() >= bytes);
        let Some(mut host) = spare.or_else(|| HostCopy::new(bytes)) else {
            let why = PauseError::NoHostMemory { group: self.entry.name.clone(), bytes };
            return Err(Error::NotPaused(Box::new(why)));
        };
        match self.copy_out(&parts, host.as_mut_slice()) {
            Ok(()) => Ok(Contents { parts, bytes: host }),
            Err(error) => {
                sleep.spare = Some(host).filter(|_| sleep.keeps_host);
                Err(error)
            }
        }
    }

    /// Copies the contents back.
    fn restore(&self, contents: &Contents) -> Result<(), Error<B::Error>> {
        self.copy_back(&contents.parts, contents.bytes.as_slice())
    }
}

impl<B: Backend> Group<B> {
    /// Refuses to pause a group of which other processes may have pages.
    fn expect_unshared(&self) -> Result<(), Error<B::Error>> {
        let state = self.state();
        let pages = state.coordinator.lock().pages_of_group(self.entry.id, &mut LockedShards(state));
        let bytes = pages.into_iter().filter(|page| state.is_shared(page.id)).map(|page| page.bytes).sum();
        if bytes == 0 {
            return Ok(());
        }
        Err(Error::NotPaused(Box::new(PauseError::Shared { group: self.entry.name.clone(), bytes })))
    }

    /// Waits for the streams that use the group.
    fn finish_work(&self) -> Result<(), Error<B::Error>> {
        let state = self.state();
        for stream in self.users() {
            let tick = state.backend.submit(stream).map_err(|e| Error::of_driver("submit", e))?;
            let point = millpond_backend::Point { stream, tick };
            let reached = state.wait(point)?.tick;
            state.coordinator.lock().note_reached(stream, reached);
            if reached < tick {
                return Err(Error::NotReached { point, reached });
            }
        }
        Ok(())
    }

    /// Returns the streams that use the group.
    fn users(&self) -> BTreeSet<StreamId> {
        let state = self.state();
        loop {
            let coordinator = state.coordinator.lock();
            let users = coordinator.users_of(self.entry.id, &mut LockedShards(state));
            // In this order: what is freed in between was live before, or its streams cannot be named before the lock
            // is open.
            if !coordinator.is_freed_under_way(self.entry.id, &mut LockedShards(state)) {
                return users;
            }
            drop(coordinator);
            // The other thread waits for nothing but the lock.
            std::thread::yield_now();
        }
    }

    /// Opens the closed group.
    fn open(&self) {
        let state = self.state();
        let mut coordinator = state.coordinator.lock();
        coordinator.open_group(self.entry.id, state.clocks(), &mut LockedShards(state));
        state.publish(&coordinator);
        drop(coordinator);
        state.released.notify_all();
    }

    fn run(&self, plan: &mut Plan) -> Result<Ending, Error<B::Error>> {
        self.state().run(plan)
    }

    fn not_paused(&self, denied: Denied) -> Error<B::Error> {
        let Denied::Capturing(stream) = denied else { panic!("a pause was denied with {denied:?}") };
        Error::NotPaused(Box::new(PauseError::Capturing { group: self.entry.name.clone(), stream }))
    }

    fn not_resumed(&self, denied: Denied) -> Error<B::Error> {
        let Denied::NoRoom { bytes: needed_bytes, created: granted_bytes } = denied else {
            panic!("a resume was denied with {denied:?}")
        };
        let (backend, class) = (&self.state().backend, self.state().class);
        let budget = backend.budget().and_then(|budget| budget.budget(class).ok());
        let coordinator = self.state().coordinator.lock();
        Error::NotResumed(Box::new(ResumeError {
            group: self.entry.name.clone(),
            needed_bytes,
            granted_bytes,
            reserved_bytes: coordinator.reserved_bytes(),
            limit_bytes: coordinator.limit(),
            others_bytes: budget.and_then(|budget| budget.others_bytes),
        }))
    }
}
