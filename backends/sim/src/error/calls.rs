//! The kinds of driver call, and the number of calls of each kind.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the kinds once: variant, field of [`Calls`], whether the call can fail, and what it stands for.
macro_rules! kinds {
    ($($kind:ident $field:ident $fallible:literal $text:literal;)*) => {
        /// One kind of driver call.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum CallKind { $(#[doc = $text] $kind,)* }

        impl CallKind {
            /// Every kind, in the order of the fields of [`Calls`].
            pub const ALL: &'static [CallKind] = &[$(CallKind::$kind,)*];

            /// Returns whether the call returns a `Result`, so that [`Sim::fail`](crate::Sim::fail) can make it fail.
            pub const fn fallible(self) -> bool {
                match self { $(CallKind::$kind => $fallible,)* }
            }
        }

        impl CallKind {
            /// Returns the name of the kind, as errors give it: that of its field of [`Calls`].
            pub const fn name(self) -> &'static str {
                match self { $(CallKind::$kind => stringify!($field),)* }
            }
        }

        impl fmt::Display for CallKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        /// The number of driver calls of each kind. Answers given from memory, without a driver call, do not count.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Calls { $(#[doc = $text] pub $field: u64,)* }

        impl Calls {
            /// Returns the number of calls of that kind.
            pub const fn of(&self, kind: CallKind) -> u64 {
                match kind { $(CallKind::$kind => self.$field,)* }
            }

            /// Returns the number of all driver calls.
            pub const fn total(&self) -> u64 {
                0 $(+ self.$field)*
            }

            /// Returns the calls made since an earlier reading of the same device.
            ///
            /// # Panics
            ///
            /// If `earlier` counts more calls of a kind than `self`, and so was not earlier.
            pub fn since(&self, earlier: &Calls) -> Calls {
                Calls { $($field: difference(CallKind::$kind, self.$field, earlier.$field),)* }
            }
        }

        impl Counters {
            /// Returns the counts now. Calls that other threads make at the same time may or may not be counted.
            pub(crate) fn read(&self) -> Calls {
                Calls { $($field: self.0[CallKind::$kind as usize].load(Ordering::Relaxed),)* }
            }
        }
    };
}

kinds! {
    Reserve reserve true "Takes a segment (`cuMemAlloc`).";
    Release release false "Gives a segment back (`cuMemFree`).";
    ReserveRange reserve_range true "Reserves addresses (`cuMemAddressReserve`).";
    ReleaseRange release_range false "Gives addresses back (`cuMemAddressFree`).";
    CreatePage create_page true "Creates physical memory (`cuMemCreate`).";
    ReleasePage release_page false "Gives physical memory back (`cuMemRelease`).";
    Map map true "Maps a page and opens it for access (`cuMemMap`, `cuMemSetAccess`).";
    Unmap unmap false "Unmaps a page (`cuMemUnmap`).";
    Record record false "Records an event where the backend closes ticks (`cuEventRecord`).";
    Reached reached true "Queries an event, which happens only while a tick is marked or closed and not yet reached.";
    Wait wait true "Blocks the host for a point that is not reached yet (`cuEventSynchronize`).";
    StreamWait stream_wait true "Makes one stream wait for another (`cuStreamWaitEvent`).";
    Transfer transfer true "Queues a fill, a copy, an upload or a download.";
    Budget budget true "Asks how much memory is left (`cuMemGetInfo`).";
    CreateStream create_stream true "Opens a stream (`cuStreamCreate`).";
}

fn difference(kind: CallKind, now: u64, earlier: u64) -> u64 {
    match now.checked_sub(earlier) {
        Some(more) => more,
        None => panic!("{kind}: {now} calls now, {earlier} in the reading said to be earlier"),
    }
}

/// The device's counters, one per kind.
pub(crate) struct Counters([AtomicU64; CallKind::ALL.len()]);

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn add(&self, kind: CallKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}
