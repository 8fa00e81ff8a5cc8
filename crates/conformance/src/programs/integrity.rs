//! Integrity of bytes: device work finds what device work wrote, whatever the allocator did in between.

use millpond::settings::{Policy, RecordStream, Settings};
use millpond_trace::Random;

use crate::device::DeviceUnderTest;
use crate::session::{Session, Setup, Stop};
use crate::swarm::{self, Case, Swarm};

/// The number of seeds of one test run for each device and policy. The swarm's own command runs any number.
const SEEDS: u64 = 6;
const OPERATIONS: u32 = 150;

/// Runs random programs without faults, with evidence from every block.
pub(super) fn patterns<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let mut seen = 0;
    for seed in 0..SEEDS {
        let swarm = Swarm { seed, operations: OPERATIONS, policy, faults: false, check_every: 8 };
        let tally = swarm::run_or_stop(device, &swarm)?;
        if tally.evidence == 0 {
            return Err(Stop::Skip("the device neither fills nor copies".to_owned()));
        }
        seen += tally.grants;
    }
    if seen == 0 { Err(Stop::Fail("no seed led to a grant".to_owned())) } else { Ok(()) }
}

/// Runs random programs in which driver calls fail, where the device supports that.
pub(super) fn swarm<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    for seed in 0..SEEDS {
        let swarm = Swarm { seed: 1000 + seed, operations: OPERATIONS, policy, faults: true, check_every: 8 };
        swarm::run_or_stop(device, &swarm)?;
    }
    Ok(())
}

/// Runs random programs where what other streams have used is held, as the oracle demands then.
pub(super) fn held<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let settings = Settings { record_stream: RecordStream::Hold, ..Settings::default() };
    let case = Case { settings, ..Case::new(device, policy) };
    for seed in 0..SEEDS {
        let swarm = Swarm { seed: 2000 + seed, operations: OPERATIONS, policy, faults: false, check_every: 8 };
        swarm::case_or_stop(&case, &swarm)?;
    }
    Ok(())
}

/// The number of blocks that are live at once.
const BLOCKS: usize = 12;
const ROUNDS: usize = 4;

/// Checks every byte of every block by reading it on the host: blocks next to each other, then the same memory again.
pub(super) fn whole_blocks<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let session = Session::open(device, &Setup { policy, conf: "", limit: None, streams: 2, bytes: true })?;
    session.transfer()?;
    let mut random = Random::new(7);
    for round in 0..ROUNDS {
        let mut blocks = Vec::new();
        for at in 0..BLOCKS {
            let (home, value) = (at % 2, (round * BLOCKS + at + 1) as u8);
            let bytes = random.bytes(1, 2 << 20);
            let granted = session.watched.allocate(&session.streams[home], bytes);
            let tenancy = granted.map_err(|trouble| format!("{bytes} bytes: {trouble}"))?;
            session.fill(home, &tenancy, value)?;
            blocks.push((tenancy, home, value));
        }
        for (tenancy, home, value) in blocks {
            session.verify(home, &tenancy, value)?;
            session.watched.free(tenancy);
        }
        session.check()?;
    }
    session.finish()
}
