//! Overwriting: the next user of memory does not find what the previous one left, where the configuration asks for
//! that.
//!
//! Every stream writes a byte of its own over the whole of each of its blocks, including what rounding added. Before
//! that, it reads the whole of each block that it is granted.

use millpond::settings::Policy;
use millpond_trace::Random;

use crate::device::DeviceUnderTest;
use crate::session::{Session, Setup, Stop};
use crate::watched::Tenancy;

const STREAMS: usize = 2;
const ROUNDS: usize = 3;
/// The number of blocks that a stream has at once.
const BLOCKS: usize = 6;
/// The size of the largest block, in bytes: more than a page, so that windows are used, and little enough for devices
/// in software.
const MOST_BYTES: u64 = 3 << 20;
/// The number of bytes of a block that are read at a time.
const PART_BYTES: usize = 1 << 20;

/// Checks that a stream finds only its own bytes or zeros.
pub(super) fn other_streams<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    run(device, policy, "scrub:other_streams", true)
}

/// Checks that a stream finds only zeros.
pub(super) fn always<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    run(device, policy, "scrub:always", false)
}

fn run<D: DeviceUnderTest>(device: &D, policy: Policy, conf: &str, may_see_own: bool) -> Result<(), Stop> {
    let without = Session::open(device, &Setup { policy, conf: "", limit: None, streams: 0, bytes: true })?;
    without.transfer()?;
    without.finish()?;
    let session = Session::open(device, &Setup { policy, conf, limit: None, streams: STREAMS as u32, bytes: true })?;
    let mut random = Random::new(11);
    for round in 0..ROUNDS {
        // The streams take turns, so that memory can pass from one to the other.
        for home in 0..STREAMS {
            let mut blocks = Vec::new();
            for _ in 0..BLOCKS {
                blocks.push(occupied(&session, home, random.bytes(1, MOST_BYTES), may_see_own)?);
            }
            // This makes holes that smaller blocks are cut from, and whose neighbours are joined.
            for at in (0..BLOCKS / 2).rev() {
                session.watched.free(blocks.remove(2 * at));
            }
            blocks.push(occupied(&session, home, random.bytes(1, 1 << 16), may_see_own)?);
            blocks.into_iter().for_each(|block| session.watched.free(block));
            session.sync()?;
            session.check()?;
        }
        if round == 1 {
            let emptied = session.watched.allocator().empty_cache();
            emptied.map_err(|error| format!("empty_cache: {error}"))?;
        }
    }
    session.finish()
}

/// Allocates a block, checks that it holds no byte that is not allowed, and fills it with the stream's own byte.
fn occupied<D: DeviceUnderTest>(
    session: &Session<'_, D>,
    home: usize,
    bytes: u64,
    may_see_own: bool,
) -> Result<Tenancy<D::Backend>, Stop> {
    let granted = session.watched.allocate(&session.streams[home], bytes);
    let block = granted.map_err(|trouble| format!("{bytes} bytes: {trouble}"))?;
    let own = 0xA1 + home as u8;
    let (stream, mover) = (session.streams[home].id(), session.transfer()?);
    let Some(segment) = block.segment() else { return Err(Stop::Fail(format!("{bytes} bytes lie nowhere"))) };
    let mut seen = vec![0xEE; PART_BYTES];
    for begin in (0..block.capacity()).step_by(PART_BYTES) {
        let length = PART_BYTES.min((block.capacity() - begin) as usize);
        let part = &mut seen[..length];
        let read = mover.download(stream, segment, block.offset() + begin, part);
        read.map_err(|error| format!("download on {stream}: {error}"))?;
        if let Some(at) = part.iter().position(|&byte| byte != 0 && !(may_see_own && byte == own)) {
            let (found, at) = (part[at], begin + at as u64);
            let text = format!("{:?}, just granted, holds {found:#04x} at byte {at}: somebody else's", *block);
            return Err(Stop::Fail(text));
        }
    }
    session.fill(home, &block, own)?;
    Ok(block)
}
