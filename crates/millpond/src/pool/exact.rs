//! Blocks at addresses that the program names: PyTorch's `mallocWithAddress`.

use std::panic::Location;

use millpond_backend::Backend;
use millpond_core::Obstacle;
use millpond_core::settings::Scrub;

use super::checkpoint::{WAITS_MOST, wait_for};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::notes::note::Asked;
use crate::state::{LaneRef, LockedShards};
use crate::stream::Stream;

impl<B: Backend> Stream<B> {
    /// Allocates the memory at an address, or nothing: PyTorch's `mallocWithAddress`, for programs such as graphs,
    /// whose next buffer must lie where a dropped one did. Takes nothing from the driver. Waits on the host for work
    /// that may still use the memory on other streams, unless the stream is captured.
    ///
    /// Returns `None` if not all of it is free, in one segment or one home of this stream and pool. Under `paged` large
    /// buffers may lie in windows, whose addresses cannot be allocated this way. `policy:classic` has no windows.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] from 2^60 bytes; [`Error::Paused`] in a paused group; [`Error::Driver`] and
    /// [`Error::NotReached`] of waits, and of the fill that scrubs the memory: nothing is handed out then.
    #[track_caller]
    pub fn allocate_at(&self, bytes: u64, address: u64) -> Result<Option<Buffer<B>>, Error<B::Error>> {
        let state = self.handle().state.as_ref();
        if bytes == 0 {
            return Ok(Some(Buffer::empty(self.lane().clone(), self.id(), &self.handle().state)));
        }
        let want = state.sizes.want(bytes).ok_or(Error::TooLarge { requested: bytes })?;
        let lane: &crate::state::Lane<B> = self.lane();
        let asked = Asked { stream: self.id(), site: Location::caller() };
        state.expect_running_at(lane.shard)?;
        state.note_tick(asked.stream);
        state.retire_ready()?;
        for _ in 0..WAITS_MOST {
            let attempt = {
                let mut coordinator = state.coordinator.lock();
                lane.lock().hold(&self.handle().state);
                let attempt = coordinator.allocate_at(lane.shard, self.id(), &want, address, &mut LockedShards(state));
                state.publish(&coordinator);
                attempt
            };
            let grant = match attempt {
                Ok(grant) => grant,
                Err(Obstacle::InUse(points)) => {
                    wait_for(state, &points)?;
                    continue;
                }
                Err(_) => return Ok(None),
            };
            {
                let mut held = lane.lock();
                lane.count_out(grant.size);
                held.granted(&asked, bytes, &grant);
            }
            if state.sinks.is_told() {
                state.tell_grant(lane, self.id(), bytes, &grant);
            }
            let mut buffer = Buffer::new(LaneRef::new(lane), self.id(), &want, &grant);
            if state.scrub != Scrub::Off {
                state.scrub(&mut buffer)?;
            }
            return Ok(Some(buffer));
        }
        Ok(None)
    }
}
