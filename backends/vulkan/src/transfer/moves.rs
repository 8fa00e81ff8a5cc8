//! Fills and copies. Any offset and any length is allowed.

use ash::vk;
use millpond_backend::{Point, StreamId};
use millpond_kit::Misuse;

use super::record::Transfers;
use super::staging::{PIECE_BYTES, Piece};
use crate::error::VulkanError;
use crate::memory::Segment;
use crate::time::Submission;

/// The alignment in bytes of the offsets and lengths that `vkCmdFillBuffer` takes.
const FILL_ALIGNMENT: u64 = 4;
/// A limit on the bytes that the fill command cannot reach: both ends together have fewer.
const EDGE_BYTES: usize = 8;

impl Transfers {
    /// Implements `fill`.
    pub(crate) fn fill(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), VulkanError> {
        segment.of(self.driver.id, "fill")?;
        segment.check(offset, bytes)?;
        self.driver.enter("vkCmdFillBuffer")?;
        let lane = self.streams.lane(stream);
        if bytes == 0 {
            return Ok(());
        }
        let parts = Parts::of(offset, bytes);
        if !parts.has_edges() {
            let fill = |commands| self.fill_commands(commands, None, segment.buffer, &parts, value);
            return self.record_write(lane, &mut lane.state.lock(), segment.is_mapped(), fill);
        }
        self.with_piece(lane, EDGE_BYTES as u64, false, |state, piece| {
            // SAFETY: the piece is mapped and that long, and no earlier command of the device reads it any more.
            unsafe { piece.pointer.0.as_ptr().write_bytes(value, EDGE_BYTES) };
            let fill = |commands| self.fill_commands(commands, Some(piece), segment.buffer, &parts, value);
            self.record_write(lane, state, segment.is_mapped(), fill)
        })
    }

    /// Implements `copy`.
    pub(crate) fn copy(
        &self,
        stream: StreamId,
        from: (&Segment, u64),
        to: (&Segment, u64),
        bytes: u64,
    ) -> Result<(), VulkanError> {
        for (segment, offset) in [from, to] {
            segment.of(self.driver.id, "copy")?;
            segment.check(offset, bytes)?;
        }
        if from.0.id == to.0.id && from.1 < to.1 + bytes && to.1 < from.1 + bytes {
            return Err(Misuse::OverlapWithin { from: from.1, to: to.1, bytes }.into());
        }
        self.driver.enter("vkCmdCopyBuffer")?;
        let lane = self.streams.lane(stream);
        if bytes == 0 {
            return Ok(());
        }
        let to_host = to.0.is_mapped();
        let (from, to) = ((from.0.buffer, from.1), (to.0.buffer, to.1));
        let copy = |commands| self.copy_region(commands, from, to, bytes);
        self.record_write(lane, &mut lane.state.lock(), to_host, copy)
    }

    /// Implements `upload`.
    pub(crate) fn upload(
        &self,
        stream: StreamId,
        from: &[u8],
        segment: &Segment,
        offset: u64,
    ) -> Result<(), VulkanError> {
        segment.of(self.driver.id, "upload")?;
        segment.check(offset, from.len() as u64)?;
        self.driver.enter("vkCmdCopyBuffer")?;
        let lane = self.streams.lane(stream);
        for (part, at) in from.chunks(PIECE_BYTES as usize).zip((offset..).step_by(PIECE_BYTES as usize)) {
            let bytes = part.len() as u64;
            self.with_piece(lane, bytes, false, |state, piece| {
                // SAFETY: the piece is mapped and that long, and no earlier command of the device reads it any more.
                unsafe { piece.pointer.0.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                self.record_write(lane, state, segment.is_mapped(), |commands| {
                    self.copy_region(commands, (piece.buffer, piece.offset), (segment.buffer, at), bytes);
                })
            })?;
        }
        Ok(())
    }

    /// Implements `download`.
    pub(crate) fn download(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), VulkanError> {
        segment.of(self.driver.id, "download")?;
        segment.check(offset, to.len() as u64)?;
        self.driver.enter("vkCmdCopyBuffer")?;
        self.streams.lane(stream);
        for (part, at) in to.chunks_mut(PIECE_BYTES as usize).zip((offset..).step_by(PIECE_BYTES as usize)) {
            self.download_piece(stream, segment, at, part)?;
        }
        Ok(())
    }

    /// Copies one piece of the device's bytes to the ring and from there to the host. Blocks.
    fn download_piece(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), VulkanError> {
        let lane = self.streams.lane(stream);
        let mut pinned = None;
        let bytes = to.len() as u64;
        let submitted = self.with_piece(lane, bytes, true, |state, piece| {
            pinned = Some(piece.number);
            self.record_write(lane, state, true, |commands| {
                self.copy_region(commands, (segment.buffer, offset), (piece.buffer, piece.offset), bytes);
            })?;
            self.time.submit(lane, state, &Submission::default()).map(|tick| (piece, tick))
        });
        let arrived = submitted.and_then(|(piece, tick)| {
            self.arrived(Point { stream, tick })?;
            // SAFETY: the piece is mapped, that long, and pinned; the device has finished writing it, and the
            // barrier at the end of its command buffer has made that visible to the host.
            unsafe { piece.pointer.0.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
            Ok(())
        });
        if let (Some(number), Some(ring)) = (pinned, &mut lane.state.lock().ring) {
            ring.unpin(number);
        }
        arrived
    }

    /// Waits for a submitted point.
    fn arrived(&self, point: Point) -> Result<(), VulkanError> {
        let reached = self.time.wait(point)?;
        assert!(reached >= point.tick, "{point} was submitted and waited for, and {reached} is reached");
        Ok(())
    }

    fn copy_region(&self, commands: vk::CommandBuffer, from: (vk::Buffer, u64), to: (vk::Buffer, u64), bytes: u64) {
        let region = vk::BufferCopy::default().src_offset(from.1).dst_offset(to.1).size(bytes);
        // SAFETY: the command buffer is recording, under its lane's lock; the callers have checked both ranges.
        unsafe { self.driver.raw.cmd_copy_buffer(commands, from.0, to.0, &[region]) };
    }

    /// Records a fill. The ends that the fill command cannot reach are copied from `edge`.
    fn fill_commands(
        &self,
        commands: vk::CommandBuffer,
        edge: Option<Piece>,
        buffer: vk::Buffer,
        parts: &Parts,
        value: u8,
    ) {
        if let Some((offset, bytes)) = parts.middle {
            let word = u32::from_ne_bytes([value; 4]);
            // SAFETY: the command buffer is recording, under its lane's lock; the range is checked and aligned.
            unsafe { self.driver.raw.cmd_fill_buffer(commands, buffer, offset, bytes, word) };
        }
        let Some(edge) = edge else { return };
        for &(offset, bytes) in parts.edges.iter().flatten() {
            self.copy_region(commands, (edge.buffer, edge.offset), (buffer, offset), bytes);
        }
    }
}

/// A range, cut at multiples of the fill's alignment. Each part is an offset and a length, in bytes.
#[derive(PartialEq, Eq, Debug)]
struct Parts {
    middle: Option<(u64, u64)>,
    edges: [Option<(u64, u64)>; 2],
}

impl Parts {
    fn of(offset: u64, bytes: u64) -> Parts {
        let end = offset + bytes;
        let (first, last) = (offset.next_multiple_of(FILL_ALIGNMENT), end / FILL_ALIGNMENT * FILL_ALIGNMENT);
        if first >= last {
            return Parts { middle: None, edges: [Some((offset, bytes)), None] };
        }
        let part = |from: u64, to: u64| (from < to).then_some((from, to - from));
        Parts { middle: part(first, last), edges: [part(offset, first), part(last, end)] }
    }

    fn has_edges(&self) -> bool {
        self.edges != [None, None]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_exactly_one_part() {
        for offset in 0..9 {
            for bytes in 1..20 {
                let parts = Parts::of(offset, bytes);
                let mut covered: Vec<u64> = Vec::new();
                for (from, length) in parts.edges.iter().flatten().chain(&parts.middle) {
                    covered.extend(*from..from + length);
                }
                covered.sort_unstable();
                assert_eq!(covered, (offset..offset + bytes).collect::<Vec<_>>(), "{parts:?}");
                assert!(parts.middle.is_none_or(|(from, length)| from % 4 == 0 && length % 4 == 0), "{parts:?}");
                assert!(parts.edges.iter().flatten().all(|&(_, length)| length < EDGE_BYTES as u64), "{parts:?}");
            }
        }
    }
}
