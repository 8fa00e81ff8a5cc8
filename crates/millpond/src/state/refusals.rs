//! What an allocator refuses: what is another one's, what it does not have, and what is set aside.

use millpond_backend::{Backend, Point, StreamId};

use super::State;
use crate::error::Error;

impl<B: Backend> State<B> {
    /// Refuses to open streams in a cache of page-locked memory. A [`Buffer`](crate::Buffer) from such a stream would
    /// give access to the segment that it shares with pinned buffers, whose bytes the host may be reading as a slice.
    pub(crate) fn expect_streams(&self) -> Result<(), Error<B::Error>> {
        if self.home.is_none() { Ok(()) } else { Err(Error::NoStreams) }
    }

    /// Refuses a stream that is set aside.
    pub(crate) fn expect_free(&self, stream: StreamId) -> Result<(), Error<B::Error>> {
        if self.set_aside.lock().all.contains(&stream) { Err(Error::SetAside { stream }) } else { Ok(()) }
    }

    /// Refuses a stream that requests cannot be made on.
    pub(crate) fn expect_open(&self, id: StreamId) -> Result<(), Error<B::Error>> {
        self.expect_streams()?;
        if !self.backend.has_stream(id) {
            return Err(Error::UnknownStream { stream: id });
        }
        self.expect_free(id)
    }

    /// Refuses a stream or a buffer that belongs to another allocator.
    pub(crate) fn expect_own(&self, what: &'static str, owner: &State<B>) -> Result<(), Error<B::Error>> {
        if std::ptr::eq(self, owner) { Ok(()) } else { Err(self.wrong_device(what, owner)) }
    }

    /// Returns the error for a thing of another allocator.
    #[cold]
    pub(crate) fn wrong_device(&self, what: &'static str, owner: &State<B>) -> Error<B::Error> {
        let name = |state: &State<B>, class: &str| {
            format!("device {} ({}{class})", state.device, state.backend.caps().name).into_boxed_str()
        };
        let with_class = |state: &State<B>| {
            let class = &state.backend.caps().class(state.class).name;
            name(state, &format!(", class {class}"))
        };
        let (mut belongs_to, mut given_to) = (name(owner, ""), name(self, ""));
        if belongs_to == given_to && owner.class != self.class {
            (belongs_to, given_to) = (with_class(owner), with_class(self));
        }
        Error::WrongDevice { what, belongs_to, given_to }
    }

    /// Refuses a stream that the allocator does not have.
    pub(crate) fn expect_stream(&self, stream: StreamId) -> Result<(), Error<B::Error>> {
        if self.coordinator.lock().knows_stream(stream) { Ok(()) } else { Err(Error::UnknownStream { stream }) }
    }

    /// Refuses a point that cannot cover any work yet: a wait for it would wait for work that may never be recorded.
    pub(crate) fn expect_marked(&self, point: Point) -> Result<(), Error<B::Error>> {
        self.expect_stream(point.stream)?;
        let marked = self.backend.mark(point.stream);
        if point.tick <= marked { Ok(()) } else { Err(Error::NotMarked { point, marked }) }
    }
}

/// The tests of interleavings have no groups.
#[cfg(loom)]
impl<B: Backend> State<B> {
    pub(crate) fn paused(&self, _: millpond_core::GroupId) -> Error<B::Error> {
        Error::Paused { group: Box::default() }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as where there are groups")]
    pub(crate) fn expect_running_at(&self, _: millpond_core::ShardId) -> Result<(), Error<B::Error>> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as where there are groups")]
    pub(crate) fn expect_memory_at(&self, _: millpond_core::ShardId) -> Result<(), Error<B::Error>> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as where there are groups")]
    pub(crate) fn expect_running(&self, _: millpond_core::PoolId) -> Result<(), Error<B::Error>> {
        Ok(())
    }
}
