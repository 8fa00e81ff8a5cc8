//! Bytes on their way to the host: buffers that the device copies to and the host maps.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use millpond_backend::{Readback, StreamId, Tick};
use wgpu::BufferUsages;

use super::moves::Transfers;
use crate::error::WgpuError;
use crate::memory::Segment;
use crate::open::Driver;
use crate::probe::WORD;
use crate::streams::{Flight, Lane};

/// The largest buffer that bytes arrive in.
pub(super) const PIECE_BYTES: u64 = 64 << 20;
/// The time between two polls for a mapping whose callback runs in another thread's poll.
const MAPPING_PATIENCE: Duration = Duration::from_millis(1);

/// A buffer that bytes of a segment are copied to: the whole words around them.
struct Landing {
    buffer: wgpu::Buffer,
    /// The bytes before those that were asked for.
    skipped: u64,
    bytes: u64,
}

/// Bytes on their way, in the order of their pieces.
pub(crate) struct Arriving {
    pieces: Vec<(Landing, mpsc::Receiver<Result<(), wgpu::BufferAsyncError>>)>,
    call: &'static str,
    driver: Arc<Driver>,
}

impl Transfers {
    /// Records a copy of bytes to buffers for the host, and submits the stream. Any range is allowed.
    pub(super) fn depart(
        &self,
        call: &'static str,
        lane: &Lane,
        segment: &Segment,
        (offset, bytes): (u64, u64),
    ) -> Result<(Flight, Arriving), WgpuError> {
        let mut landings = Vec::new();
        let mut work = lane.work.lock();
        let mut at = offset;
        while at < offset + bytes {
            // The whole words around the range; the buffer behind a segment ends with a whole word.
            let skipped = at % WORD;
            let length = (offset + bytes - at).min(PIECE_BYTES - skipped);
            let words = (skipped + length).next_multiple_of(WORD);
            let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
            let buffer = self.driver.create_buffer(call, words, usage, false)?;
            let encoder = self.streams.encoder(&mut work)?;
            encoder.copy_buffer_to_buffer(segment.buffer(), at - skipped, &buffer, 0, words);
            landings.push(Landing { buffer, skipped, bytes: length });
            at += length;
        }
        let flight = self.time.submit(lane, &mut work, [])?;
        drop(work);
        let map = |landing: Landing| {
            let (tell, told) = mpsc::channel();
            landing.buffer.map_async(wgpu::MapMode::Read, .., move |answer| drop(tell.send(answer)));
            (landing, told)
        };
        let pieces = landings.into_iter().map(map).collect();
        Ok((flight, Arriving { pieces, call, driver: Arc::clone(&self.driver) }))
    }

    /// Begins a download, and returns the tick that covers it.
    pub(crate) fn begin_download(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<(Tick, Arriving), WgpuError> {
        const CALL: &str = "begin_download";
        self.driver.enter(CALL)?;
        self.start(CALL, segment, offset, bytes)?;
        let (flight, arriving) = self.depart(CALL, self.streams.lane(stream), segment, (offset, bytes))?;
        Ok((flight.tick, arriving))
    }
}

impl Arriving {
    /// Copies the bytes. The device has copied them: only callbacks may be missing.
    pub(super) fn take(self, to: &mut [u8]) -> Result<(), WgpuError> {
        let failed = |reason| WgpuError::Map { call: self.call, reason };
        let mut rest = to;
        for (Landing { buffer, skipped, bytes }, told) in self.pieces {
            // The callback has run in the poll that has found the tick reached, or will soon run in another thread's.
            let answer = loop {
                match told.recv_timeout(MAPPING_PATIENCE) {
                    Ok(answer) => break answer.map_err(|error| error.to_string()),
                    Err(mpsc::RecvTimeoutError::Timeout) => drop(self.driver.poll(wgpu::PollType::Poll)?),
                    Err(mpsc::RecvTimeoutError::Disconnected) => break Err("its callback was dropped".to_owned()),
                }
            };
            answer.map_err(failed)?;
            let view = buffer.get_mapped_range(..).map_err(|error| failed(error.to_string()))?;
            let (piece, later) = std::mem::take(&mut rest).split_at_mut(bytes as usize);
            piece.copy_from_slice(&view[skipped as usize..(skipped + bytes) as usize]);
            rest = later;
        }
        Ok(())
    }
}

impl Readback for Arriving {
    type Error = WgpuError;

    fn read(self: Box<Self>, to: &mut [u8]) -> Result<(), WgpuError> {
        self.take(to)
    }
}
