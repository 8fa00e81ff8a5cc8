//! Groups of memory that are paused and resumed on a device: their contents, their addresses, and a failure of every
//! driver call on the way.
//!
//! These checks are not part of the suite, because page-locked memory for the contents needs a backend that can be
//! cloned.

use millpond::backend::Fault;
use millpond::settings::{Growth, Policy};
use millpond::{Group, Keep};

use crate::device::DeviceUnderTest;
use crate::session::{Session, Setup, Stop};
use crate::watched::Tenancy;

/// The lengths of the blocks of a group: small ones, and large ones of several pages.
const BLOCKS: [u64; 4] = [1000, 700 << 10, 3 << 20, 9 << 20];

/// Pauses and resumes a group on a device, without a fault and with each driver call failing once. Returns the reason
/// if the device lacks what that needs, such as virtual memory.
///
/// # Errors
///
/// Returns what a group did that it must not.
pub fn pause_and_resume<D: DeviceUnderTest>(device: &D) -> Result<Option<String>, String>
where
    D::Backend: Clone,
{
    match each_call(device) {
        Ok(()) => Ok(None),
        Err(Stop::Skip(why)) => Ok(Some(why)),
        Err(Stop::Fail(text)) => Err(text),
    }
}

fn each_call<D: DeviceUnderTest>(device: &D) -> Result<(), Stop>
where
    D::Backend: Clone,
{
    let _turn = device.turn();
    let Some(calls) = Scene::new(device)?.turn_without_faults()? else { return Ok(()) };
    if calls == 0 {
        return Err(Stop::Fail("a pause and a resume make no fallible driver call".to_owned()));
    }
    for fault in [Fault::OutOfMemory, Fault::Other] {
        for nth in 1..=calls {
            let failed = Scene::new(device)?.turn_with_fault(nth, fault);
            failed.map_err(|stop| match stop {
                Stop::Fail(text) => Stop::Fail(format!("call {nth} of {calls} fails with {fault:?}: {text}")),
                skip => skip,
            })?;
        }
    }
    Ok(())
}

/// A group with blocks, each of which was filled with its number.
struct Scene<'d, D: DeviceUnderTest> {
    session: Session<'d, D>,
    group: Group<D::Backend>,
    blocks: Vec<Tenancy<D::Backend>>,
}

impl<'d, D: DeviceUnderTest> Scene<'d, D>
where
    D::Backend: Clone,
{
    fn new(device: &'d D) -> Result<Self, Stop> {
        let setup = Setup { policy: Policy::paged(Growth::Tight), conf: "", limit: None, streams: 2, bytes: true };
        let session = Session::open(device, &setup)?;
        session.transfer()?;
        let allocator = session.watched.allocator();
        if let Err(error) = allocator.pinned() {
            return Err(Stop::Skip(error.to_string()));
        }
        let group = allocator.group("weights").map_err(|error| error.to_string())?;
        let mut blocks = Vec::new();
        for (at, &bytes) in BLOCKS.iter().enumerate() {
            let home = at % session.streams.len();
            let stream = group.stream(session.streams[home].id()).map_err(|error| error.to_string())?;
            let block = session.watched.allocate(&stream, bytes).map_err(|error| error.to_string())?;
            session.fill(home, &block, at as u8 + 1)?;
            blocks.push(block);
        }
        session.sync()?;
        Ok(Self { session, group, blocks })
    }

    /// Checks that the group is paused or not, and that everything else is as it must be.
    fn expect(&self, paused: bool) -> Result<(), Stop> {
        if self.group.is_paused() != paused {
            return Err(Stop::Fail(format!("the group is {:?}, and should be paused: {paused}", self.group.stats())));
        }
        let stats = self.group.stats();
        if (stats.reserved_bytes == 0) != paused || (stats.paused_bytes > 0) != paused {
            return Err(Stop::Fail(format!("paused: {paused}, with {stats:?}")));
        }
        self.session.check()
    }

    fn expect_contents(&self) -> Result<(), Stop> {
        for (at, block) in self.blocks.iter().enumerate() {
            self.session.verify(at % self.session.streams.len(), block, at as u8 + 1)?;
        }
        Ok(())
    }

    /// Pauses and resumes without a fault, and frees what is left. Returns the number of fallible driver calls of that,
    /// where the device counts them and can make them fail.
    fn turn_without_faults(self) -> Result<Option<u64>, Stop> {
        let count = || self.session.device.fallible_calls(self.session.backend());
        let before = count();
        self.group.pause(Keep::Host).map_err(|error| format!("a pause: {error}"))?;
        self.expect(true)?;
        self.group.resume().map_err(|error| format!("a resume: {error}"))?;
        let calls = count().zip(before).map(|(after, before)| after - before);
        self.expect(false)?;
        self.expect_contents()?;
        self.group.pause(Keep::Discard).map_err(|error| format!("a pause: {error}"))?;
        self.expect(true)?;
        let can_fail = self.session.device.fail_nth(self.session.backend(), u64::MAX, Fault::Other);
        self.session.device.forget_faults(self.session.backend());
        // What is freed while it is paused goes back once it is resumed.
        let Self { session, group, blocks } = self;
        blocks.into_iter().for_each(|block| session.watched.free(block));
        group.resume().map_err(|error| format!("a resume: {error}"))?;
        drop(group);
        session.finish()?;
        Ok(calls.filter(|_| can_fail))
    }

    /// Pauses and resumes with a call that fails. Whatever failed works when it is tried again.
    fn turn_with_fault(self, nth: u64, fault: Fault) -> Result<(), Stop> {
        let count = || self.session.device.fallible_calls(self.session.backend()).unwrap_or(0);
        let before = count();
        self.session.device.fail_nth(self.session.backend(), nth, fault);
        if let Err(error) = self.group.pause(Keep::Host) {
            self.expect(false).map_err(|stop| after(&stop, "the failed pause", &error))?;
            self.group.pause(Keep::Host).map_err(|again| format!("a pause after {error}: {again}"))?;
        }
        self.expect(true)?;
        if let Err(error) = self.group.resume() {
            self.expect(true).map_err(|stop| after(&stop, "the failed resume", &error))?;
            self.group.resume().map_err(|again| format!("a resume after {error}: {again}"))?;
        }
        self.session.device.forget_faults(self.session.backend());
        if count() - before < nth {
            // The copies waited less often this time. The fault may still be to come, where it cannot be forgotten.
            return Ok(());
        }
        self.expect(false)?;
        self.expect_contents()?;
        let Self { session, group, blocks } = self;
        blocks.into_iter().for_each(|block| session.watched.free(block));
        drop(group);
        session.finish()
    }
}

fn after(stop: &Stop, what: &str, error: &dyn std::fmt::Display) -> Stop {
    Stop::Fail(format!("after {what} ({error}): {stop:?}"))
}
