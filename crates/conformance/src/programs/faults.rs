//! Failures of every driver call: a scripted program runs with its first fallible call failing, then with its second,
//! and so on. Whichever call fails, the error has the right type, the allocator stays consistent and continues, and all
//! memory is given back.

use millpond::Error;
use millpond_backend::{Backend, Fault};

use crate::device::DeviceUnderTest;
use crate::language::{Noted, Operation};
use crate::session::{Session, Setup, Stop, device_is_content};
use crate::watched::{Tenancy, Trouble};
use millpond::settings::Policy;

/// The most driver calls that the script may make. More would mean that it does not end.
const CALLS_MAX: u64 = 2000;

/// Returns a limit that is small enough that the script reaches it, and has to release memory to continue: a page or a
/// segment of the small pool, one of 20 MiB, and one of 22 MiB.
fn limit_bytes(backend: &impl Backend) -> u64 {
    let page = backend.caps().pages.map_or(0, |pages| pages.granularity);
    [2, 20, 22].map(|mib: u64| (mib << 20).next_multiple_of(page.max(1))).iter().sum()
}

/// The most blocks that the script holds at once. It uses their numbers again.
const BLOCKS: usize = 4;
const STREAMS: usize = 2;

/// How often a run on a device that stays open is compared with one on a device that was just opened.
const TRIES: u32 = 3;

/// The script: growth on both sides, reuse, a use across streams, a wait for it under pressure, trimming, emptying,
/// growth again, and a block that becomes longer.
const SCRIPT: [Operation; 32] = [
    allocate(0, 1000, 0),
    allocate(1, 3 << 20, 0),
    Operation::Hold { stream: 1 },
    share(1, 1),
    Operation::Free { block: 1 },
    allocate(1, 3 << 20, 0),
    Operation::Poll,
    allocate(2, 12 << 20, 1),
    Operation::Hold { stream: 0 },
    share(2, 0),
    Operation::Free { block: 2 },
    Operation::Unhold { stream: 0 },
    Operation::Unhold { stream: 1 },
    allocate(3, 21 << 20, 0),
    Operation::Free { block: 3 },
    Operation::Free { block: 1 },
    Operation::Trim { bytes: 24 << 20 },
    allocate(1, 700 << 10, 1),
    Operation::Hold { stream: 1 },
    Operation::Free { block: 1 },
    Operation::EmptyCache,
    Operation::Unhold { stream: 1 },
    allocate(2, 2 << 20, 1),
    Operation::Free { block: 0 },
    Operation::Poll,
    Operation::EmptyCache,
    Operation::AllocateGrowable { block: 0, bytes: 3 << 20, capacity: 30 << 20, stream: 0 },
    Operation::Grow { block: 0, bytes: 5 << 20 },
    Operation::Grow { block: 0, bytes: 7 << 20 },
    Operation::Free { block: 2 },
    Operation::Grow { block: 0, bytes: 11 << 20 },
    Operation::Free { block: 0 },
];

const fn allocate(block: u32, bytes: u64, stream: usize) -> Operation {
    Operation::Allocate { block, bytes, stream }
}

/// Records a use on another stream; the block is kept.
const fn share(block: u32, stream: usize) -> Operation {
    Operation::Use { block, stream, noted: Noted::Before, keep: true }
}

/// The number of errors that the script met.
#[derive(Default)]
struct Met {
    errors: u64,
    losses: u64,
}

pub(super) fn out_of_memory<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    each_call(device, policy, Fault::OutOfMemory)
}

pub(super) fn other<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    each_call(device, policy, Fault::Other)
}

pub(super) fn lost<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    each_call(device, policy, Fault::Lost)
}

fn each_call<D: DeviceUnderTest>(device: &D, policy: Policy, fault: Fault) -> Result<(), Stop> {
    let mut runs = Runs { device, policy, open: None };
    let (calls, kept) = runs.clean()?;
    if calls == 0 || calls > CALLS_MAX {
        return Err(Stop::Fail(format!("the script makes {calls} fallible driver calls, expected 1 to {CALLS_MAX}")));
    }
    if fault != Fault::Lost {
        runs.open = kept;
        if !runs.repeats(calls)? {
            runs.open = None;
        }
    }
    for nth in 1..=calls {
        runs.failing(nth, fault).map_err(|stop| match stop {
            Stop::Fail(text) => Stop::Fail(format!("driver call {nth} of {calls} fails with {fault:?}: {text}")),
            skip => skip,
        })?;
    }
    Ok(())
}

/// Runs of the script: each on a device that is opened for it, or all on one that stays open, as opening takes a second
/// on some machines, and there is a run for each call.
struct Runs<'d, D: DeviceUnderTest> {
    device: &'d D,
    policy: Policy,
    open: Option<D::Backend>,
}

impl<'d, D: DeviceUnderTest> Runs<'d, D> {
    fn session(&self) -> Result<Session<'d, D>, Stop> {
        let setup = Setup { policy: self.policy, conf: "", limit: None, streams: STREAMS as u32, bytes: false };
        let session = match self.open.as_ref().and_then(|open| self.device.twin(open)) {
            Some(open) => Session::open_again(self.device, open, &setup)?,
            None => Session::open(self.device, &setup)?,
        };
        session.watched.allocator().set_limit(Some(limit_bytes(session.backend())));
        Ok(session)
    }

    /// Runs the script without any fault. Returns the number of fallible calls that it makes, and another handle of the
    /// device.
    fn clean(&self) -> Result<(u64, Option<D::Backend>), Stop> {
        let session = self.session()?;
        let twin = self.device.twin(session.backend());
        let count = || self.device.fallible_calls(session.backend());
        let before = count().ok_or_else(|| Stop::Skip("the device cannot make a driver call fail".to_owned()))?;
        let met = script(&session, Fault::Other)?;
        if met.errors + met.losses > 0 {
            return Err(Stop::Fail(format!("without any fault the script meets {} errors", met.errors + met.losses)));
        }
        let calls = count().unwrap_or(before) - before;
        session.finish()?;
        Ok((calls, twin))
    }

    /// Returns whether the script makes as many calls on the device that stays open as on one that was just opened.
    /// What a device calls once in its life would otherwise fail in no run. How often a device is asked may depend on
    /// its speed, hence several tries.
    fn repeats(&self, calls: u64) -> Result<bool, Stop> {
        let anew = Self { open: None, ..*self };
        let (mut most, mut fewest) = (0, calls);
        for _ in 0..TRIES {
            most = most.max(self.clean()?.0);
            if most >= fewest {
                return Ok(true);
            }
            fewest = fewest.min(anew.clean()?.0);
        }
        Ok(false)
    }

    fn failing(&self, nth: u64, fault: Fault) -> Result<(), Stop> {
        let session = self.session()?;
        if !self.device.fail_nth(session.backend(), nth, fault) {
            return Err(Stop::Skip("the device cannot make a driver call fail".to_owned()));
        }
        let met = script(&session, fault)?;
        self.device.forget_faults(session.backend());
        if fault == Fault::Lost {
            // What a lost device still holds is not checked. Dropping everything must end, and must break no rule of
            // the contract.
            let Session { device, watched, streams, twin, .. } = session;
            drop((streams, watched));
            return twin.map_or(Ok(()), |twin| Ok(device_is_content(device, &twin)?));
        }
        if met.errors > 1 || met.losses > 0 {
            return Err(Stop::Fail(format!("one fault led to {} errors", met.errors + met.losses)));
        }
        session.finish()
    }
}

/// Runs the script. An operation that fails is tried once more, and must then succeed unless the device is lost.
fn script<D: DeviceUnderTest>(session: &Session<'_, D>, fault: Fault) -> Result<Met, Stop> {
    let mut blocks: [Option<Tenancy<D::Backend>>; BLOCKS] = [const { None }; BLOCKS];
    let mut met = Met::default();
    for (at, operation) in SCRIPT.iter().enumerate() {
        let mut result = perform(session, &mut blocks, *operation);
        let failed = matches!(result, Err(Trouble::Refused(_)));
        if let Err(Trouble::Refused(error)) = &result {
            typed(error, fault, &mut met).map_err(|text| format!("operation {at}: {text}"))?;
            session.watched.check(true).map_err(|text| format!("after the error in operation {at}: {text}"))?;
        }
        if failed && fault != Fault::Lost {
            result = perform(session, &mut blocks, *operation);
        }
        match result {
            Err(Trouble::Refused(_)) if fault == Fault::Lost => {}
            Err(trouble) => return Err(Stop::Fail(format!("operation {at}: {trouble}"))),
            Ok(()) => {}
        }
        session.check()?;
    }
    blocks.into_iter().flatten().for_each(|tenancy| session.watched.free(tenancy));
    Ok(met)
}

/// Checks that the error reports the fault: as the driver's own error, or as a lack of memory with a report.
fn typed<E: millpond_backend::BackendError>(error: &Error<E>, fault: Fault, met: &mut Met) -> Result<(), String> {
    let fits = match error {
        Error::Driver { lost, source, .. } => source.fault() == fault && *lost == (fault == Fault::Lost),
        Error::OutOfMemory(_) => fault == Fault::OutOfMemory,
        _ => false,
    };
    if error.fault() == Fault::Lost {
        met.losses += 1;
    } else {
        met.errors += 1;
    }
    if fits { Ok(()) } else { Err(format!("the fault {fault:?} is reported as {error:?}")) }
}

/// Performs an operation of the script. Blocks have no bytes here, as devices without transfers run it too.
fn perform<D: DeviceUnderTest>(
    session: &Session<'_, D>,
    blocks: &mut [Option<Tenancy<D::Backend>>; BLOCKS],
    operation: Operation,
) -> Result<(), Trouble<<D::Backend as Backend>::Error>> {
    let (watched, streams) = (&session.watched, &session.streams);
    match operation {
        Operation::Allocate { block, bytes, stream } => {
            blocks[block as usize] = Some(watched.allocate(&streams[stream], bytes)?);
        }
        Operation::AllocateGrowable { block, bytes, capacity, stream } => {
            match watched.allocate_growable(&streams[stream], bytes, capacity) {
                Err(Trouble::Refused(Error::Unsupported { .. })) => {}
                got => blocks[block as usize] = Some(got?),
            }
        }
        Operation::Grow { block, bytes } => {
            if let Some(tenancy) = &mut blocks[block as usize] {
                watched.grow(tenancy, bytes)?;
            }
        }
        Operation::Free { block } => {
            blocks[block as usize].take().into_iter().for_each(|tenancy| watched.free(tenancy));
            streams.iter().for_each(|stream| session.device.submit(session.backend(), stream.id()));
        }
        Operation::Use { block, stream, .. } => {
            if let Some(tenancy) = &blocks[block as usize] {
                watched.record_stream(tenancy, &streams[stream])?;
            }
        }
        Operation::Hold { stream } => drop(session.device.hold(session.backend(), streams[stream].id())),
        Operation::Unhold { stream } => session.device.unhold(session.backend(), streams[stream].id()),
        Operation::Poll => _ = watched.allocator().poll()?,
        Operation::Trim { bytes } => drop(watched.allocator().trim(bytes)?),
        Operation::EmptyCache => watched.allocator().empty_cache()?,
        other => unreachable!("the script has no {other:?}"),
    }
    Ok(())
}
