//! The streams of an allocator by the handles that C programs pass, read without a lock.
//!
//! A stream is added at its first use and stays until the allocator is destroyed. One that was released stays, too, and
//! is passed over: threads may be reading it. A stream that the program may destroy without a word is borrowed.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use millpond::Stream;
use millpond_backend::{Backend, StreamId};
use parking_lot::Mutex;

use crate::code::Failure;

/// The number of lists, among which streams are distributed by their handles.
const LISTS: usize = 64;

/// The streams that were used with an allocator.
pub(crate) struct Streams<B: Backend> {
    lists: [AtomicPtr<Known<B>>; LISTS],
    /// Held by a thread that adds a stream.
    adding: Mutex<()>,
}

/// How long a stream lives, and whether it is still in use.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tenure {
    /// Until it is released.
    Lasting,
    /// As long as the program likes.
    Borrowed,
    Released,
}

struct Known<B: Backend> {
    native: u64,
    stream: Stream<B>,
    /// A [`Tenure`].
    tenure: AtomicU8,
    next: *const Known<B>,
}

fn list(native: u64) -> usize {
    // The handles are addresses, or small numbers.
    (native.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - LISTS.ilog2())) as usize
}

impl<B: Backend> Streams<B> {
    pub(crate) fn new() -> Self {
        Self { lists: [const { AtomicPtr::new(ptr::null_mut()) }; LISTS], adding: Mutex::new(()) }
    }

    /// Returns the stream of a handle, if it was added as a lasting one and not released.
    #[inline]
    pub(crate) fn get(&self, native: u64) -> Option<&Stream<B>> {
        self.all(native).find(|known| known.is(Tenure::Lasting)).map(|known| &known.stream)
    }

    /// Returns the stream of a handle, if it was added and not released, and whether it is borrowed.
    pub(crate) fn find(&self, native: u64) -> Option<(&Stream<B>, bool)> {
        let known = self.all(native).find(|known| !known.is(Tenure::Released))?;
        Some((&known.stream, known.is(Tenure::Borrowed)))
    }

    /// Returns whether a stream of this handle was released.
    pub(crate) fn was_released(&self, native: u64) -> bool {
        self.all(native).any(|known| known.is(Tenure::Released))
    }

    /// Adds the stream of a handle, unless another thread has added it meanwhile. Returns the one that is there then. A
    /// borrowed one that is added as a lasting one lasts from now on; if that is another stream, the borrowed one is
    /// over.
    #[cold]
    pub(crate) fn add(&self, native: u64, stream: Stream<B>, tenure: Tenure) -> &Stream<B> {
        let _adding = self.adding.lock();
        if let Some(known) = self.all(native).find(|known| !known.is(Tenure::Released)) {
            let is_same = known.stream.id() == stream.id();
            if known.is(Tenure::Lasting) || tenure == Tenure::Borrowed || is_same {
                if tenure == Tenure::Lasting {
                    let (from, to) = (Tenure::Borrowed as u8, tenure as u8);
                    // One that lasts already, or was released meanwhile, stays what it is.
                    let _ = known.tenure.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
                }
                return &known.stream;
            }
            known.tenure.store(Tenure::Released as u8, Ordering::Release);
        }
        let list = &self.lists[list(native)];
        let next = list.load(Ordering::Acquire);
        let known = Box::into_raw(Box::new(Known { native, stream, tenure: AtomicU8::new(tenure as u8), next }));
        list.store(known, Ordering::Release);
        // SAFETY: it is in the list, which keeps it until it is dropped itself.
        unsafe { &(*known).stream }
    }

    /// Releases the stream of a handle, whose use `close` ends. A stream whose use cannot be ended stays. Of several
    /// threads that do this at once, one finds the stream.
    ///
    /// Returns `None` if there is no such stream.
    pub(crate) fn release(
        &self,
        native: u64,
        close: impl FnOnce(&Stream<B>) -> Result<(), Failure>,
    ) -> Option<Result<(), Failure>> {
        const RELEASED: u8 = Tenure::Released as u8;
        let take = |known: &Known<B>| known.tenure.swap(RELEASED, Ordering::AcqRel);
        let (known, tenure) = self.all(native).map(|known| (known, take(known))).find(|&(_, was)| was != RELEASED)?;
        let closed = close(&known.stream).inspect_err(|_| known.tenure.store(tenure, Ordering::Release));
        if closed.is_ok() {
            // A thread that had the number from the device may have added it meanwhile.
            self.forget(native, known.stream.id());
        }
        Some(closed)
    }

    /// Passes over the stream of a handle whose number is over from now on.
    pub(crate) fn forget(&self, native: u64, over: StreamId) {
        for known in self.all(native).filter(|known| known.stream.id() == over) {
            known.tenure.store(Tenure::Released as u8, Ordering::Release);
        }
    }

    /// Returns the entries of a handle, the newest first.
    #[inline]
    fn all(&self, native: u64) -> impl Iterator<Item = &Known<B>> {
        // SAFETY: the pointers of a list are those of `add`, whose values live until the lists are dropped, or null.
        let as_ref = |known: *const Known<B>| unsafe { known.as_ref() };
        let first = as_ref(self.lists[list(native)].load(Ordering::Acquire));
        std::iter::successors(first, move |known| as_ref(known.next)).filter(move |known| known.native == native)
    }
}

impl<B: Backend> Known<B> {
    #[inline]
    fn is(&self, tenure: Tenure) -> bool {
        self.tenure.load(Ordering::Acquire) == tenure as u8
    }
}

impl<B: Backend> Drop for Streams<B> {
    fn drop(&mut self) {
        for list in &mut self.lists {
            let mut next = *list.get_mut();
            while !next.is_null() {
                // SAFETY: `add` made it of a box, and it is in one list, once.
                let known = unsafe { Box::from_raw(next) };
                next = known.next.cast_mut();
            }
        }
    }
}

// SAFETY: the lists own their entries; `Stream` is Send and Sync, and the rest is atomics and a lock.
unsafe impl<B: Backend> Send for Streams<B> {}
// SAFETY: as above.
unsafe impl<B: Backend> Sync for Streams<B> {}

#[cfg(test)]
mod tests {
    use millpond::Allocator;
    use millpond_sim::Sim;

    use super::*;

    #[test]
    fn a_handle_has_one_stream_until_it_is_released() {
        let allocator = Allocator::new(Sim::new());
        let streams = Streams::new();
        let open = || allocator.create_stream().unwrap();
        let ids: Vec<_> = (0..500).map(|native| streams.add(native << 8, open(), Tenure::Lasting).id()).collect();
        for (native, &id) in (0_u64..).zip(&ids) {
            assert_eq!(streams.get(native << 8).map(Stream::id), Some(id));
            assert_eq!(streams.add(native << 8, open(), Tenure::Lasting).id(), id, "another thread was first");
        }
        assert!(streams.get(1).is_none());
        assert_eq!(streams.release(1, |_| Ok(())), None);
        let failed = streams.release(7 << 8, |_| Err(Failure::bad_argument("not now")));
        assert_eq!(failed, Some(Err(Failure::bad_argument("not now"))));
        assert_eq!(streams.get(7 << 8).map(Stream::id), Some(ids[7]), "it stays where it cannot be closed");
        assert_eq!(
            streams.release(7 << 8, |stream| if stream.id() == ids[7] { Ok(()) } else { panic!() }),
            Some(Ok(()))
        );
        assert!(streams.get(7 << 8).is_none() && streams.was_released(7 << 8) && !streams.was_released(8 << 8));
        assert_eq!(streams.release(7 << 8, |_| Ok(())), None);
        let new = streams.add(7 << 8, open(), Tenure::Lasting).id();
        assert!(!ids.contains(&new));
        assert_eq!(streams.get(7 << 8).map(Stream::id), Some(new));
    }

    /// It had the number from the device before the stream was released.
    #[test]
    fn a_stream_that_another_thread_adds_while_it_is_released_is_over() {
        let allocator = Allocator::new(Sim::new());
        let streams = Streams::new();
        let stream = allocator.create_stream().unwrap();
        streams.add(64, stream.clone(), Tenure::Lasting);
        let released = streams.release(64, |_| {
            streams.add(64, stream.clone(), Tenure::Borrowed);
            Ok(())
        });
        assert!(released == Some(Ok(())) && streams.find(64).is_none());
        let other = allocator.create_stream().unwrap();
        streams.add(64, other.clone(), Tenure::Borrowed);
        streams.forget(64, stream.id());
        assert!(streams.find(64).is_some(), "that is another stream");
        streams.forget(64, other.id());
        assert!(streams.find(64).is_none());
    }

    #[test]
    fn a_borrowed_stream_lasts_once_it_is_added_so() {
        let allocator = Allocator::new(Sim::new());
        let streams = Streams::new();
        let open = || allocator.create_stream().unwrap();
        let first = open();
        let found = || streams.find(64).map(|(stream, is_borrowed)| (stream.id(), is_borrowed));
        assert_eq!(streams.add(64, first.clone(), Tenure::Borrowed).id(), first.id());
        assert_eq!(streams.add(64, open(), Tenure::Borrowed).id(), first.id(), "another thread was first");
        assert!(streams.get(64).is_none() && found() == Some((first.id(), true)));
        assert_eq!(
            streams.release(64, |_| Err(Failure::bad_argument("not now"))).map(|done| done.is_ok()),
            Some(false)
        );
        assert_eq!(found(), Some((first.id(), true)), "it stays what it was");
        // The device has found another stream behind the handle.
        let second = open();
        assert_eq!(streams.add(64, second.clone(), Tenure::Lasting).id(), second.id());
        assert_eq!(streams.get(64).map(Stream::id), Some(second.id()));
        assert_eq!(streams.add(64, second.clone(), Tenure::Borrowed).id(), second.id());
        assert_eq!(found(), Some((second.id(), false)), "what lasts is not borrowed any more");
        // The same stream.
        streams.add(65, first.clone(), Tenure::Borrowed);
        streams.add(65, first.clone(), Tenure::Lasting);
        assert_eq!(streams.get(65).map(Stream::id), Some(first.id()));
        assert_eq!(streams.release(65, |_| Ok(())), Some(Ok(())));
        assert!(streams.find(65).is_none());
    }
}
