//! Fills and copies, recorded in the stream's encoder and so run in its order.

use std::sync::Arc;

use millpond_backend::StreamId;
use millpond_kit::Misuse;
use parking_lot::Mutex;
use wgpu::BufferUsages;

use super::bytes::{Bytes, Parts};
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
    bytes: Bytes,
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
        let (scratch, patterns, bytes) = (Mutex::default(), Patterns::default(), Bytes::default());
        Transfers { scratch, patterns, bytes, staging_bytes, streams, time, account, driver }
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

    /// Aligns a transfer that writes. What is no whole words is written by a shader, which needs segments of
    /// the usage `STORAGE`.
    pub(super) fn start_write(
        &self,
        call: &'static str,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<(), WgpuError> {
        self.start(call, segment, offset, bytes)?;
        if segment.buffer().usage().contains(BufferUsages::STORAGE) {
            return Ok(());
        }
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
        self.start_write("fill", segment, offset, bytes)?;
        let lane = self.streams.lane(stream);
        let parts = Parts::of(offset, bytes);
        let (at, words) = parts.words;
        if words > 0 && value == 0 {
            let mut work = lane.work.lock();
            self.streams.encoder(&mut work)?.clear_buffer(segment.buffer(), at, Some(words));
        } else if words > 0 {
            self.fill_pattern(lane, segment.buffer(), at, words, value)?;
        }
        self.write_edges("fill", lane, segment, &parts, |(_, length)| {
            [value; WORD as usize][..length as usize].to_vec()
        })
    }

    /// Records that the ends of a range that are no whole words are written. `bytes_of` returns the bytes of an end.
    pub(super) fn write_edges(
        &self,
        call: &'static str,
        lane: &Lane,
        segment: &Segment,
        parts: &Parts,
        bytes_of: impl Fn((u64, u64)) -> Vec<u8>,
    ) -> Result<(), WgpuError> {
        for edge in parts.edges() {
            let source = self.bytes.source(&self.driver, call, &bytes_of(edge))?;
            let mut work = lane.work.lock();
            let encoder = self.streams.encoder(&mut work)?;
            self.bytes.write(&self.driver, call, encoder, (&source, 0), segment, edge)?;
        }
        Ok(())
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
        const CALL: &str = "copy";
        self.driver.enter(CALL)?;
        self.start(CALL, from.0, from.1, bytes)?;
        self.start_write(CALL, to.0, to.1, bytes)?;
        let lane = self.streams.lane(stream);
        if std::ptr::eq(from.0, to.0) && from.1.abs_diff(to.1) < bytes {
            return Err(Misuse::OverlapWithin { from: from.1, to: to.1, bytes }.into());
        }
        if from.1 % WORD != to.1 % WORD {
            return self.copy_bytes(lane, from, to.0, (to.1, bytes));
        }
        let parts = Parts::of(to.1, bytes);
        let place_of = |at: u64| (from.0, from.1 + (at - to.1));
        self.copy_words(lane, place_of(parts.words.0), (to.0, parts.words.0), parts.words.1)?;
        for edge in parts.edges() {
            self.copy_bytes(lane, place_of(edge.0), to.0, edge)?;
        }
        Ok(())
    }

    /// Records a copy of whole words from a multiple of a word to another.
    fn copy_words(&self, lane: &Lane, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), WgpuError> {
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

    /// Records a copy of any bytes to any place: the words around them go to the scratch buffer, and a shader takes the
    /// bytes from there.
    fn copy_bytes(
        &self,
        lane: &Lane,
        (from, start): (&Segment, u64),
        to: &Segment,
        (offset, bytes): (u64, u64),
    ) -> Result<(), WgpuError> {
        let scratch = self.scratch()?;
        let mut work = lane.work.lock();
        let encoder = self.streams.encoder(&mut work)?;
        let mut done = 0;
        while done < bytes {
            let skipped = (start + done) % WORD;
            let piece = (bytes - done).min(SCRATCH_BYTES - WORD);
            let words = (skipped + piece).next_multiple_of(WORD);
            encoder.copy_buffer_to_buffer(from.buffer(), start + done - skipped, &scratch, 0, words);
            self.bytes.write(&self.driver, "copy", encoder, (&scratch, skipped), to, (offset + done, piece))?;
            done += piece;
        }
        Ok(())
    }

    fn scratch(&self) -> Result<wgpu::Buffer, WgpuError> {
        let mut scratch = self.scratch.lock();
        if let Some(buffer) = &*scratch {
            return Ok(buffer.clone());
        }
        let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST | BufferUsages::STORAGE;
        let buffer = self.driver.create_buffer("copy", SCRATCH_BYTES, usage, false)?;
        Ok(scratch.insert(buffer).clone())
    }

    /// Copies within one buffer, which wgpu refuses to do in one command, through a scratch buffer. All streams share
    /// it: an encoder takes out what it put in before it ends, and encoders run one after the other.
    fn copy_within(&self, lane: &Lane, segment: &Segment, from: u64, to: u64, bytes: u64) -> Result<(), WgpuError> {
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
