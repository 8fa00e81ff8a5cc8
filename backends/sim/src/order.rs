//! The order of the work of one stream with other work of the same stream.

use millpond_backend::StreamId;

use crate::Sim;
use crate::hazard::User;
use crate::lane::{Op, Task};
use crate::schedule::State;
use crate::space::Piece;

/// When later work of a stream comes after earlier work of the same stream that touches the same bytes. Where it does
/// not, the two race as work of two streams would. Only unfinished work is considered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamOrder {
    /// Later work always comes after earlier work, as on CUDA.
    #[default]
    Always,
    /// Later work comes after earlier work of the same submission if both touch the bytes through the same segment or
    /// range: barriers are placed automatically for each of those, as in a command encoder of wgpu. Work of a later
    /// submission always comes after work of an earlier one. For devices whose application submits
    /// ([`Closing::Submit`](millpond_backend::Closing::Submit)).
    Tracked,
    /// Later work comes after earlier work if a barrier is placed between them, as in Vulkan. [`Sim::place_barrier`]
    /// places one over all memory. Fills, copies, uploads and downloads place one of their own, for the segment or
    /// range that they touch and no other; kernels place none.
    Barriers,
}

impl StreamOrder {
    /// Returns whether a new task of a lane comes after an unfinished one of the same lane that touches the same bytes.
    pub(crate) fn holds(self, state: &State, stream: StreamId, task: &Task, piece: &Piece, earlier: &User) -> bool {
        let same_segment = earlier.segment == piece.segment;
        match self {
            StreamOrder::Always => true,
            StreamOrder::Tracked => same_segment || earlier.point.tick.0 < task.tick,
            StreamOrder::Barriers => {
                let behind = state.barriers.get(&stream).is_some_and(|&barrier| earlier.task <= barrier);
                behind || (same_segment && task.op.is_transfer())
            }
        }
    }
}

impl Op {
    fn is_transfer(&self) -> bool {
        match self {
            Op::Fill(_) | Op::Copy | Op::Upload(_) | Op::Download(_) => true,
            Op::Kernel | Op::Busy | Op::Wait(_) => false,
        }
    }
}

impl Sim {
    /// Places a barrier over all memory on a stream: work that is queued there from now on comes after all work that
    /// was queued there before. Has an effect only under [`StreamOrder::Barriers`]. Costs nothing.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn place_barrier(&self, stream: StreamId) {
        self.device.lane(stream);
        let mut state = self.device.state();
        let newest = state.newest_task();
        state.barriers.insert(stream, newest);
    }
}
