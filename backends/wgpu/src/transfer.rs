//! Fills, copies, uploads and downloads, all recorded in the stream's encoder and so run in its order.

use std::sync::mpsc;
use std::time::Duration;

use millpond_backend::{StreamId, Transfer};
use parking_lot::Mutex;
use wgpu::BufferUsages;

use crate::device::Shared;
use crate::lane::Lane;
use crate::pattern::Patterns;
use crate::segment::{WORD, aligned};
use crate::{Segment, Wgpu, WgpuError};

/// The size in bytes of the buffer that copies within one segment pass through, piece by piece.
const SCRATCH_BYTES: u64 = 4 << 20;
/// The largest staging buffer in bytes.
const STAGING_PIECE_BYTES: u64 = 8 << 20;
/// The largest buffer that a download is read from, in bytes.
const DOWNLOAD_PIECE_BYTES: u64 = 64 << 20;
/// The time between two polls for a mapping whose callback runs in another thread's poll.
const MAPPING_PATIENCE: Duration = Duration::from_millis(1);

/// The buffers that transfers of all streams share.
#[derive(Default)]
pub(crate) struct Movers {
    scratch: Mutex<Option<wgpu::Buffer>>,
    pub(crate) patterns: Mutex<Patterns>,
}

impl Shared {
    /// Checks that the segment belongs to this device and that the range is inside. Called before each transfer.
    fn start(&self, call: &'static str, segment: &Segment, offset: u64, bytes: u64) -> Result<(), WgpuError> {
        segment.of(&self.account, call)?;
        segment.inside(call, offset, bytes)
    }

    /// Does the same for transfers that write, whose offsets and lengths are whole words.
    fn start_words(&self, call: &'static str, segment: &Segment, offset: u64, bytes: u64) -> Result<(), WgpuError> {
        self.start(call, segment, offset, bytes)?;
        aligned(call, "offset", offset, WORD)?;
        aligned(call, "size", bytes, WORD)
    }

    fn scratch(&self) -> Result<wgpu::Buffer, WgpuError> {
        let mut scratch = self.movers.scratch.lock();
        if let Some(buffer) = &*scratch {
            return Ok(buffer.clone());
        }
        let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let buffer = self.create_buffer("copy", SCRATCH_BYTES, usage, false)?;
        Ok(scratch.insert(buffer).clone())
    }

    /// Copies within one buffer, which wgpu refuses to do in one command, through a scratch buffer. All streams share
    /// it: an encoder takes out what it put in before it ends, and encoders run one after the other.
    fn copy_within(&self, lane: &Lane, segment: &Segment, from: u64, to: u64, bytes: u64) -> Result<(), WgpuError> {
        if from.abs_diff(to) < bytes {
            return Err(WgpuError::Overlap { from, to, bytes });
        }
        let scratch = self.scratch()?;
        let buffer = segment.buffer();
        let mut work = lane.work.lock();
        let encoder = self.encoder(&mut work)?;
        let mut done = 0;
        while done < bytes {
            let piece = SCRATCH_BYTES.min(bytes - done);
            encoder.copy_buffer_to_buffer(buffer, from + done, &scratch, 0, piece);
            encoder.copy_buffer_to_buffer(&scratch, 0, buffer, to + done, piece);
            done += piece;
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
            let flight = self.submit(lane, &mut work, [])?;
            drop(work);
            self.finish(&lane.clock, &flight)?;
            work = lane.work.lock();
        }
        let staging = self.create_buffer(CALL, bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true)?;
        match staging.slice(..).get_mapped_range_mut() {
            Ok(mut view) => view.copy_from_slice(piece),
            Err(error) => return Err(WgpuError::Map { call: CALL, reason: error.to_string() }),
        }
        staging.unmap();
        self.encoder(&mut work)?.copy_buffer_to_buffer(&staging, 0, segment.buffer(), offset, bytes);
        work.staged_bytes += bytes;
        Ok(())
    }

    /// Reads one piece, whose offset and length are multiples of a word.
    fn fetch(&self, lane: &Lane, segment: &Segment, offset: u64, bytes: u64) -> Result<wgpu::BufferView, WgpuError> {
        const CALL: &str = "download";
        let readback = self.create_buffer(CALL, bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST, false)?;
        let mut work = lane.work.lock();
        self.encoder(&mut work)?.copy_buffer_to_buffer(segment.buffer(), offset, &readback, 0, bytes);
        let flight = self.submit(lane, &mut work, [])?;
        drop(work);
        let (tell, told) = mpsc::channel();
        readback.map_async(wgpu::MapMode::Read, .., move |answer| drop(tell.send(answer)));
        self.finish(&lane.clock, &flight)?;
        // The callback has run in the poll above, or will soon run in that of another thread.
        let answer = loop {
            match told.recv_timeout(MAPPING_PATIENCE) {
                Ok(answer) => break answer.map_err(|error| error.to_string()),
                Err(mpsc::RecvTimeoutError::Timeout) => drop(self.poll(wgpu::PollType::Poll)?),
                Err(mpsc::RecvTimeoutError::Disconnected) => break Err("its callback was dropped".to_owned()),
            }
        };
        let map = |reason| WgpuError::Map { call: CALL, reason };
        answer.map_err(map)?;
        readback.get_mapped_range(..).map_err(|error| map(error.to_string()))
    }
}

/// Transfers run in stream order, through the stream's own encoder. Targets of fills, copies and uploads are whole
/// words: offsets and lengths that are no multiples of 4 are refused with [`WgpuError::Misaligned`]. Downloads take any
/// range.
///
/// An upload does not go through `Queue::write_buffer`: that would write before everything that is submitted next, also
/// before work recorded earlier that still uses the block for its previous user.
impl Transfer for Wgpu {
    type Segment = Segment;
    type Error = WgpuError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), WgpuError> {
        let shared = &*self.shared;
        shared.enter("fill")?;
        shared.start_words("fill", segment, offset, bytes)?;
        let lane = shared.lane(stream);
        if bytes == 0 {
            return Ok(());
        }
        if value == 0 {
            let mut work = lane.work.lock();
            shared.encoder(&mut work)?.clear_buffer(segment.buffer(), offset, Some(bytes));
            return Ok(());
        }
        shared.fill_pattern(lane, segment.buffer(), offset, bytes, value)
    }

    /// Returns whether the segment belongs to this device: a buffer of another wgpu device cannot be used on this one.
    fn can_copy(&self, segment: &Segment) -> bool {
        segment.of(&self.shared.account, "copy").is_ok()
    }

    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), WgpuError> {
        let shared = &*self.shared;
        shared.enter("copy")?;
        shared.start_words("copy", from.0, from.1, bytes)?;
        shared.start_words("copy", to.0, to.1, bytes)?;
        let lane = shared.lane(stream);
        if bytes == 0 {
            return Ok(());
        }
        if std::ptr::eq(from.0, to.0) {
            return shared.copy_within(lane, from.0, from.1, to.1, bytes);
        }
        let mut work = lane.work.lock();
        let encoder = shared.encoder(&mut work)?;
        encoder.copy_buffer_to_buffer(from.0.buffer(), from.1, to.0.buffer(), to.1, bytes);
        Ok(())
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), WgpuError> {
        let shared = &*self.shared;
        shared.enter("upload")?;
        shared.start_words("upload", segment, offset, from.len() as u64)?;
        let lane = shared.lane(stream);
        let most = STAGING_PIECE_BYTES.min(shared.staging_bytes);
        let mut at = offset;
        for piece in from.chunks(usize::try_from(most).unwrap_or(usize::MAX)) {
            shared.stage(lane, piece, segment, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), WgpuError> {
        let shared = &*self.shared;
        shared.enter("download")?;
        shared.start("download", segment, offset, to.len() as u64)?;
        let lane = shared.lane(stream);
        let (mut at, mut rest) = (offset, to);
        while !rest.is_empty() {
            // The whole words around the range; the buffer behind a segment ends with a whole word.
            let first = at / WORD * WORD;
            let skipped = at - first;
            let length = (rest.len() as u64).min(DOWNLOAD_PIECE_BYTES - skipped);
            let view = shared.fetch(lane, segment, first, (skipped + length).next_multiple_of(WORD))?;
            let (piece, later) = std::mem::take(&mut rest).split_at_mut(length as usize);
            piece.copy_from_slice(&view[skipped as usize..(skipped + length) as usize]);
            (at, rest) = (at + length, later);
        }
        Ok(())
    }
}
