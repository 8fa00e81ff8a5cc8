//! Uploads and downloads: bytes of the host, copied through staging buffers.

use std::sync::mpsc;
use std::time::Duration;

use millpond_backend::StreamId;
use wgpu::BufferUsages;

use super::moves::Transfers;
use crate::error::WgpuError;
use crate::memory::Segment;
use crate::probe::WORD;
use crate::streams::Lane;

/// The largest staging buffer in bytes.
const STAGING_PIECE_BYTES: u64 = 8 << 20;
/// The largest buffer that a download is read from, in bytes.
const DOWNLOAD_PIECE_BYTES: u64 = 64 << 20;
/// The time between two polls for a mapping whose callback runs in another thread's poll.
const MAPPING_PATIENCE: Duration = Duration::from_millis(1);

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
        self.start_words("upload", segment, offset, from.len() as u64)?;
        let lane = self.streams.lane(stream);
        let most = STAGING_PIECE_BYTES.min(self.staging_bytes);
        let mut at = offset;
        for piece in from.chunks(usize::try_from(most).unwrap_or(usize::MAX)) {
            self.stage(lane, piece, segment, at)?;
            at += piece.len() as u64;
        }
        Ok(())
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
        self.driver.enter("download")?;
        self.start("download", segment, offset, to.len() as u64)?;
        let lane = self.streams.lane(stream);
        let (mut at, mut rest) = (offset, to);
        while !rest.is_empty() {
            // The whole words around the range; the buffer behind a segment ends with a whole word.
            let first = at / WORD * WORD;
            let skipped = at - first;
            let length = (rest.len() as u64).min(DOWNLOAD_PIECE_BYTES - skipped);
            let view = self.fetch(lane, segment, first, (skipped + length).next_multiple_of(WORD))?;
            let (piece, later) = std::mem::take(&mut rest).split_at_mut(length as usize);
            piece.copy_from_slice(&view[skipped as usize..(skipped + length) as usize]);
            (at, rest) = (at + length, later);
        }
        Ok(())
    }

    /// Reads one piece, whose offset and length are multiples of a word.
    fn fetch(&self, lane: &Lane, segment: &Segment, offset: u64, bytes: u64) -> Result<wgpu::BufferView, WgpuError> {
        const CALL: &str = "download";
        let readback =
            self.driver.create_buffer(CALL, bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST, false)?;
        let mut work = lane.work.lock();
        self.streams.encoder(&mut work)?.copy_buffer_to_buffer(segment.buffer(), offset, &readback, 0, bytes);
        let flight = self.time.submit(lane, &mut work, [])?;
        drop(work);
        let (tell, told) = mpsc::channel();
        readback.map_async(wgpu::MapMode::Read, .., move |answer| drop(tell.send(answer)));
        self.time.finish(&lane.clock, &flight)?;
        // The callback has run in the poll above, or will soon run in that of another thread.
        let answer = loop {
            match told.recv_timeout(MAPPING_PATIENCE) {
                Ok(answer) => break answer.map_err(|error| error.to_string()),
                Err(mpsc::RecvTimeoutError::Timeout) => drop(self.driver.poll(wgpu::PollType::Poll)?),
                Err(mpsc::RecvTimeoutError::Disconnected) => break Err("its callback was dropped".to_owned()),
            }
        };
        let map = |reason| WgpuError::Map { call: CALL, reason };
        answer.map_err(map)?;
        readback.get_mapped_range(..).map_err(|error| map(error.to_string()))
    }
}
