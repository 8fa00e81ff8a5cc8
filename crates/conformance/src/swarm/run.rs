//! One run of the swarm.

use millpond::Error;
use millpond_backend::{Backend, Fault, StreamId};

use super::mix::{Kind, Mix};
use super::random::Random;
use super::{Swarm, Tally};
use crate::device::DeviceUnderTest;
use crate::evidence::Evidence;
use crate::session::{Session, Setup, Stop};
use crate::watched::{Tenancy, Trouble};

/// How soon a planned fault strikes, in driver calls.
const FAULT_WITHIN: usize = 12;

/// A block in the program's hands.
struct Block<B: Backend> {
    tenancy: Tenancy<B>,
    home: usize,
    /// What every byte is; `None` where the driver refused to write.
    value: Option<u8>,
}

struct Runner<'d, 's, D: DeviceUnderTest> {
    session: &'s Session<'d, D>,
    evidence: Option<Evidence<D::Backend>>,
    blocks: Vec<Block<D::Backend>>,
    random: Random,
    mix: Mix,
    tally: Tally,
    writes: u8,
}

pub(super) fn run<D: DeviceUnderTest>(device: &D, swarm: &Swarm) -> Result<Tally, Stop> {
    let mut random = Random::new(swarm.seed);
    let mix = Mix::draw(&mut random, swarm.faults);
    let setup = Setup { policy: &swarm.policy, conf: "", limit: Some(mix.limit), streams: mix.streams, bytes: true };
    let session = Session::open(device, &setup)?;
    let moves = session.backend().caps().transfer;
    let evidence = if moves { Some(open_evidence(&session)?) } else { None };
    let mut runner =
        Runner { session: &session, evidence, blocks: Vec::new(), random, mix, tally: Tally::default(), writes: 0 };
    for at in 0..swarm.operations {
        let kind = runner.mix.kind(&mut runner.random);
        let done = runner.act(kind).and_then(|()| if at % swarm.check_every == 0 { session.check() } else { Ok(()) });
        done.map_err(|stop| at_operation(stop, at, kind))?;
    }
    let tally = runner.end().map_err(|stop| at_operation(stop, swarm.operations, Kind::Free))?;
    if tally.failures > 0 && !swarm.faults {
        return Err(Stop::Fail(format!("the driver failed {} times, and no fault was planned", tally.failures)));
    }
    session.finish()?;
    Ok(tally)
}

fn at_operation(stop: Stop, at: u32, kind: Kind) -> Stop {
    match stop {
        Stop::Fail(text) => Stop::Fail(format!("operation {at} ({kind:?}): {text}")),
        skip => skip,
    }
}

fn open_evidence<D: DeviceUnderTest>(session: &Session<'_, D>) -> Result<Evidence<D::Backend>, Stop> {
    let opened = Evidence::open(session, 0..session.streams.len());
    opened.map_err(|trouble| Stop::Fail(format!("no memory for evidence: {trouble}")))
}

impl<D: DeviceUnderTest> Runner<'_, '_, D> {
    fn act(&mut self, kind: Kind) -> Result<(), Stop> {
        let session = self.session;
        let stream = self.stream();
        match kind {
            Kind::Allocate if self.blocks.len() < self.mix.live_max => self.allocate(stream)?,
            Kind::Allocate | Kind::Free => self.free()?,
            Kind::Write => self.rewrite(),
            Kind::RecordedUse | Kind::UseUntilPoint => self.use_elsewhere(stream, kind == Kind::RecordedUse)?,
            Kind::Order => self.order(stream),
            Kind::Submit => session.device.submit(session.backend(), self.id(stream)),
            Kind::Advance => session.device.advance(session.backend(), self.id(stream)),
            Kind::HostWait => {
                let point = session.streams[stream].point();
                self.tolerate(session.backend().wait(point).is_ok());
            }
            Kind::Poll => self.expect_typed(session.watched.allocator().poll())?,
            Kind::Trim => {
                let bytes = self.random.bytes(1 << 20, self.mix.limit);
                self.expect_typed(session.watched.allocator().trim(bytes).map(drop))?;
            }
            Kind::EmptyCache => self.expect_typed(session.watched.allocator().empty_cache())?,
            Kind::Limit => {
                let bytes = self.random.bytes(self.mix.limit / 6, self.mix.limit);
                session.watched.allocator().set_limit(Some(bytes));
            }
            Kind::Retreat => self.retreat(stream)?,
            Kind::Fault => {
                let nth = 1 + self.random.below(FAULT_WITHIN) as u64;
                let fault = if self.random.once_in(2) { Fault::OutOfMemory } else { Fault::Other };
                session.device.fail_nth(session.backend(), nth, fault);
            }
        }
        Ok(())
    }

    fn allocate(&mut self, stream: usize) -> Result<(), Stop> {
        let bytes = self.mix.bytes(&mut self.random);
        match self.session.watched.allocate(&self.session.streams[stream], bytes) {
            Ok(tenancy) => {
                self.blocks.push(Block { tenancy, home: stream, value: None });
                self.write(self.blocks.len() - 1);
                Ok(())
            }
            Err(Trouble::Refused(error)) => self.expect_typed(Err(error)),
            Err(Trouble::Violation(violation)) => Err(Stop::Fail(format!("{bytes} bytes on {stream}: {violation}"))),
        }
    }

    /// Looks at a block one last time, on its home stream, and frees it.
    fn free(&mut self) -> Result<(), Stop> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let block = self.blocks.swap_remove(self.random.below(self.blocks.len()));
        self.give_back(block)
    }

    fn give_back(&mut self, block: Block<D::Backend>) -> Result<(), Stop> {
        self.look(block.home, &block)?;
        self.session.watched.free(block.tenancy);
        Ok(())
    }

    /// Frees every block of a stream, newest first, with its work in flight.
    fn retreat(&mut self, stream: usize) -> Result<(), Stop> {
        let (own, others) = std::mem::take(&mut self.blocks).into_iter().partition(|block| block.home == stream);
        self.blocks = others;
        let own: Vec<_> = own;
        own.into_iter().rev().try_for_each(|block| self.give_back(block))
    }

    fn rewrite(&mut self) {
        if !self.blocks.is_empty() {
            let at = self.random.below(self.blocks.len());
            self.write(at);
        }
    }

    /// Queues a write of the whole block on its home stream.
    fn write(&mut self, at: usize) {
        if self.evidence.is_none() {
            return;
        }
        self.writes = self.writes % 200 + 1;
        let block = &self.blocks[at];
        let written = self.session.fill(block.home, &block.tenancy, self.writes).is_ok();
        self.blocks[at].value = written.then_some(self.writes);
        self.tolerate(written);
    }

    /// Work of another stream looks at a block, in proper order after what was written at home; the block is noted as
    /// used there, and often freed at once.
    fn use_elsewhere(&mut self, stream: usize, recorded: bool) -> Result<(), Stop> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.blocks.len());
        let home = self.blocks[at].home;
        if self.session.order(stream, home).is_err() {
            self.tolerate(false);
            return Ok(());
        }
        let (session, block) = (self.session, self.blocks.swap_remove(at));
        if self.random.once_in(2) && recorded {
            // Noted before or after the use: until the free it makes no difference.
            session.watched.record_stream(&block.tenancy, &session.streams[stream]).map_err(|e| e.to_string())?;
            self.look(stream, &block)?;
        } else {
            self.look(stream, &block)?;
            let noted = if recorded {
                session.watched.record_stream(&block.tenancy, &session.streams[stream])
            } else {
                session.watched.used_until(&block.tenancy, session.streams[stream].point())
            };
            noted.map_err(|error| error.to_string())?;
        }
        // Nobody may write it at home any more while the other stream reads: so it is freed, or only read from now on.
        if self.random.once_in(3) {
            if session.order(home, stream).is_ok() {
                self.blocks.push(block);
                return Ok(());
            }
            self.tolerate(false);
        }
        session.watched.free(block.tenancy);
        Ok(())
    }

    fn order(&mut self, stream: usize) {
        let other = self.stream();
        let ordered = self.session.order(stream, other).is_ok();
        self.tolerate(ordered);
    }

    fn look(&mut self, stream: usize, block: &Block<D::Backend>) -> Result<(), Stop> {
        match (&mut self.evidence, block.value) {
            (Some(evidence), Some(value)) => evidence.take(self.session, stream, &block.tenancy, value),
            _ => Ok(()),
        }
    }

    fn stream(&mut self) -> usize {
        self.random.below(self.session.streams.len())
    }

    fn id(&self, stream: usize) -> StreamId {
        self.session.streams[stream].id()
    }

    /// Only a planned fault makes a driver fail here; that is counted, and no more.
    fn tolerate(&mut self, went_well: bool) {
        self.tally.failures += u64::from(!went_well);
    }

    /// An operation of the allocator may fail for lack of memory, or with the driver's own error.
    fn expect_typed(&mut self, result: Result<(), Error<<D::Backend as Backend>::Error>>) -> Result<(), Stop> {
        match result {
            Ok(()) => {}
            Err(Error::OutOfMemory(_)) => self.tally.refusals += 1,
            Err(Error::Driver { lost: false, .. }) => self.tally.failures += 1,
            Err(other) => return Err(Stop::Fail(format!("an error that nothing accounts for: {other}"))),
        }
        Ok(())
    }

    fn end(mut self) -> Result<Tally, Stop> {
        self.burn_faults();
        while !self.blocks.is_empty() {
            self.free()?;
        }
        self.session.sync()?;
        self.tally.evidence = match self.evidence.take() {
            Some(evidence) => evidence.close(self.session)?,
            None => 0,
        };
        self.tally.grants = self.session.watched.grants();
        let pages = self.session.watched.allocator().page_stats();
        self.tally.moved = pages.moved + pages.moved_behind_wait;
        self.tally.moved_behind_wait = pages.moved_behind_wait;
        self.session.check()?;
        Ok(self.tally)
    }

    /// Lets faults that have not struck yet strike now, where they do no harm.
    fn burn_faults(&self) {
        let backend = self.session.backend();
        for _ in 0..self.session.device.fallible_calls(backend).map_or(0, |_| FAULT_WITHIN) {
            let _ = backend.create_stream();
        }
    }
}
