//! What orders the work of one stream with itself.

use millpond_backend::StreamId;

use crate::Sim;
use crate::hazard::User;
use crate::lane::{Op, Task};
use crate::schedule::State;
use crate::space::Piece;

/// When later work of a stream comes after earlier work of the same stream that touches the same bytes. Where it does
/// not, the two race as work of two streams would. Only unfinished work is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamOrder {
    /// Always, as on CUDA.
    #[default]
    Always,
    /// Within one submission, if both touch the bytes through the same segment or range: barriers are placed for each
    /// of those by itself, as in a command encoder of wgpu. What is submitted later comes after what was submitted
    /// earlier. For devices whose application submits ([`Closing::Submit`](millpond_backend::Closing::Submit)).
    Tracked,
    /// Behind a barrier, as in Vulkan. [`Sim::place_barrier`] places one over all memory. Fills, copies, uploads and
    /// downloads place one of their own, for the segment or range that they touch and no other; kernels place none.
    Barriers,
}

impl StreamOrder {
    /// Whether a new task of a lane comes after an unfinished one of the same lane, whose bytes it touches.
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
    /// Places a barrier over all memory on a stream: what is queued there from now on comes after everything that was
    /// queued there before. Of use under [`StreamOrder::Barriers`]. Costs nothing.
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
