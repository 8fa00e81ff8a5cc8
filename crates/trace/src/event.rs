//! The events of a trace.

/// One event of a trace. Numbers of blocks and points are dense: the n-th allocation of a trace is block n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// `a`: a block is allocated.
    Allocate {
        /// The block's number: the number of allocations before it.
        id: u32,
        /// Its size in bytes, from 1 to 2^60 - 1.
        bytes: u64,
        /// The stream it is allocated on.
        stream: u32,
    },
    /// `f`: the program frees a block.
    Free {
        /// The block.
        id: u32,
    },
    /// `c`: the device is done with a freed block, where that came later than the free.
    Complete {
        /// The block.
        id: u32,
    },
    /// `u`: a block is used on another stream until its free (`record_stream`).
    Use {
        /// The block.
        id: u32,
        /// The stream that uses it.
        stream: u32,
    },
    /// `m`: a point is defined as everything queued on a stream so far.
    Mark {
        /// The point's number: the number of points defined before it.
        point: u32,
        /// The stream.
        stream: u32,
    },
    /// `w`: a block is used until a point is reached.
    Until {
        /// The block.
        id: u32,
        /// The point.
        point: u32,
    },
    /// `q`: the program submits what is queued on a stream. Only for devices where the application does that: work is
    /// not done before.
    Submit {
        /// The stream.
        stream: u32,
    },
    /// `d`: what is queued on a stream from here on waits for a point, on the device.
    StreamWait {
        /// The stream that waits.
        stream: u32,
        /// The point.
        point: u32,
    },
    /// `h`: the host waits until a point is reached.
    HostWait {
        /// The point.
        point: u32,
    },
    /// `r`: the device is seen to have reached a point.
    Reached {
        /// The point.
        point: u32,
    },
    /// `o`: the allocator asks the device how far it is, at this time of the clock by which its work proceeds.
    Look {
        /// The time, in nanoseconds since any moment.
        nanos: u64,
    },
    /// `e`: the program empties the cache.
    EmptyCache,
    /// `t`: the program asks to keep at most this number of bytes reserved.
    Trim {
        /// The number of bytes, below 2^63.
        bytes: u64,
    },
}

impl Event {
    /// Returns whether the event says how far the device is: a submit, a wait, a point that is
    /// reached, or when the device was asked.
    pub fn is_timing(&self) -> bool {
        matches!(
            self,
            Self::Submit { .. }
                | Self::StreamWait { .. }
                | Self::HostWait { .. }
                | Self::Reached { .. }
                | Self::Look { .. }
        )
    }
}
