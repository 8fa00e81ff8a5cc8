//! The contents that device work found in blocks, kept on the device until there is enough of it to justify a wait.
//!
//! To read a block on the host, a check would wait for the very work that has to be in progress. So the marks of a
//! block are copied, on its stream, into a segment kept for the purpose, and many are read and compared at once.

use millpond_backend::{Backend, ClassId, StreamId};

use crate::check::{CheckError, Mover, WrongByte};
use crate::own;

/// The bytes of evidence for each stream.
const EVIDENCE_BYTES: u64 = 64 << 10;

/// The marks of one piece of a block.
struct Sample {
    /// The offset to which they were copied.
    at: u64,
    bytes: u64,
    /// The place in the table from which they come.
    place: u64,
    /// The error to report if they are wrong. Its offset is that of the piece; the expected and found bytes are not set
    /// yet.
    about: WrongByte,
}

/// Evidence of what one stream found.
pub(crate) struct Evidence<B: Backend> {
    stream: StreamId,
    segment: B::Segment,
    samples: Vec<Sample>,
    /// The bytes taken so far.
    taken: u64,
}

impl<B: Backend> Evidence<B> {
    /// Reserves memory for it without the allocator, whose decisions it does not change.
    pub(crate) fn new(backend: &B, class: ClassId, stream: StreamId) -> Result<Self, CheckError<B::Error>> {
        let segment = backend.reserve(class, EVIDENCE_BYTES);
        let segment = segment.map_err(|source| CheckError::Driver { call: "reserve", source })?;
        Ok(Self { stream, segment, samples: Vec::new(), taken: 0 })
    }

    /// Queues a copy of a piece at `from`, whose marks come from this place of the table.
    pub(crate) fn take(
        &mut self,
        mover: &Mover<'_, B>,
        table: &[u8],
        (segment, from): (&B::Segment, u64),
        (bytes, place): (u64, u64),
        about: WrongByte,
    ) -> Result<(), CheckError<B::Error>> {
        if self.taken + bytes > EVIDENCE_BYTES {
            self.judge(mover, table)?;
        }
        let copied = mover.copy(self.stream, (segment, from), (&self.segment, self.taken), bytes);
        copied.map_err(|source| CheckError::Driver { call: "copy", source })?;
        self.samples.push(Sample { at: self.taken, bytes, place, about });
        self.taken += bytes;
        Ok(())
    }

    /// Reads the evidence, waiting for the stream, and compares it with what was written.
    ///
    /// # Errors
    ///
    /// Returns the first byte that differs, or the driver's error.
    pub(crate) fn judge(&mut self, mover: &Mover<'_, B>, table: &[u8]) -> Result<(), CheckError<B::Error>> {
        let samples = std::mem::take(&mut self.samples);
        let mut found = vec![0; std::mem::take(&mut self.taken) as usize];
        if found.is_empty() {
            return Ok(());
        }
        let read = mover.download(self.stream, &self.segment, 0, &mut found);
        read.map_err(|source| CheckError::Driver { call: "download", source })?;
        for Sample { at, bytes, place, about } in samples {
            let found = &found[at as usize..(at + bytes) as usize];
            let expected = &table[place as usize..(place + bytes) as usize];
            if let Some(byte) = (0..found.len()).find(|&byte| found[byte] != expected[byte]) {
                let offset = about.offset + byte as u64;
                return Err(WrongByte { offset, expected: expected[byte], found: found[byte], ..about }.into());
            }
        }
        Ok(())
    }

    /// Releases the memory once the stream is done with it.
    pub(crate) fn close(self, backend: &B) {
        own::release(backend, self.segment, &[self.stream]);
    }
}
