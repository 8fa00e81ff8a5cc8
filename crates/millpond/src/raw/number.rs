//! Buffers as numbers: for owners that have no place for a [`Buffer`], such as a table of addresses behind a C
//! interface.
//!
//! The number names the lane and the block, which is all that a free needs. So a table of such numbers keeps eight
//! bytes for each live block, and a free through it costs what the drop of a buffer does.
//!
//! A free by number relies on the caller: a number that is freed twice, or after its block was granted anew, takes the
//! block from the buffer that has it now, and that buffer's segment may then be released while it is borrowed. This is
//! the only reason why [`Allocator::free_raw`] is `unsafe`. The other functions change nothing but the record of one
//! block; a number that is not live makes them panic, find nothing, or describe a later block.

use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;

use millpond_backend::Backend;
use millpond_core::{BlockId, Extent, NoRoom, ShardId, Side};

use crate::aligned::Start;
use crate::allocator::Allocator;
use crate::buffer::{Buffer, EMPTY};
use crate::error::Error;
use crate::events::Event;
use crate::frees::Held;
use crate::notes::note::Out;
use crate::state::{Lane, LaneRef, State};
use crate::stream::Stream;

/// A [`Buffer`] as a number, which [`Buffer::into_raw`] returns. It is valid until [`Allocator::free_raw`], and only
/// with the allocator that the buffer came from.
///
/// Dropping it has no effect: the block stays handed out. It does not keep its allocator alive: the allocator's memory
/// is returned to the driver only after the number was freed, and the number can be freed only while the program has a
/// handle of the allocator.
///
/// Its `Debug` shows the block that it names, as panics of a second free do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawBuffer(NonZeroU64);

/// The bit that has the side of the request.
const SIDE_SHIFT: u32 = 32;

/// The bits above it have the number of the lane, plus 1, so that no number is 0. A lane takes more than 128 bytes, so
/// that there are fewer than 2^31.
const LANE_SHIFT: u32 = 33;

impl RawBuffer {
    /// Returns the number as bits, for storage.
    pub fn to_bits(self) -> NonZeroU64 {
        self.0
    }

    /// Returns the number whose bits these are.
    pub fn from_bits(bits: NonZeroU64) -> Self {
        Self(bits)
    }

    #[inline]
    fn new(shard: ShardId, held: &Held) -> Self {
        let lane = (u64::from(shard.0) + 1) << LANE_SHIFT;
        let bits = lane | (held.side as u64) << SIDE_SHIFT | u64::from(held.block.0);
        match NonZeroU64::new(bits) {
            Some(bits) => Self(bits),
            None => unreachable!("the bits of the lane are not all 0"),
        }
    }

    /// Returns the block and the shard that it belongs to.
    pub(crate) fn named(self) -> (ShardId, BlockId) {
        (self.shard(), self.held().block)
    }

    #[inline]
    fn shard(self) -> ShardId {
        ShardId(((self.0.get() >> LANE_SHIFT) as u32).wrapping_sub(1))
    }

    #[inline]
    fn held(self) -> Held {
        let side = if self.0.get() >> SIDE_SHIFT & 1 == Side::Large as u64 { Side::Large } else { Side::Small };
        Held { block: BlockId(self.0.get() as u32), side, start: Start::OF_BLOCK }
    }
}

impl fmt::Debug for RawBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawBuffer(block {} of lane {})", self.held().block.0, self.shard().0)
    }
}

impl<B: Backend> Buffer<B> {
    /// Returns the buffer as a number, without freeing it. The block stays handed out until
    /// [`Allocator::free_raw`]. The number stands for the whole block: what is asked of it does not tell where in the
    /// block an [aligned](crate::Stream::allocate_aligned) buffer began.
    ///
    /// ```
    /// use millpond::{Allocator, RawBuffer};
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// let buffer = allocator.create_stream()?.allocate(1000)?;
    /// let bits = buffer.into_raw().to_bits();
    /// assert_eq!(allocator.memory_allocated(), 1024);
    /// // SAFETY: the number comes from this allocator, and is freed once.
    /// unsafe { allocator.free_raw(RawBuffer::from_bits(bits)) };
    /// assert_eq!(allocator.memory_allocated(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn into_raw(self) -> RawBuffer {
        let this = ManuallyDrop::new(self);
        RawBuffer::new(this.lane().shard, this.held())
    }
}

/// Buffers as numbers.
impl<B: Backend> Allocator<B> {
    /// Frees a buffer by its number, as dropping it does: this cannot fail, and makes no driver call except under the
    /// `direct` policy.
    ///
    /// # Safety
    ///
    /// The number comes from [`Buffer::into_raw`] of a buffer of this allocator, and was not freed since.
    ///
    /// # Panics
    ///
    /// If the number is not live and the allocator notices.
    #[inline]
    pub unsafe fn free_raw(&self, raw: RawBuffer) {
        let (state, held) = (self.state(), raw.held());
        // The lane lives as long as the allocator, of which the caller has a handle.
        let lane = LaneRef::new(self.lane_of(raw));
        if held.block == EMPTY {
            drop(State::free_nothing(&lane));
            return;
        }
        if state.sinks.is_on() {
            let Extent { slot, offset, bytes: size } = self.extent_of(raw);
            let stream = lane.lock().shard.user_of(held.block);
            let out = Out { slot, offset, size, requested: 0, stream };
            drop(State::free_watched(&lane, &held, &out));
        } else {
            drop(State::free(&lane, &held, None));
        }
    }

    /// Records that a buffer is used on another stream until it is freed, as [`Buffer::record_stream`] does.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is another allocator's.
    ///
    /// # Panics
    ///
    /// If the number is not live and the allocator notices.
    pub fn record_stream_raw(&self, raw: RawBuffer, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        let (state, held) = (self.state(), raw.held());
        state.expect_own("stream", stream.lane().owner())?;
        if held.block != EMPTY {
            let (lane, other) = (self.lane_of(raw), stream.id());
            state.note_tick(other);
            lane.lock().use_on(held.block, other);
            if state.sinks.is_told() {
                let Extent { slot, offset, .. } = self.extent_of(raw);
                let event = |segment, offset| Event::Use { segment, offset, stream: other };
                state.tell_of(lane, (slot, offset), event);
            }
        }
        Ok(())
    }

    /// Makes a buffer longer at its place, as [`Buffer::grow`] does. Where the new bytes have to be overwritten and the
    /// driver fails to do so, they stay a part of the block.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Buffer::grow`].
    ///
    /// # Safety
    ///
    /// As for [`free_raw`](Self::free_raw), and no other thread frees the number or makes it longer meanwhile.
    ///
    /// # Panics
    ///
    /// If the number is not live and the allocator notices.
    #[track_caller]
    pub unsafe fn grow_raw(&self, raw: RawBuffer, bytes: u64) -> Result<(), Error<B::Error>> {
        let (held, lane) = (raw.held(), LaneRef::new(self.lane_of(raw)));
        if held.block == EMPTY {
            return Err(Error::NoRoom { len: 0, bytes, why: NoRoom::Empty });
        }
        let extent = self.extent_of(raw);
        let (stream, requested) = {
            let inner = lane.lock();
            (inner.shard.user_of(held.block), inner.shard.requested_of(held.block))
        };
        // It frees nothing: the number still names the block.
        let mut buffer = ManuallyDrop::new(Buffer::of_live(lane.clone(), held, extent, stream, requested));
        let grown = buffer.grow(bytes);
        if grown.is_err() {
            // The buffer is gone that would have known what it has not got.
            let inner = lane.lock();
            lane.count_out(inner.shard.size_of(buffer.held().block) - extent.bytes);
        }
        grown
    }

    /// Returns the size of a buffer's block in bytes, as [`Buffer::capacity`] does. Takes the stream's lock briefly.
    ///
    /// # Panics
    ///
    /// If the number is not live and the allocator notices.
    pub fn capacity_raw(&self, raw: RawBuffer) -> u64 {
        if raw.held().block == EMPTY { 0 } else { self.extent_of(raw).bytes }
    }

    /// Returns the address and the size of a buffer's block in bytes, as [`Buffer::address`] and [`Buffer::capacity`]
    /// do; `None` for an empty buffer, on devices without addresses, and for a number of another allocator that names
    /// nothing in this one. Takes the stream's lock briefly.
    ///
    /// Another thread may have freed the number: then this returns `None`, or the place of a later block that has the
    /// number now. Compare the address to find out.
    pub fn place_raw(&self, raw: RawBuffer) -> Option<(u64, u64)> {
        let (state, held) = (self.state(), raw.held());
        if held.block == EMPTY {
            return None;
        }
        let mut lane = state.lane_if_any(raw.shard())?.lock();
        let Extent { slot, offset, bytes } = lane.shard.tidied().live_extent(held.block)?;
        let base = state.backend.address(lane.segment(slot))?;
        state.tell_address();
        Some((base + offset, bytes))
    }

    fn lane_of(&self, raw: RawBuffer) -> &Lane<B> {
        let lane = self.state().lane_if_any(raw.shard());
        lane.unwrap_or_else(|| panic!("{raw:?} is another allocator's: give it to the one that it came from"))
    }

    fn extent_of(&self, raw: RawBuffer) -> Extent {
        let extent = self.lane_of(raw).lock().shard.tidied().live_extent(raw.held().block);
        extent.unwrap_or_else(|| panic!("{raw:?} was freed before, or is another allocator's"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use millpond_sim::Sim;

    use super::*;
    use crate::error::ErrorKind;
    use crate::events::Sink;

    /// Counts the events of each kind that a table of numbers causes.
    #[derive(Default)]
    struct Count {
        grants: u64,
        uses: u64,
        frees: Vec<u64>,
    }

    impl Sink for Count {
        fn event(&mut self, event: &Event) {
            match *event {
                Event::Grant { .. } => self.grants += 1,
                Event::Use { .. } => self.uses += 1,
                Event::Free { offset, .. } => self.frees.push(offset),
                _ => {}
            }
        }
    }

    #[test]
    fn a_number_names_the_lane_the_side_and_the_block() {
        for (shard, side, block) in [(0, Side::Small, 0), (7, Side::Large, 41), (1 << 30, Side::Large, u32::MAX)] {
            let raw = RawBuffer::new(ShardId(shard), &Held { block: BlockId(block), side, start: Start::OF_BLOCK });
            let held = RawBuffer::from_bits(raw.to_bits()).held();
            assert_eq!((raw.shard(), held.block, held.side), (ShardId(shard), BlockId(block), side));
        }
    }

    #[test]
    fn a_free_by_number_is_the_drop_of_a_buffer() {
        let allocator = Allocator::new(Sim::new());
        let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
        allocator.set_sink(Count::default());
        allocator.track_live(crate::live::Tracking::Labels);
        let numbers: Vec<_> = [1000, 3 << 20, 0, 512]
            .into_iter()
            .zip([0, 1, 1, 0])
            .map(|(bytes, stream): (u64, usize)| streams[stream].allocate(bytes).unwrap().into_raw())
            .collect();
        assert_eq!(numbers.iter().map(|&raw| allocator.capacity_raw(raw)).collect::<Vec<_>>(), [1024, 3 << 20, 0, 512]);
        assert_eq!(allocator.memory_allocated(), 1024 + (3 << 20) + 512);
        let places: Vec<_> = numbers.iter().map(|&raw| allocator.place_raw(raw).map(|(_, size)| size)).collect();
        assert_eq!(places, [Some(1024), Some(3 << 20), None, Some(512)]);
        let starts = [0, 3].map(|at| allocator.place_raw(numbers[at]).map(|(address, _)| address));
        assert_eq!(starts[1], starts[0].map(|first| first + 1024));
        assert_eq!(allocator.live().bytes(), allocator.memory_allocated());
        allocator.record_stream_raw(numbers[0], &streams[1]).unwrap();
        for raw in numbers {
            // SAFETY: each number comes from this allocator, and is freed once.
            unsafe { allocator.free_raw(raw) };
        }
        let count = allocator.take_sink::<Count>().unwrap();
        // The streams have one home: large blocks lie behind the slab of the small ones.
        assert_eq!((count.grants, count.uses, count.frees), (3, 1, vec![0, 2 << 20, 1024]));
        assert!(allocator.live().is_empty());
        allocator.check();
        assert_eq!(allocator.memory_allocated(), 0);
        assert_eq!(allocator.stats().active_bytes.all.current, 0);
    }

    #[test]
    fn a_number_that_is_freed_twice_is_noticed_while_its_block_is_free() {
        let allocator = Allocator::new(Sim::new());
        let stream = allocator.create_stream().unwrap();
        let (first, second) = (stream.allocate(512).unwrap().into_raw(), stream.allocate(512).unwrap().into_raw());
        // SAFETY: both numbers come from this allocator, and are freed once.
        unsafe {
            allocator.free_raw(first);
            allocator.free_raw(second);
        }
        let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            allocator.record_stream_raw(first, &allocator.create_stream().unwrap())
        }));
        assert!(twice.is_err(), "a use of a block that is free");
        assert_eq!([first, second].map(|raw| allocator.place_raw(raw)), [None, None]);
        assert_eq!(allocator.memory_allocated(), 0);
    }

    /// Returns the text of a panic.
    fn panic_of(call: impl FnOnce()) -> String {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err("a panic");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn a_second_free_names_the_number() {
        for (watched, expected) in [(false, "was freed before and is freed again"), (true, "was freed before, or is")] {
            let allocator = Allocator::new(Sim::new());
            let stream = allocator.create_stream().unwrap();
            if watched {
                allocator.set_sink(Count::default());
            }
            let _first = stream.allocate(512).unwrap();
            let raw = stream.allocate(512).unwrap().into_raw();
            let named = format!("block {}", raw.named().1.0);
            assert!(format!("{raw:?}").contains(&named), "{raw:?}");
            // SAFETY: the number comes from this allocator. The second free is noticed: nothing was granted in between.
            let text = panic_of(|| unsafe {
                allocator.free_raw(raw);
                allocator.free_raw(raw);
            });
            assert!(text.contains(&named) && text.contains(expected) && !text.contains("left"), "{text}");
        }
    }

    #[test]
    fn a_number_of_another_allocator_has_no_place() {
        let [full, empty, small] = [(); 3].map(|()| Allocator::new(Sim::new()));
        let stream = full.create_stream().unwrap();
        let held: Vec<_> = (0..3).map(|_| full.create_stream().unwrap().allocate(512).unwrap()).collect();
        let raw = stream.allocate(512).unwrap().into_raw();
        drop(small.create_stream().unwrap());
        for other in [&empty, &small] {
            assert_eq!(other.place_raw(raw), None);
            let text = panic_of(|| assert_eq!(other.capacity_raw(raw), 0));
            assert!(text.contains(&format!("{raw:?}")) && text.contains("another allocator's"), "{text}");
        }
        // SAFETY: the number comes from this allocator, and is freed once.
        unsafe { full.free_raw(raw) };
        drop(held);
    }

    #[test]
    fn a_number_of_another_allocators_stream_is_refused() {
        let [one, other] = [(); 2].map(|()| Allocator::new(Sim::new()));
        let raw = one.create_stream().unwrap().allocate(512).unwrap().into_raw();
        let foreign = other.create_stream().unwrap();
        assert!(matches!(one.record_stream_raw(raw, &foreign), Err(Error::WrongDevice { .. })));
        // SAFETY: the number comes from this allocator, and is freed once.
        unsafe { one.free_raw(raw) };
    }

    /// A buffer that is kept as a number grows as the buffer does.
    #[test]
    fn a_number_grows() {
        const MIB: u64 = 1 << 20;
        let allocator = Allocator::builder(Sim::new()).conf("policy:paged").build().unwrap_or_else(|e| panic!("{e}"));
        let stream = allocator.create_stream().unwrap_or_else(|e| panic!("{e}"));
        let raw = stream.allocate_growable(2 * MIB, 16 * MIB).unwrap_or_else(|e| panic!("{e}")).into_raw();
        let address = allocator.place_raw(raw).map(|(address, _)| address);
        // SAFETY: the number is live, and this thread alone uses it.
        let grown = [3, 20].map(|mib| unsafe { allocator.grow_raw(raw, mib * MIB) }.map_err(|error| error.kind()));
        assert_eq!(grown, [Ok(()), Err(ErrorKind::NoRoom)]);
        assert_eq!(allocator.place_raw(raw), address.map(|address| (address, 6 * MIB)));
        assert_eq!(allocator.stats().requested_bytes.all.current, 5 * MIB);
        allocator.check();
        // SAFETY: as above, and it is freed once.
        unsafe { allocator.free_raw(raw) };
        assert_eq!(allocator.memory_allocated(), 0);
        allocator.check();
    }
}
