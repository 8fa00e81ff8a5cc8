//! The work of streams.

use std::sync::Arc;

use crate::driver::code::{Answer, Code};
use crate::driver::lane::Position;
use crate::driver::memory::{Reach, memory};
use crate::ffi::host::HostCall;
use crate::ffi::touch;

/// One operation of a stream.
#[derive(Clone)]
pub(crate) enum Op {
    /// Waits until other streams have reached these places.
    After(Vec<Position>),
    /// Waits until a test opens the gate.
    Gate(u64),
    /// Notes the time for a record of an event.
    Stamp {
        event: u64,
        record: u64,
    },
    /// Calls a function of the program.
    Host(HostCall),
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
        reach: Reach,
    },
    /// Writes bytes that were copied from the program before.
    Write {
        to: u64,
        data: Arc<[u8]>,
        reach: Reach,
    },
    /// Writes the first `width` bytes of a pattern again and again.
    Set {
        to: u64,
        pattern: [u8; 4],
        width: u8,
        bytes: u64,
        reach: Reach,
    },
    /// Frees what `cuMemAllocAsync` returned.
    Free(u64),
}

impl Op {
    /// Runs the operation, without the lock on the world.
    pub(crate) fn run(&self) -> Answer {
        match self {
            Op::After(_) | Op::Gate(_) | Op::Stamp { .. } => panic!("the stream does this itself, under the lock"),
            Op::Host(call) => {
                call.run();
                Ok(())
            }
            Op::Copy { to, from, bytes, reach } => touch::copy(&memory().read(), *to, *from, *bytes, *reach),
            Op::Write { to, data, reach } => touch::write(&memory().read(), *to, data, *reach),
            Op::Set { to, pattern, width, bytes, reach } => {
                touch::set(&memory().read(), *to, &pattern[..usize::from(*width)], *bytes, *reach)
            }
            Op::Free(address) => memory().write().free(*address).map_err(|_| Code::ILLEGAL_ADDRESS),
        }
    }

    /// Returns the range that it writes, for reports.
    pub(crate) fn target(&self) -> (u64, u64) {
        match self {
            Op::After(_) | Op::Gate(_) | Op::Stamp { .. } | Op::Host(_) => (0, 0),
            Op::Copy { to, bytes, .. } | Op::Set { to, bytes, .. } => (*to, *bytes),
            Op::Write { to, data, .. } => (*to, data.len() as u64),
            Op::Free(address) => (*address, 0),
        }
    }

    /// Returns whether it is going to touch any byte of a range.
    pub(crate) fn touches(&self, address: u64, bytes: u64) -> bool {
        let meets = |start: u64, length: u64| length > 0 && start < address + bytes && address < start + length;
        let (to, length) = self.target();
        let source = if let Op::Copy { from, bytes, .. } = self { (*from, *bytes) } else { (0, 0) };
        meets(to, length) || meets(source.0, source.1)
    }
}
