//! The order of the work of one stream with other work of the same stream.

use millpond_backend::StreamId;

use super::state::State;
use crate::open::StreamOrder;
use crate::space::Piece;
use crate::space::users::User;
use crate::streams::lane::Task;

/// Returns whether a new task of a lane comes after an unfinished one of the same lane that touches the same bytes.
pub(super) fn comes_before(
    order: StreamOrder,
    state: &State,
    stream: StreamId,
    task: &Task,
    piece: &Piece,
    earlier: &User,
) -> bool {
    let same_segment = earlier.segment == piece.segment;
    match order {
        StreamOrder::Always => true,
        StreamOrder::Tracked => same_segment || earlier.point.tick < task.tick,
        StreamOrder::Barriers => {
            let behind = state.barriers.get(&stream).is_some_and(|&barrier| earlier.task <= barrier);
            behind || (same_segment && task.op.is_transfer())
        }
    }
}
