//! Plays a scenario on a device.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;

use millpond::settings::Settings;
use millpond::{DriverActivity, Error, Readiness, Report};
use millpond_backend::{Backend, Point};

use super::{Action, Expect, Policy, Refusal, Relation, ReportField, Requirement, Scenario};
use crate::device::DeviceUnderTest;
use crate::oracle::Place;
use crate::session::{Session, Setup, Stop};
use crate::watched::{Tenancy, Trouble};

/// A named buffer: the block itself until its free, and what is remembered after that.
struct Named<B: Backend> {
    tenancy: Option<Tenancy<B>>,
    place: Option<Place>,
    home: u32,
    value: u8,
}

struct Player<'d, D: DeviceUnderTest> {
    session: Session<'d, D>,
    buffers: BTreeMap<String, Named<D::Backend>>,
    points: BTreeMap<String, Point>,
    report: Option<Report>,
    calls_before: DriverActivity,
    writes: u8,
}

/// Plays a scenario under a policy from beginning to end.
///
/// # Errors
///
/// Returns what the device lacks, or what failed and at which line.
pub(crate) fn play<D: DeviceUnderTest>(device: &D, scenario: &Scenario, policy: Policy) -> Result<(), Stop> {
    play_with(device, scenario, policy, Settings::default())
}

/// Plays a scenario with settings below those of the policy. After a panic, the player is leaked: its state is
/// inconsistent, and dropping it could panic again, which would end the process.
pub(crate) fn play_with<D: DeviceUnderTest>(
    device: &D,
    scenario: &Scenario,
    policy: Policy,
    settings: Settings,
) -> Result<(), Stop> {
    let bytes = scenario.needs.contains(&Requirement::Transfer);
    let Scenario { conf, limit, streams, .. } = scenario;
    let setup = Setup { policy, conf, limit: *limit, streams: *streams, bytes };
    let session = Session::open_with(device, &setup, settings)?;
    let caps = session.backend().caps();
    if let Some(missing) = scenario.needs.iter().find(|need| !need.is_met(caps)) {
        return Err(Stop::Skip(format!("the device has no {}", missing.text())));
    }
    let mut player = ManuallyDrop::new(Player {
        session,
        buffers: BTreeMap::new(),
        points: BTreeMap::new(),
        report: None,
        calls_before: DriverActivity::default(),
        writes: 0,
    });
    let played = scenario.steps.iter().try_for_each(|step| {
        let located = |stop| match stop {
            Stop::Fail(text) => Stop::Fail(format!("line {}: {text}", step.line)),
            skip => skip,
        };
        player.act(&step.action).and_then(|()| player.session.check()).map_err(located)
    });
    let player = ManuallyDrop::into_inner(player);
    played.and_then(|()| player.end())
}

impl<D: DeviceUnderTest> Player<'_, D> {
    fn act(&mut self, action: &Action) -> Result<(), Stop> {
        let session = &self.session;
        match action {
            Action::Allocate { name, bytes, stream } => self.allocate(name, *bytes, *stream)?,
            Action::Refuse { bytes, stream, refusal } => self.refuse(*bytes, *stream, *refusal)?,
            Action::Free { name } => {
                let freed = self.buffers.get_mut(name).and_then(|named| named.tenancy.take());
                freed.into_iter().for_each(|tenancy| session.watched.free(tenancy));
            }
            Action::Write { name, stream } => self.write(name, *stream)?,
            Action::Record { name, stream } => {
                let recorded = session.watched.record_stream(self.live(name), &session.streams[*stream as usize]);
                recorded.map_err(|error| error.to_string())?;
            }
            Action::Point { name, stream } => {
                self.points.insert(name.clone(), session.streams[*stream as usize].point());
            }
            Action::Until { name, point } => {
                let noted = session.watched.used_until(self.live(name), self.points[point]);
                noted.map_err(|error| error.to_string())?;
            }
            Action::Wait { point } => drop(session.wait(self.points[point])?),
            Action::After { stream, point } => session.order_after(*stream as usize, self.points[point])?,
            Action::Submit { stream } => {
                session.device.submit(session.backend(), session.streams[*stream as usize].id());
            }
            Action::Sync => session.sync()?,
            Action::Hold { stream } => {
                if !session.device.hold(session.backend(), session.streams[*stream as usize].id()) {
                    return Err(Stop::Skip(format!("the device has no {}", Requirement::Hold.text())));
                }
            }
            Action::Unhold { stream } => {
                session.device.unhold(session.backend(), session.streams[*stream as usize].id());
            }
            Action::EmptyCache => session.watched.allocator().empty_cache().map_err(|error| error.to_string())?,
            Action::Trim { bytes } => {
                session.watched.allocator().trim(*bytes).map(drop).map_err(|error| error.to_string())?;
            }
            Action::Poll => _ = session.watched.allocator().poll().map_err(|error| error.to_string())?,
            Action::Limit { bytes } => session.watched.allocator().set_limit(*bytes),
            Action::ResetPeaks => session.watched.reset_peaks(),
            Action::ResetTotals => session.watched.reset_totals(),
            Action::CountCalls => self.calls_before = session.watched.allocator().driver_activity(),
            Action::Expect(expect) => self.expect(expect)?,
        }
        Ok(())
    }

    fn allocate(&mut self, name: &str, bytes: u64, stream: u32) -> Result<(), Stop> {
        let granted = self.session.watched.allocate(&self.session.streams[stream as usize], bytes);
        let tenancy = granted.map_err(|trouble| format!("`{name}` of {bytes} bytes: {trouble}"))?;
        let place = tenancy.place();
        if place.is_none() != (bytes == 0) {
            return Err(Stop::Fail(format!("`{name}` of {bytes} bytes lies at {place:?}")));
        }
        self.buffers.insert(name.to_owned(), Named { tenancy: Some(tenancy), place, home: stream, value: 0 });
        Ok(())
    }

    fn refuse(&mut self, bytes: u64, stream: u32, refusal: Refusal) -> Result<(), Stop> {
        match (self.session.watched.allocate(&self.session.streams[stream as usize], bytes), refusal) {
            (Err(Trouble::Refused(Error::OutOfMemory(error))), Refusal::OutOfMemory) => {
                let report = error.report();
                if report.requested_bytes != bytes || error.to_string().is_empty() {
                    return Err(Stop::Fail(format!("the report speaks of {} bytes: {error}", report.requested_bytes)));
                }
                self.report = Some(report.clone());
                Ok(())
            }
            (Err(Trouble::Refused(Error::TooLarge { requested })), Refusal::TooLarge) if requested == bytes => Ok(()),
            (Err(trouble), _) => Err(Stop::Fail(format!("{bytes} bytes must be refused as {refusal:?}: {trouble}"))),
            (Ok(tenancy), _) => {
                let text = format!("{bytes} bytes must be refused as {refusal:?}, and were granted: {:?}", *tenancy);
                self.session.watched.free(tenancy);
                Err(Stop::Fail(text))
            }
        }
    }

    fn write(&mut self, name: &str, stream: u32) -> Result<(), Stop> {
        // The value is neither 0, which fresh memory may hold, nor the byte with which simulated devices overwrite
        // memory.
        self.writes = self.writes % 200 + 1;
        let value = self.writes;
        self.session.fill(stream as usize, self.live(name), value)?;
        if let Some(named) = self.buffers.get_mut(name) {
            named.value = value;
        }
        Ok(())
    }

    /// Returns a buffer that the loader has found to be live.
    fn live(&self, name: &str) -> &Tenancy<D::Backend> {
        match self.buffers.get(name).and_then(|named| named.tenancy.as_ref()) {
            Some(tenancy) => tenancy,
            None => panic!("the loader lets `{name}` pass, which is not live"),
        }
    }

    fn expect(&self, expect: &Expect) -> Result<(), Stop> {
        let session = &self.session;
        match expect {
            Expect::Stat { key, relation, value } => {
                let stats = session.watched.allocator().stats().flat();
                let found = stats.iter().find(|(known, _)| known == key).map_or(-1, |&(_, value)| value);
                compare(key, u64::try_from(found).unwrap_or(u64::MAX), *relation, *value)?;
            }
            Expect::Capacity { name, bytes } => {
                compare("the capacity", self.live(name).capacity(), Relation::Equal, *bytes)?;
            }
            Expect::Place { name, other, same } => {
                let (one, two) = (self.buffers[name].place, self.buffers[other].place);
                if (one == two) != *same {
                    return Err(Stop::Fail(format!("`{name}` lies at {one:?} and `{other}` at {two:?}")));
                }
            }
            Expect::Segment { name, other, same } => {
                let [one, two] = [name, other].map(|name| self.buffers[name].place.map(|place| place.segment));
                if (one == two) != *same {
                    return Err(Stop::Fail(format!("`{name}` lies in {one:?} and `{other}` in {two:?}")));
                }
            }
            Expect::Reuse { name, reuse } => {
                let found = match self.live(name).readiness() {
                    Readiness::NeedsBarrier => Readiness::Ordered,
                    other => other,
                };
                if found != *reuse {
                    return Err(Stop::Fail(format!("the memory of `{name}` is {found:?}, expected {reuse:?}")));
                }
            }
            Expect::Data { name } => {
                let named = &self.buffers[name];
                session.verify(named.home as usize, self.live(name), named.value)?;
            }
            Expect::Reached { point, reached } => {
                let point = self.points[point];
                let tick = session.backend().reached(point.stream).map_err(|error| error.to_string())?;
                if (tick >= point.tick) != *reached {
                    return Err(Stop::Fail(format!("{point}: tick {tick} is reached")));
                }
            }
            Expect::Calls { relation, value } => {
                let calls = session.watched.allocator().driver_activity().since(self.calls_before).calls;
                compare("driver calls", calls, *relation, *value)?;
            }
            Expect::Report { field, relation, value } => {
                let report = self.report.as_ref().map_or(u64::MAX, |report| field.of(report));
                compare(&format!("{field:?} in the report"), report, *relation, *value)?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), Stop> {
        for named in std::mem::take(&mut self.buffers).into_values() {
            named.tenancy.into_iter().for_each(|tenancy| self.session.watched.free(tenancy));
        }
        self.session.finish().map_err(|stop| match stop {
            Stop::Fail(text) => Stop::Fail(format!("at the end: {text}")),
            skip => skip,
        })
    }
}

impl ReportField {
    fn of(self, report: &Report) -> u64 {
        match self {
            ReportField::Requested => report.requested_bytes,
            ReportField::EmptyCacheFrees => report.empty_cache_frees,
            ReportField::WaitingFrees => report.waiting_frees,
            ReportField::Allocated => report.allocated_bytes,
            ReportField::Reserved => report.reserved_bytes,
        }
    }
}

fn compare(what: &str, found: u64, relation: Relation, value: u64) -> Result<(), String> {
    let (holds, sign) = match relation {
        Relation::Equal => (found == value, "="),
        Relation::AtMost => (found <= value, "<="),
        Relation::AtLeast => (found >= value, ">="),
    };
    if holds { Ok(()) } else { Err(format!("{what} is {found}, expected {sign} {value}")) }
}
