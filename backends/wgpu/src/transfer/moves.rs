//! Fills and copies, recorded in the stream's encoder and so run in its order.

use std::sync::Arc;

use millpond_backend::StreamId;
use millpond_kit::Misuse;
use parking_lot::Mutex;
use wgpu::BufferUsages;

use super::pattern::Patterns;
use crate::error::WgpuError;
use crate::memory::{Account, Segment, aligned};
use crate::open::Driver;
use crate::probe::WORD;
use crate::streams::{Lane, Streams};
use crate::time::Time;

/// The size in bytes of the buffer that copies within one segment pass through, piece by piece.
const SCRATCH_BYTES: u64 = 4 << 20;

/// The transfers of a device, with the buffers that those of all streams share.
pub(crate) struct Transfers {
    scratch: Mutex<Option<wgpu::Buffer>>,
    patterns: Patterns,
    /// The most bytes of staging buffers that one stream may have in recorded and submitted work.
    pub(super) staging_bytes: u64,
    pub(super) streams: Arc<Streams>,
    pub(super) time: Arc<Time>,
    account: Arc<Account>,
    pub(super) driver: Arc<Driver>,
}

impl Transfers {
    /// Creates the transfers of a device.
    pub(crate) fn new(
        driver: Arc<Driver>,
        streams: Arc<Streams>,
        time: Arc<Time>,
        account: Arc<Account>,
        staging_bytes: u64,
    ) -> Transfers {
        let (scratch, patterns) = (Mutex::default(), Patterns::default());
        Transfers { scratch, patterns, staging_bytes, streams, time, account, driver }
    }

    /// Checks that the segment belongs to this device and that the range is inside. Called before each transfer.
    pub(super) fn start(
        &self,
        call: &'static str,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<(), WgpuError> {
        segment.of(&self.account, call)?;
        Ok(segment.inside(call, offset, bytes)?)
    }

    /// Does the same for transfers that write, whose offsets and lengths are whole words.
    pub(super) fn start_words(
        &self,
        call: &'static str,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<(), WgpuError> {
        self.start(call, segment, offset, bytes)?;
        aligned(call, "offset", offset, WORD)?;
        Ok(aligned(call, "size", bytes, WORD)?)
    }

    /// Records a fill.
    pub(crate) fn fill(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), WgpuError> {
        self.driver.enter("fill")?;
        self.start_words("fill", segment, offset, bytes)?;
        let lane = self.streams.lane(stream);
        if bytes == 0 {
            return Ok(());
        }
        if value == 0 {
            let mut work = lane.work.lock();
            self.streams.encoder(&mut work)?.clear_buffer(segment.buffer(), offset, Some(bytes));
            return Ok(());
        }
        self.fill_pattern(lane, segment.buffer(), offset, bytes, value)
    }

    /// Records the copies that fill a range of whole words.
    fn fill_pattern(
        &self,
        lane: &Lane,
        target: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), WgpuError> {
        let pattern = self.patterns.of(&self.driver, value, bytes)?;
        let mut work = lane.work.lock();
        let encoder = self.streams.encoder(&mut work)?;
        let mut done = 0;
        while done < bytes {
            let piece = pattern.bytes.min(bytes - done);
            encoder.copy_buffer_to_buffer(&pattern.buffer, 0, target, offset + done, piece);
            done += piece;
        }
        Ok(())
    }

    /// Records a copy.
    pub(crate) fn copy(
        &self,
        stream: StreamId,
        from: (&Segment, u64),
        to: (&Segment, u64),
        bytes: u64,
    ) -> Result<(), WgpuError> {
        self.driver.enter("copy")?;
        self.start_words("copy", from.0, from.1, bytes)?;
        self.start_words("copy", to.0, to.1, bytes)?;
        let lane = self.streams.lane(stream);
        if bytes == 0 {
            return Ok(());
        }
        if std::ptr::eq(from.0, to.0) {
            return self.copy_within(lane, from.0, from.1, to.1, bytes);
        }
        let mut work = lane.work.lock();
        let encoder = self.streams.encoder(&mut work)?;
        encoder.copy_buffer_to_buffer(from.0.buffer(), from.1, to.0.buffer(), to.1, bytes);
        Ok(())
    }

    fn scratch(&self) -> Result<wgpu::Buffer, WgpuError> {
        let mut scratch = self.scratch.lock();
        if let Some(buffer) = &*scratch {
            return Ok(buffer.clone());
        }
        let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let buffer = self.driver.create_buffer("copy", SCRATCH_BYTES, usage, false)?;
        Ok(scratch.insert(buffer).clone())
    }

    /// Copies within one buffer, which wgpu refuses to do in one command, through a scratch buffer. All streams share
    /// it: an encoder takes out what it put in before it ends, and encoders run one after the other.
    fn copy_within(&self, lane: &Lane, segment: &Segment, from: u64, to: u64, bytes: u64) -> Result<(), WgpuError> {
        if from.abs_diff(to) < bytes {
            return Err(Misuse::OverlapWithin { from, to, bytes }.into());
        }
        let scratch = self.scratch()?;
        let buffer = segment.buffer();
        let mut work = lane.work.lock();
        let encoder = self.streams.encoder(&mut work)?;
        let mut done = 0;
        while done < bytes {
            let piece = SCRATCH_BYTES.min(bytes - done);
            encoder.copy_buffer_to_buffer(buffer, from + done, &scratch, 0, piece);
            encoder.copy_buffer_to_buffer(&scratch, 0, buffer, to + done, piece);
            done += piece;
        }
        Ok(())
    }
}
