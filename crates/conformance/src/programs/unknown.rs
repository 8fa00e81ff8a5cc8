//! Stream numbers that the device does not have: they are refused before anything is kept for them.

use millpond::Error;
use millpond_backend::{Backend as _, Point, StreamId, Tick};

use crate::device::DeviceUnderTest;
use crate::session::{Session, Setup, Stop};
use millpond::settings::Policy;

/// The sizes in bytes of blocks that cause misses: a small one, and two that are larger than a shared segment of the
/// small pool.
const BYTES: [u64; 3] = [1000, 3 << 20, 12 << 20];

/// Checks that the device knows only its own streams, that every call with a number refuses an unknown one, and that
/// other streams are not affected by these calls.
pub(super) fn refused<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let session = Session::open(device, &Setup { policy, conf: "", limit: None, streams: 2, bytes: false })?;
    let allocator = session.watched.allocator();
    for stream in &session.streams {
        if !session.backend().has_stream(stream.id()) {
            return Err(Stop::Fail(format!(
                "the device has opened {}, and says that it has no such stream",
                stream.id()
            )));
        }
        allocator.stream(stream.id()).map_err(|error| error.to_string())?;
    }
    // Devices number streams densely, so a number far above belongs to no stream.
    let next = session.streams.iter().map(|stream| stream.id().0 + 1).max().unwrap_or_default();
    for unknown in [next, 20_000_000, u32::MAX].map(StreamId) {
        if session.backend().has_stream(unknown) {
            return Err(Stop::Fail(format!("the device says that it has {unknown}, which it never opened")));
        }
        let point = Point { stream: unknown, tick: Tick(1) };
        let block = session.watched.allocate(&session.streams[0], BYTES[0]).map_err(|trouble| trouble.to_string())?;
        let answers = [
            ("stream", allocator.stream(unknown).map(drop)),
            ("used_until", session.watched.used_until(&block, point)),
            ("wait_for", session.streams[0].wait_for(point)),
        ];
        session.watched.free(block);
        for (call, answer) in answers {
            match answer {
                Err(Error::UnknownStream { stream }) if stream == unknown => {}
                Err(Error::Unsupported { .. }) if call == "wait_for" => {}
                Err(error) => return Err(Stop::Fail(format!("`{call}` with {unknown}: {error}"))),
                Ok(()) => return Err(Stop::Fail(format!("`{call}` takes {unknown}, which the device does not have"))),
            }
        }
        for (stream, bytes) in session.streams.iter().cycle().zip(BYTES) {
            let block = session.watched.allocate(stream, bytes).map_err(|trouble| trouble.to_string())?;
            session.watched.free(block);
            session.check()?;
        }
    }
    allocator.empty_cache().map_err(|error| error.to_string())?;
    session.finish()
}
