//! Uploads and downloads: bytes of the host, copied through staging buffers.

use millpond_backend::StreamId;
use wgpu::BufferUsages;

use super::bytes::Parts;
use super::moves::Transfers;
use super::readback::PIECE_BYTES;
use crate::error::WgpuError;
use crate::memory::Segment;
use crate::probe::WORD;
use crate::streams::Lane;

/// The largest staging buffer in bytes.
const STAGING_PIECE_BYTES: u64 = 8 << 20;

impl Transfers {
    /// Records an upload.
    pub(crate) fn upload(
        &self,
        stream: StreamId,
        from: &[u8],
        segment: &Segment,
        offset: u64,
    ) -> Result<(), WgpuError> {
        self.driver.enter("upload")?;
        self.start_write("upload", segment, offset, from.len() as u64)?;
        let lane = self.streams.lane(stream);
        let most = STAGING_PIECE_BYTES.min(self.staging_bytes);
        let parts = Parts::of(offset, from.len() as u64);
        let bytes_of = |(at, bytes): (u64, u64)| &from[(at - offset) as usize..][..bytes as usize];
        let mut at = parts.words.0;
        for piece in bytes_of(parts.words).chunks(usize::try_from(most).unwrap_or(usize::MAX)) {
            self.stage(lane, piece, segment, at)?;
            at += piece.len() as u64;
        }
        self.write_edges("upload", lane, segment, &parts, |edge| bytes_of(edge).to_vec())
    }

    /// Writes one piece of an upload into a staging buffer and records its copy. Before the stream's staging buffers
    /// exceed their limit, submits the stream and waits for it.
    fn stage(&self, lane: &Lane, piece: &[u8], segment: &Segment, offset: u64) -> Result<(), WgpuError> {
        const CALL: &str = "upload";
        let bytes = piece.len() as u64;
        let mut work = lane.work.lock();
        let staged = work.staged_bytes + lane.clock.staged_bytes();
        if staged > 0 && staged + bytes > self.staging_bytes {
            let flight = self.time.submit(lane, &mut work, [])?;
            drop(work);
            self.time.finish(&lane.clock, &flight)?;
            work = lane.work.lock();
        }
        let staging = self.driver.create_buffer(CALL, bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true)?;
        match staging.slice(..).get_mapped_range_mut() {
            Ok(mut view) => view.copy_from_slice(piece),
            Err(error) => return Err(WgpuError::Map { call: CALL, reason: error.to_string() }),
        }
        staging.unmap();
        self.streams.encoder(&mut work)?.copy_buffer_to_buffer(&staging, 0, segment.buffer(), offset, bytes);
        work.staged_bytes += bytes;
        Ok(())
    }

    /// Reads bytes of a segment. Blocks until they have arrived.
    pub(crate) fn download(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), WgpuError> {
        const CALL: &str = "download";
        self.driver.enter(CALL)?;
        self.start(CALL, segment, offset, to.len() as u64)?;
        let lane = self.streams.lane(stream);
        let mut at = offset;
        // One piece at a time, so that no more memory is mapped than that.
        for piece in to.chunks_mut((PIECE_BYTES - WORD) as usize) {
            let (flight, arriving) = self.depart(CALL, lane, segment, (at, piece.len() as u64))?;
            self.time.finish(&lane.clock, &flight)?;
            at += piece.len() as u64;
            arriving.take(piece)?;
        }
        Ok(())
    }
}
