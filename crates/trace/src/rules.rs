//! The rules for a valid sequence of events. Reader and writer share them, so what was written can be read.

use crate::error::Problem;

/// The largest size of a request in bytes, which is also the most that an allocator can be asked for.
pub const BYTES_MAX: u64 = (1 << 60) - 1;
/// The most bytes to keep.
const KEEP_MAX: u64 = (1 << 63) - 1;
/// One more than the highest stream number.
const STREAMS_MAX: u64 = 1 << 16;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Allocated,
    Freed,
    Complete,
}

/// The states of all blocks so far, and the numbers of points and streams.
///
/// Methods take a dense number and, for the message, the number by which the caller knows the block or point.
#[derive(Default)]
pub(crate) struct Rules {
    lives: Vec<Life>,
    points: usize,
    streams: u32,
    /// A bit for each stream that was named, in words of 64 bits.
    named: Vec<u64>,
    different_streams: u64,
}

impl Rules {
    pub(crate) fn blocks(&self) -> usize {
        self.lives.len()
    }

    pub(crate) fn points(&self) -> usize {
        self.points
    }

    pub(crate) fn streams(&self) -> u32 {
        self.streams
    }

    /// Returns the number of different streams that were named.
    pub(crate) fn different_streams(&self) -> u64 {
        self.different_streams
    }

    /// Returns whether a stream was named.
    pub(crate) fn is_named(&self, stream: u64) -> bool {
        let word = usize::try_from(stream / 64).ok().and_then(|word| self.named.get(word));
        word.is_some_and(|word| word & (1 << (stream % 64)) != 0)
    }

    #[inline]
    fn name(&mut self, stream: u32) {
        let (word, bit) = (stream as usize / 64, 1 << (stream % 64));
        if self.named.len() <= word {
            self.named.resize(word + 1, 0);
        }
        if self.named[word] & bit == 0 {
            self.named[word] |= bit;
            self.different_streams += 1;
        }
    }

    /// Adds a block. Returns its number and its stream.
    pub(crate) fn allocate(&mut self, bytes: u64, stream: u64) -> Result<(u32, u32), Problem> {
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(Problem::Size { bytes });
        }
        let stream = self.stream(stream)?;
        let id = u32::try_from(self.lives.len()).map_err(|_| Problem::TooMany { what: "blocks" })?;
        self.lives.push(Life::Allocated);
        Ok((id, stream))
    }

    pub(crate) fn free(&mut self, id: u32, name: u64) -> Result<(), Problem> {
        self.expect_allocated(id, name)?;
        self.lives[id as usize] = Life::Freed;
        Ok(())
    }

    pub(crate) fn complete(&mut self, id: u32, name: u64) -> Result<(), Problem> {
        match self.lives.get_mut(id as usize) {
            None => Err(Problem::Unknown { id: name }),
            Some(Life::Allocated) => Err(Problem::NotFreed { id: name }),
            Some(Life::Complete) => Err(Problem::AlreadyComplete { id: name }),
            Some(life) => {
                *life = Life::Complete;
                Ok(())
            }
        }
    }

    pub(crate) fn expect_allocated(&self, id: u32, name: u64) -> Result<(), Problem> {
        match self.lives.get(id as usize) {
            None => Err(Problem::Unknown { id: name }),
            Some(Life::Allocated) => Ok(()),
            Some(_) => Err(Problem::AlreadyFreed { id: name }),
        }
    }

    /// Adds a point. Returns its number and its stream.
    pub(crate) fn mark(&mut self, stream: u64) -> Result<(u32, u32), Problem> {
        let stream = self.stream(stream)?;
        let point = u32::try_from(self.points).map_err(|_| Problem::TooMany { what: "points" })?;
        self.points += 1;
        Ok((point, stream))
    }

    pub(crate) fn expect_point(&self, point: u32, name: u64) -> Result<(), Problem> {
        if (point as usize) < self.points { Ok(()) } else { Err(Problem::PointUnknown { point: name }) }
    }

    pub(crate) fn stream(&mut self, stream: u64) -> Result<u32, Problem> {
        if stream >= STREAMS_MAX {
            return Err(Problem::Stream { stream });
        }
        let stream = stream as u32;
        self.streams = self.streams.max(stream + 1);
        self.name(stream);
        Ok(stream)
    }

    pub(crate) fn trim(bytes: u64) -> Result<(), Problem> {
        if bytes <= KEEP_MAX { Ok(()) } else { Err(Problem::Keep { bytes }) }
    }
}
