//! The uses of one slice's memory by streams: which wait for which, and which the memory waits for.

use std::sync::Arc;

use cudarc::driver::sys::{CUresult, CUstreamCaptureStatus_enum as Capture};
use cudarc::driver::{CudaContext, CudaStream, DriverError, SyncOnDrop};
use millpond::{Buffer, Error};
use parking_lot::Mutex;

use super::streams::{Known, SliceAllocator};
use crate::device::Cuda;
use crate::error::CudaError;
use crate::streams::Key;

/// A count of writes that no stream has seen.
const NEVER: u64 = u64::MAX;

/// How a use touches the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read,
    /// A write to a part, beside which other parts may be written by other streams.
    WritePart,
    /// A write by the only code that has the slice: later uses need to wait for nothing else.
    WriteAll,
}

/// A stream that uses the memory.
struct User {
    known: Arc<Known>,
    /// Whether it wrote. The home stream did: it frees what had the memory before.
    wrote: bool,
    /// The count of writes when it last waited for all of them.
    seen: u64,
}

/// The streams whose uses may be in flight. Empty while the home stream alone has used the memory.
#[derive(Default)]
struct Users {
    users: Vec<User>,
    writes: u64,
}

/// The memory of a slice with its uses.
pub(super) struct Core {
    buffer: Buffer<Cuda>,
    home: Arc<Known>,
    allocator: SliceAllocator,
    uses: Mutex<Users>,
}

impl Core {
    pub(super) fn new(buffer: Buffer<Cuda>, home: Arc<Known>, allocator: SliceAllocator) -> Core {
        Core { buffer, home, allocator, uses: Mutex::default() }
    }

    pub(super) fn buffer(&self) -> &Buffer<Cuda> {
        &self.buffer
    }

    pub(super) fn home(&self) -> &Arc<CudaStream> {
        &self.home.own
    }

    /// Notes a use by a stream that cudarc names, before the use is queued, and orders it. The guard is dropped after
    /// it was queued.
    pub(super) fn enter<'a>(&'a self, stream: &'a CudaStream, access: Access) -> SyncOnDrop<'a> {
        let same_context = stream.context().cu_ctx() == self.home().context().cu_ctx();
        let is_home = same_context && Key::of(stream.cu_stream()) == self.home.key;
        if is_home && self.allocator.is_registered(&self.home) {
            self.enter_home(access);
            return SyncOnDrop::Sync(None);
        }
        let Some(known) = self.allocator.find_or_default(stream) else { return self.enter_unknown(stream, access) };
        if self.use_on(&known, access).is_err() {
            leave(stream.context());
        }
        SyncOnDrop::Sync(None)
    }

    /// Notes a use by the stream that the home's handle means on this thread: the home stream, unless that is the
    /// default stream of another thread. Once it is not registered any more, the memory cannot wait for it.
    pub(super) fn enter_home(&self, access: Access) {
        let is_home = Key::of(self.home().cu_stream()) == self.home.key;
        let entered = if !is_home {
            self.allocator.find_or_default(self.home()).is_some_and(|own| self.use_on(&own, access).is_ok())
        } else {
            self.allocator.is_registered(&self.home) && self.use_on(&self.home, access).is_ok()
        };
        if !entered {
            leave(self.home().context());
        }
    }

    /// Notes a use by an application's stream, and registers it where it is new.
    pub(super) fn enter_registered(&self, stream: &Arc<CudaStream>, access: Access) -> Result<(), Error<CudaError>> {
        let stream = self.allocator.stream(stream)?;
        self.use_on(&stream.known, access)
    }

    /// Makes the stream wait for the uses that it must come after, and the memory for the stream. The lock is held
    /// during the waits: another use on the same stream must find them queued.
    fn use_on(&self, who: &Arc<Known>, access: Access) -> Result<(), Error<CudaError>> {
        let mut uses = self.uses.lock();
        let is_home = Arc::ptr_eq(who, &self.home);
        if uses.users.is_empty() {
            if is_home {
                return Ok(());
            }
            uses.users.push(User { known: Arc::clone(&self.home), wrote: true, seen: 0 });
        }
        let Users { users, writes } = &mut *uses;
        let at = match users.iter().position(|user| Arc::ptr_eq(&user.known, who)) {
            Some(at) => at,
            None => {
                self.buffer.record_stream(&who.stream)?;
                users.push(User { known: Arc::clone(who), wrote: false, seen: NEVER });
                users.len() - 1
            }
        };
        let mut ordered = true;
        if access != Access::Read || users[at].seen != *writes {
            for (other, user) in users.iter().enumerate() {
                if other != at && (user.wrote || access != Access::Read) {
                    ordered &= wait(who, user)?;
                }
            }
        }
        if access != Access::Read {
            *writes += 1;
            users[at].wrote = true;
        }
        users[at].seen = if ordered { *writes } else { NEVER };
        if access == Access::WriteAll && ordered {
            users.swap(0, at);
            users.truncate(if is_home { 0 } else { 1 });
        }
        Ok(())
    }

    /// Orders a use by a stream that is not registered, which the host waits for after it was queued: nothing keeps
    /// such a stream alive, so no point of it can be waited for later.
    fn enter_unknown<'a>(&'a self, stream: &'a CudaStream, access: Access) -> SyncOnDrop<'a> {
        if is_captured(stream) {
            refuse_capture(stream.context());
            return SyncOnDrop::Sync(None);
        }
        let uses = self.uses.lock();
        if uses.users.is_empty() {
            join(stream, self.home());
        }
        for user in uses.users.iter().filter(|user| user.wrote || access != Access::Read) {
            join(stream, &user.known.own);
        }
        SyncOnDrop::Sync(Some(stream))
    }
}

/// Makes a stream wait for all that another has queued. Returns `false` if one of them is captured: neither can wait
/// for the other then.
fn wait(who: &Known, user: &User) -> Result<bool, Error<CudaError>> {
    match who.stream.wait_for(user.known.stream.point()) {
        Ok(()) => Ok(true),
        Err(Error::Driver { source: CudaError::Capturing { .. }, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a stream wait for all that another has queued, unless that one is captured: the stream would become part of
/// the capture.
fn join(stream: &CudaStream, other: &CudaStream) {
    if is_captured(other) {
        refuse_capture(stream.context());
    } else {
        stream.context().record_err(stream.join(other));
    }
}

fn is_captured(stream: &CudaStream) -> bool {
    !matches!(stream.capture_status(), Ok(Capture::CU_STREAM_CAPTURE_STATUS_NONE))
}

fn refuse_capture(context: &CudaContext) {
    context.record_err(Err::<(), _>(DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)));
}

/// Leaves an error with a context, whose next call returns it. The bindings have no value for an error of ours.
fn leave(context: &CudaContext) {
    context.record_err(Err::<(), _>(DriverError(CUresult::CUDA_ERROR_UNKNOWN)));
}
