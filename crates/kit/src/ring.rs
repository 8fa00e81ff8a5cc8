//! The staging ring: which bytes of a buffer that the host writes or reads are free to be handed out again.

use std::collections::VecDeque;

use millpond_backend::Tick;

/// A ring buffer for the transfers of one stream. It keeps the buffer and knows nothing about it: the backend decides
/// what the bytes are, and where.
///
/// Bytes are handed out in pieces. A piece is free again once the tick that covers its use is reached and the host no
/// longer reads it. Pieces are freed in the order in which they were handed out.
pub struct Ring<B> {
    buffer: B,
    bytes: u64,
    alignment: u64,
    /// Bytes handed out since the ring was empty, including those skipped at its end.
    head: u64,
    /// The pieces in use, in the order in which they were handed out. Their numbers are consecutive.
    pieces: VecDeque<InUse>,
    /// The number of the next piece.
    next: u64,
}

/// Bytes that may not be handed out again yet.
struct InUse {
    /// The position where the piece begins, counted as `head` is. The bytes skipped before it belong to it.
    start: u64,
    /// The tick that covers the device's use. Unknown until the transfer is queued.
    tick: Option<Tick>,
    /// Whether the host still has to read it.
    pinned: bool,
}

/// A piece of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its number, by which the ring is told what becomes of it.
    pub number: u64,
    /// Where it begins in the buffer, in bytes: a multiple of the ring's alignment.
    pub offset: u64,
}

impl<B> Ring<B> {
    /// Returns a ring over a buffer of that many bytes, whose pieces begin at multiples of `alignment`.
    ///
    /// # Panics
    ///
    /// Panics if the length is not a multiple of the alignment, or either is 0.
    pub fn new(buffer: B, bytes: u64, alignment: u64) -> Ring<B> {
        assert!(
            bytes > 0 && alignment > 0 && bytes.is_multiple_of(alignment),
            "a ring of {bytes} bytes cannot be cut at multiples of {alignment}"
        );
        Ring { buffer, bytes, alignment, head: 0, pieces: VecDeque::new(), next: 0 }
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// Returns the buffer, to be given back. No transfer may be in progress through it.
    pub fn into_buffer(self) -> B {
        self.buffer
    }

    /// Frees the oldest pieces that are no longer in use: those whose tick is reached and that are not pinned.
    pub fn reclaim(&mut self, reached: Tick) {
        let free = |piece: &InUse| !piece.pinned && piece.tick.is_some_and(|tick| tick <= reached);
        while self.pieces.front().is_some_and(free) {
            self.pieces.pop_front();
        }
    }

    /// Hands out a piece of `bytes` bytes if there is room. A pinned piece stays in use until it is
    /// [unpinned](Ring::unpin), for the host to read what the device has written there. The piece also stays until the
    /// tick is reached that [`cover`](Ring::cover) names.
    pub fn take(&mut self, bytes: u64, pinned: bool) -> Option<Piece> {
        if self.pieces.is_empty() {
            self.head = 0;
        }
        let bytes = bytes.checked_next_multiple_of(self.alignment).filter(|&bytes| bytes <= self.bytes)?;
        let at = self.head % self.bytes;
        let skipped = if at + bytes > self.bytes { self.bytes - at } else { 0 };
        let tail = self.pieces.front().map_or(self.head, |piece| piece.start);
        if self.head + skipped + bytes > tail + self.bytes {
            return None;
        }
        let (number, start) = (self.next, self.head);
        self.next += 1;
        self.head += skipped + bytes;
        self.pieces.push_back(InUse { start, tick: None, pinned });
        Some(Piece { number, offset: (start + skipped) % self.bytes })
    }

    /// Sets the tick that covers the device's use of a piece, once its transfer is queued or has failed to be. Has no
    /// effect on a piece that is free.
    pub fn cover(&mut self, number: u64, tick: Tick) {
        if let Some(piece) = self.piece(number) {
            piece.tick = Some(tick);
        }
    }

    /// Notes that the host has read a pinned piece, or will not. Has no effect on a piece that is free.
    pub fn unpin(&mut self, number: u64) {
        if let Some(piece) = self.piece(number) {
            piece.pinned = false;
        }
    }

    /// Returns the tick of the oldest piece in use, for a caller that finds the ring full. `None` if no piece is in
    /// use, or the tick of the oldest is not known yet. Where that tick is reached, another thread is about to read the
    /// piece.
    pub fn oldest(&self) -> Option<Tick> {
        self.pieces.front().and_then(|piece| piece.tick)
    }

    /// Returns whether a piece is in use.
    pub fn is_in_use(&self, number: u64) -> bool {
        self.index(number).is_some()
    }

    /// Checks that the pieces in use lie one behind the other, within one turn of the ring.
    ///
    /// # Panics
    ///
    /// Panics if they do not.
    pub fn check(&self) {
        let starts: Vec<u64> = self.pieces.iter().map(|piece| piece.start).chain([self.head]).collect();
        assert!(
            self.pieces.is_empty() || starts.is_sorted_by(|a, b| a < b),
            "pieces overlap: they begin at {starts:?}"
        );
        let used = self.head - starts[0];
        assert!(used <= self.bytes, "{used} bytes of a ring of {} are in use", self.bytes);
    }

    /// Returns the place of a piece among those in use.
    fn index(&self, number: u64) -> Option<usize> {
        let first = self.next - self.pieces.len() as u64;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        (index < self.pieces.len()).then_some(index)
    }

    fn piece(&mut self, number: u64) -> Option<&mut InUse> {
        let index = self.index(number)?;
        self.pieces.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING_BYTES: u64 = 4 << 20;
    const PIECE_BYTES: u64 = 1 << 20;

    #[test]
    fn pieces_lie_behind_each_other_and_then_at_the_start_again() {
        let mut ring = Ring::new((), 100, 10);
        let take = |ring: &mut Ring<()>, bytes| ring.take(bytes, false).map(|piece| piece.offset);
        assert_eq!([take(&mut ring, 41), take(&mut ring, 10), take(&mut ring, 20)], [Some(0), Some(50), Some(60)]);
        assert_eq!(take(&mut ring, 30), None, "20 bytes are left at the end, and the start is in use");
        ring.cover(0, Tick(1));
        ring.cover(2, Tick(3));
        ring.reclaim(Tick(3));
        assert_eq!(ring.oldest(), None, "piece 1 is not queued yet");
        assert_eq!(take(&mut ring, 30), Some(0), "the 20 bytes at the end are skipped");
        ring.check();
        ring.cover(1, Tick(2));
        assert_eq!(ring.oldest(), Some(Tick(2)));
        ring.reclaim(Tick(1));
        assert!(ring.is_in_use(1) && !ring.is_in_use(0) && !ring.is_in_use(9));
        assert_eq!(take(&mut ring, 101), None, "the ring has no room for that, ever");
    }

    #[test]
    fn a_full_ring_hands_out_not_one_piece_more() {
        let mut ring = Ring::new((), 100, 10);
        assert_eq!([50, 50].map(|bytes| ring.take(bytes, false).map(|piece| piece.offset)), [Some(0), Some(50)]);
        assert_eq!(ring.take(1, false), None, "the smallest piece would lie on the first one");
        ring.check();
    }

    #[test]
    fn pieces_in_use_never_share_a_byte() {
        let (mut ring, mut used, mut tick) = (Ring::new((), RING_BYTES, 256), VecDeque::new(), Tick(0));
        for round in 0..2000_u64 {
            let bytes = 1 + round * 7919 % PIECE_BYTES;
            match ring.take(bytes, false) {
                Some(Piece { number, offset }) => {
                    assert!(offset + bytes <= RING_BYTES, "{bytes} bytes at {offset}");
                    let meets = |&(_, from, to): &(Tick, u64, u64)| offset < to && from < offset + bytes;
                    assert!(!used.iter().any(meets), "{bytes} bytes at {offset}, with {used:?}");
                    tick.0 += 1;
                    ring.cover(number, tick);
                    used.push_back((tick, offset, offset + bytes));
                }
                None => {
                    let (oldest, ..) = used.pop_front().expect("an empty ring has room");
                    assert_eq!(ring.oldest(), Some(oldest));
                    ring.reclaim(oldest);
                }
            }
            ring.check();
        }
        assert!(tick > Tick(500), "{tick} pieces were handed out");
    }

    #[test]
    fn a_pinned_piece_stays_until_it_is_read() {
        let mut ring = Ring::new('b', 1000, 10);
        let piece = ring.take(100, true).expect("an empty ring has room");
        ring.reclaim(Tick(u64::MAX));
        assert!(ring.is_in_use(piece.number), "it is not queued yet");
        ring.cover(piece.number, Tick(1));
        ring.reclaim(Tick(1));
        assert!(ring.is_in_use(piece.number), "the host has not read it");
        ring.unpin(piece.number);
        ring.reclaim(Tick(1));
        assert!(!ring.is_in_use(piece.number));
        ring.unpin(piece.number);
        assert_eq!((*ring.buffer(), ring.into_buffer()), ('b', 'b'));
    }

    #[test]
    #[should_panic(expected = "a ring of 100 bytes cannot be cut at multiples of 64")]
    fn a_ring_is_cut_evenly() {
        Ring::new((), 100, 64);
    }
}
