//! The promise across devices: on every device that reuses in order and has the same pages, the same program leads to
//! the same decisions, the same layout and the same statistics.

use millpond::{Decision, MemoryStats, SegmentId, Side};
use millpond_backend::{Backend, Closing, PageCaps, Reuse};
use millpond_sim::Completion;

use crate::device::DeviceUnderTest;
use crate::scenario::Policy;
use crate::session::{Session, Setup, Stop};
use crate::sim::SimDevice;
use crate::swarm::Random;

const STREAMS: u32 = 3;
const OPERATIONS: usize = 400;
const LIMIT_BYTES: u64 = 160 << 20;

/// What a program led to, without anything that a driver chose.
#[derive(PartialEq, Debug)]
struct Trail {
    decisions: Vec<Decision>,
    layout: Vec<Tiles>,
    stats: MemoryStats,
}

/// A segment: its number, its side, its length, and its blocks as offset and length.
#[derive(PartialEq, Debug)]
struct Tiles(SegmentId, Side, u64, Vec<(u64, u64)>);

/// Runs one program here and on the reference, and compares.
pub(super) fn same_as_simulated<D: DeviceUnderTest>(device: &D, policy: &Policy) -> Result<(), Stop> {
    let (here, pages) = trail(device, policy)?;
    let reference = SimDevice::new(Closing::Backend, Reuse::InOrder, Completion::Immediate).pages(pages);
    let (there, _) = trail(&reference, policy)?;
    if let Some(at) = (0..here.decisions.len().max(there.decisions.len()))
        .find(|&at| here.decisions.get(at) != there.decisions.get(at))
    {
        let (ours, theirs) = (here.decisions.get(at), there.decisions.get(at));
        return Err(Stop::Fail(format!("decision {at} is {ours:?}, and on the reference {theirs:?}")));
    }
    if here.layout != there.layout {
        return Err(Stop::Fail(format!("the layout is {:?}, and on the reference {:?}", here.layout, there.layout)));
    }
    if here.stats != there.stats {
        return Err(Stop::Fail(format!("the statistics are {:?}, and on the reference {:?}", here.stats, there.stats)));
    }
    Ok(())
}

/// Runs the program, and answers with what it led to what pages the device has: decisions follow from those.
fn trail<D: DeviceUnderTest>(device: &D, policy: &Policy) -> Result<(Trail, Option<PageCaps>), Stop> {
    let conf = "max_split_size_mb:21,garbage_collection_threshold:0.8";
    let session =
        Session::open(device, &Setup { policy, conf, limit: Some(LIMIT_BYTES), streams: STREAMS, bytes: false })?;
    if session.backend().caps().reuse != Reuse::InOrder {
        return Err(Stop::Skip("the device does not reuse in order".to_owned()));
    }
    let allocator = session.watched.allocator();
    allocator.start_decisions();
    let mut random = Random::new(42);
    let mut blocks = Vec::new();
    for at in 0..OPERATIONS {
        match random.below(20) {
            0..11 => {
                let bytes = random.bytes(256, 24 << 20);
                let stream = &session.streams[random.below(session.streams.len())];
                match session.watched.allocate(stream, bytes) {
                    Ok(tenancy) => blocks.push(tenancy),
                    Err(trouble) if blocks.is_empty() => return Err(Stop::Fail(format!("operation {at}: {trouble}"))),
                    Err(_) => session.watched.free(blocks.swap_remove(random.below(blocks.len()))),
                }
            }
            // Submitted and waited for, so that the device's pace has no say.
            11 => session.sync()?,
            12 if random.once_in(4) => {
                session.sync()?;
                allocator.trim(LIMIT_BYTES / 2).map_err(|error| error.to_string())?;
            }
            _ if !blocks.is_empty() => session.watched.free(blocks.swap_remove(random.below(blocks.len()))),
            _ => {}
        }
        // A release under pressure finds the same work done on every device.
        session.sync()?;
    }
    let decisions = allocator.finish_decisions();
    let layout = allocator.layout().into_iter().map(|view| {
        let blocks = view.blocks.iter().map(|block| (block.offset, block.size)).collect();
        Tiles(view.id, view.side, view.bytes, blocks)
    });
    let trail = Trail { layout: layout.collect(), stats: allocator.stats(), decisions };
    blocks.into_iter().for_each(|tenancy| session.watched.free(tenancy));
    let pages = session.backend().caps().pages;
    session.finish()?;
    Ok((trail, pages))
}
