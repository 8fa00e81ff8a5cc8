//! Fills and copies. Any offset and any length is allowed.

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use millpond_backend::{Point, StreamId};
use millpond_kit::{Misuse, Remedy};

use super::Transfers;
use super::staging::PIECE_BYTES;
use crate::error::{Code, CudaError, End};
use crate::gear::Gear;
use crate::memory::segment::Segment;
use crate::memory::{PINNED, size};
use crate::streams::lane::Lane;
use crate::streams::stay::Stay;

/// The driver call that fills.
const FILL: &str = "cuMemsetD8Async";

impl<G: Gear> Transfers<G> {
    /// Returns whether the segment belongs to this device's context.
    fn owns(&self, segment: &Segment) -> bool {
        segment.context.cu_ctx() == self.context.cu_ctx()
    }

    /// Returns an end of a copy on this device.
    fn end(&self, address: CUdeviceptr) -> End {
        End::Device { ordinal: self.ordinal, address }
    }

    /// Returns the error for a segment of another device.
    fn foreign(&self, call: &'static str, segment: &Segment) -> Misuse {
        let (own, other) = (self.ordinal as u64, segment.ordinal as u64);
        Misuse::Foreign { call, own, other, remedy: Remedy::AskOwner }
    }

    /// Checks that a segment belongs to this device, and returns the address of its bytes.
    fn own_place(
        &self,
        call: &'static str,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<CUdeviceptr, CudaError> {
        if !self.owns(segment) {
            return Err(self.foreign(call, segment).into());
        }
        Ok(segment.place("segment", offset, bytes)?)
    }

    /// Checks the result of a call that copies.
    fn check_copy(&self, call: &'static str, code: u32, from: End, to: End, bytes: u64) -> Result<(), CudaError> {
        match Code(code) {
            code if code == Code::SUCCESS || code.is_fatal() => self.check(call, code.0),
            code => Err(CudaError::Copy { call, from, to, bytes, code }),
        }
    }

    /// Works like [`check_copy`](Transfers::check_copy), for a copy between devices: a code that loses a context
    /// may concern the other device. A call to this device shows whether its own context is intact.
    fn check_peer_copy(&self, call: &'static str, code: u32, from: End, to: End, bytes: u64) -> Result<(), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to local numbers; the caller has made the context current.
        let mut is_well = || unsafe { (self.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) } == 0;
        match Code(code) {
            code if code.is_fatal() && is_well() => Err(CudaError::Copy { call, from, to, bytes, code }),
            code => self.check_copy(call, code.0, from, to, bytes),
        }
    }

    /// Returns the handle of a stream that work can be queued on now, and the guard that keeps the stream in the
    /// meantime.
    fn start(&self, call: &'static str, stream: StreamId) -> Result<(Stay<'_>, CUstream), CudaError> {
        self.enter(call)?;
        let stay = self.lane(stream).stay();
        let handle = self.usable(call, stream, &stay)?;
        Ok((stay, handle))
    }

    /// Works like [`start`](Transfers::start), on a stream that is not being captured: for work that must run
    /// once and outside a graph. A graph would read other bytes of the staging ring at each launch.
    /// [`with_piece`](Transfers::with_piece) checks again for each piece.
    fn start_now(&self, call: &'static str, stream: StreamId) -> Result<(Stay<'_>, CUstream), CudaError> {
        let (stay, handle) = self.start(call, stream)?;
        let _bound = self.bind_relaxed()?;
        self.uncaptured(call, stream, handle)?;
        Ok((stay, handle))
    }

    /// Queues a fill of bytes of a segment, on a stream that the caller's stay keeps.
    fn queue_fill(&self, stream: CUstream, address: CUdeviceptr, bytes: u64, value: u8) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        let _bound = self.bind()?;
        // SAFETY: the segment has these bytes and they are mapped; the stream is alive.
        let code = unsafe { (self.driver.cuMemsetD8Async)(address, value, size(bytes)?, stream) };
        self.check(FILL, code)
    }

    /// Copies one piece of the device's bytes to the ring and from there to the host. Blocks.
    fn download_piece(
        &self,
        stream: StreamId,
        lane: &Lane,
        address: CUdeviceptr,
        to: &mut [u8],
    ) -> Result<(), CudaError> {
        const CALL: &str = "cuMemcpyDtoHAsync";
        let bytes = to.len();
        let (piece, tick) = self.with_piece(CALL, stream, lane, bytes, true, |piece, handle| {
            let _bound = self.bind()?;
            let pointer = piece.pointer.as_ptr().cast();
            // SAFETY: the piece is page-locked and that long, and kept until it is read; the segment's bytes were
            // checked.
            let code = unsafe { (self.driver.cuMemcpyDtoHAsync_v2)(pointer, address, bytes, handle) };
            let (from, to) = (self.end(address), End::Host { address: to.as_ptr() as u64 });
            self.check_copy(CALL, code, from, to, bytes as u64)
        })?;
        let point = Point { stream, tick };
        let arrived = self.wait(point).and_then(|reached| match reached >= tick {
            true => Ok(()),
            // Another thread has begun to capture the stream behind the copy.
            false => Err(CudaError::Capturing { call: "download", stream }),
        });
        if arrived.is_ok() {
            // SAFETY: the piece is that long and pinned, and the device has finished writing it.
            unsafe { piece.pointer.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), bytes) };
        }
        if let Some(ring) = &mut lane.state.lock().ring {
            ring.unpin(piece.number);
        }
        lane.unpinned.notify_all();
        arrived
    }
    /// Implements `fill`.
    pub(crate) fn fill(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), CudaError> {
        let address = self.own_place(FILL, segment, offset, bytes)?;
        let (stay, handle) = self.start(FILL, stream)?;
        self.queue_fill(handle, address, bytes, value)?;
        self.leave_event(&stay, handle)
    }

    /// Implements `overwrite`.
    pub(crate) fn overwrite(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<(), CudaError> {
        let address = self.own_place(FILL, segment, offset, bytes)?;
        let (stay, handle) = self.start_now(FILL, stream)?;
        self.queue_fill(handle, address, bytes, 0)?;
        self.leave_event(&stay, handle)
    }

    /// Implements `copy`.
    pub(crate) fn copy(
        &self,
        stream: StreamId,
        from: (&Segment, u64),
        to: (&Segment, u64),
        bytes: u64,
    ) -> Result<(), CudaError> {
        const CALL: &str = "cuMemcpyAsync";
        let (source, target) = (from.0.place("source", from.1, bytes)?, to.0.place("target", to.1, bytes)?);
        let (from, to) = (from.0, to.0);
        if !self.owns(from) && !self.owns(to) {
            return Err(self.foreign(CALL, from).into());
        }
        // Every device can access page-locked memory. The copy between devices is for memory of devices.
        let near = |segment: &Segment| self.owns(segment) || segment.class == PINNED;
        if let Some((other, _)) =
            [(from, to), (to, from)].into_iter().find(|(far, own)| !near(far) && own.class == PINNED)
        {
            return Err(self.foreign(CALL, other).into());
        }
        // All devices and the host share one space of addresses.
        if source < target + bytes && target < source + bytes {
            return Err(Misuse::Overlap { from: source, to: target, bytes }.into());
        }
        let (_stay, handle) = self.start(CALL, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let _bound = self.bind()?;
        let length = size(bytes)?;
        let from_end = End::Device { ordinal: from.ordinal, address: source };
        let to_end = End::Device { ordinal: to.ordinal, address: target };
        if near(from) && near(to) {
            // SAFETY: both segments have these bytes, mapped, and share none; the stream is alive, and stays so.
            let code = unsafe { (self.driver.cuMemcpyAsync)(target, source, length, handle) };
            return self.check_copy(CALL, code, from_end, to_end, bytes);
        }
        let (target_context, source_context) = (to.context.cu_ctx(), from.context.cu_ctx());
        let peer = self.driver.cuMemcpyPeerAsync;
        // SAFETY: as above; each segment holds the context that it belongs to.
        let code = unsafe { peer(target, target_context, source, source_context, length, handle) };
        self.check_peer_copy("cuMemcpyPeerAsync", code, from_end, to_end, bytes)
    }

    /// Implements `upload`.
    pub(crate) fn upload(
        &self,
        stream: StreamId,
        from: &[u8],
        segment: &Segment,
        offset: u64,
    ) -> Result<(), CudaError> {
        const CALL: &str = "cuMemcpyHtoDAsync";
        let address = self.own_place(CALL, segment, offset, from.len() as u64)?;
        // Each piece takes a stay of its own, because no stay may be held while the host waits for a piece.
        drop(self.start_now(CALL, stream)?);
        let lane = self.lane(stream);
        for (part, at) in from.chunks(PIECE_BYTES).zip((address..).step_by(PIECE_BYTES)) {
            self.with_piece(CALL, stream, lane, part.len(), false, |piece, handle| {
                let _bound = self.bind()?;
                // SAFETY: the piece is that long, and no earlier work of the device touches it any more.
                unsafe { piece.pointer.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                let pointer = piece.pointer.as_ptr().cast_const().cast();
                // SAFETY: the piece stays as it is until the tick that covers this copy; the segment's bytes were
                // checked.
                let code = unsafe { (self.driver.cuMemcpyHtoDAsync_v2)(at, pointer, part.len(), handle) };
                let (from, to) = (End::Host { address: part.as_ptr() as u64 }, self.end(at));
                self.check_copy(CALL, code, from, to, part.len() as u64)
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
    ) -> Result<(), CudaError> {
        const CALL: &str = "cuMemcpyDtoHAsync";
        let address = self.own_place(CALL, segment, offset, to.len() as u64)?;
        // Each piece takes a stay of its own, because no stay may be held while the host waits for a piece.
        drop(self.start_now(CALL, stream)?);
        let lane = self.lane(stream);
        for (part, at) in to.chunks_mut(PIECE_BYTES).zip((address..).step_by(PIECE_BYTES)) {
            self.download_piece(stream, lane, at, part)?;
        }
        Ok(())
    }
}
