//! Evidence of what device work found in memory, collected on the device so that nothing has to wait for it.
//!
//! A check that reads a block back on the host would finish the very work that has to be in flight for the check. So a
//! piece of the block is copied, on the stream, into a buffer kept for the purpose, and all pieces are read at the end.

use millpond::Stream;
use millpond_backend::{Backend, StreamId};

use crate::device::DeviceUnderTest;
use crate::session::{Session, Stop, TWO_OWNERS};
use crate::watched::{Tenancy, Trouble};

/// The size of one piece of evidence, in bytes: enough to see damage, and a multiple of what devices copy.
const SAMPLE_BYTES: u64 = 16;
/// The number of pieces that the buffer of each stream holds.
const SAMPLES: u64 = 1024;
/// The size of the buffer that is kept on a stream, in bytes.
pub(crate) const BYTES: u64 = SAMPLE_BYTES * SAMPLES;

/// The expected value of one piece.
struct Sample {
    /// The offset in the evidence of its stream, in bytes.
    at: u64,
    expected: u8,
    /// A description of the block's place, for the message.
    source: String,
}

/// The evidence of one stream.
struct Record<B: Backend> {
    stream: usize,
    buffer: Tenancy<B>,
    samples: Vec<Sample>,
}

/// All evidence of one run, or of one of its threads.
pub(crate) struct Evidence<B: Backend> {
    records: Vec<Record<B>>,
}

impl<B: Backend> Evidence<B> {
    /// Allocates a buffer on each of these streams of the session.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub(crate) fn open<D: DeviceUnderTest<Backend = B>>(
        session: &Session<'_, D>,
        streams: impl IntoIterator<Item = usize>,
    ) -> Result<Self, Trouble<B::Error>> {
        let keep = |stream| {
            let buffer = session.watched.allocate(&session.streams[stream], BYTES)?;
            Ok(Record { stream, buffer, samples: Vec::new() })
        };
        let records: Result<_, Trouble<B::Error>> = streams.into_iter().map(keep).collect();
        Ok(Self { records: records? })
    }

    /// Queues copies of the block's beginning, middle and end on a stream. A copy that the driver refuses is left out.
    ///
    /// # Errors
    ///
    /// If the buffer was full and earlier evidence, which is read then, shows damage.
    ///
    /// # Panics
    ///
    /// If no evidence is kept on the stream.
    pub(crate) fn take<D: DeviceUnderTest<Backend = B>>(
        &mut self,
        session: &Session<'_, D>,
        stream: usize,
        tenancy: &Tenancy<B>,
        expected: u8,
    ) -> Result<(), Stop> {
        let Some(segment) = tenancy.segment() else { return Ok(()) };
        let mover = session.transfer()?;
        let Some(record) = self.records.iter_mut().find(|record| record.stream == stream) else {
            panic!("no evidence is kept on stream {stream} of the session")
        };
        let last = tenancy.capacity() - SAMPLE_BYTES;
        for part in [0, last / 2 / SAMPLE_BYTES * SAMPLE_BYTES, last] {
            if record.samples.len() as u64 == SAMPLES {
                record.judge(session)?;
            }
            let at = record.samples.len() as u64 * SAMPLE_BYTES;
            let Some(kept) = record.buffer.segment() else { continue };
            let from = (segment, tenancy.offset() + part);
            let to = (kept, record.buffer.offset() + at);
            if mover.copy(session.streams[stream].id(), from, to, SAMPLE_BYTES).is_ok() {
                let source = format!("byte {part} of {:?}", **tenancy);
                record.samples.push(Sample { at, expected, source });
            }
        }
        Ok(())
    }

    /// Reads all evidence, releases the buffers, and returns the number of pieces.
    ///
    /// # Errors
    ///
    /// If a piece shows another value than was written: the first such piece.
    pub(crate) fn close<D: DeviceUnderTest<Backend = B>>(self, session: &Session<'_, D>) -> Result<usize, Stop> {
        let mut pieces = 0;
        for mut record in self.records {
            pieces += record.samples.len();
            let verdict = record.judge(session);
            session.watched.free(record.buffer);
            verdict?;
        }
        Ok(pieces)
    }
}

impl<B: Backend> Record<B> {
    fn judge<D: DeviceUnderTest<Backend = B>>(&mut self, session: &Session<'_, D>) -> Result<(), Stop> {
        let samples = std::mem::take(&mut self.samples);
        let Some(last) = samples.last() else { return Ok(()) };
        let stream: StreamId = Stream::id(&session.streams[self.stream]);
        let mut bytes = vec![0; (last.at + SAMPLE_BYTES) as usize];
        let Some(segment) = self.buffer.segment() else { return Ok(()) };
        let mover = session.transfer()?;
        let mut read = || mover.download(stream, segment, self.buffer.offset(), &mut bytes);
        // A failure planned for the allocator may occur here, once.
        read().or_else(|_| read()).map_err(|error| format!("download of evidence on {stream}: {error}"))?;
        for sample in &samples {
            let found = &bytes[sample.at as usize..(sample.at + SAMPLE_BYTES) as usize];
            if let Some(&wrong) = found.iter().find(|&&byte| byte != sample.expected) {
                return Err(Stop::Fail(format!(
                    "work on {stream} found {wrong:#04x} at {}, and {:#04x} was written there. {TWO_OWNERS}",
                    sample.source, sample.expected
                )));
            }
        }
        Ok(())
    }
}
