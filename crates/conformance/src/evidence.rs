//! Evidence of what device work found in memory, collected on the device so that nothing has to wait for it.
//!
//! A check that reads a block back on the host would finish the very work that it is to catch in flight. So a piece of
//! the block is copied, on the stream, into a buffer kept for the purpose, and all pieces are read at the end.

use millpond::Stream;
use millpond_backend::{Backend, StreamId};

use crate::device::DeviceUnderTest;
use crate::session::{Session, Stop};
use crate::watched::{Tenancy, Trouble};

/// Bytes of one piece of evidence: enough to see damage, and a multiple of what devices copy.
const SAMPLE_BYTES: u64 = 16;
/// Pieces for each stream.
const SAMPLES: u64 = 1024;
/// Bytes of the buffer that is kept on a stream.
pub(crate) const BYTES: u64 = SAMPLE_BYTES * SAMPLES;

/// What one piece must show.
struct Sample {
    /// Where in the evidence of its stream.
    at: u64,
    expected: u8,
    /// Where the block lay, for the message.
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
    /// Keeps a buffer on each of these streams of the session.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
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
    /// Earlier evidence, when there was no room for more, shows damage.
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

    /// Reads all evidence, gives the buffers back, and answers how many pieces there were.
    ///
    /// # Errors
    ///
    /// The first piece that shows something else than what was written.
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
        // A fault planned for the allocator may strike here, once.
        read().or_else(|_| read()).map_err(|error| format!("download of evidence on {stream}: {error}"))?;
        for sample in &samples {
            let found = &bytes[sample.at as usize..(sample.at + SAMPLE_BYTES) as usize];
            if let Some(&wrong) = found.iter().find(|&&byte| byte != sample.expected) {
                return Err(Stop::Fail(format!(
                    "work on {stream} found {wrong:#04x} at {}, and {:#04x} was written there",
                    sample.source, sample.expected
                )));
            }
        }
        Ok(())
    }
}
