//! Threads: on streams of their own, on one stream together, and with buffers that pass from thread to thread. Every
//! grant is judged, and device work reads every block.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use millpond::settings::Policy;
use millpond_trace::Random;

use crate::device::DeviceUnderTest;
use crate::evidence::Evidence;
use crate::session::{Session, Setup, Stop};
use crate::watched::{Tenancy, Trouble};

const THREADS: usize = 4;
const OPERATIONS: usize = 60;
/// The most blocks that a thread holds.
const LIVE_MAX: usize = 6;
/// The limit in bytes: small enough that threads reach it together and wait for each other's releases.
const LIMIT_BYTES: u64 = 96 << 20;

/// A block on its way from one thread to another. It was written on its home stream, which the receiving thread does
/// not use itself.
struct Parcel<D: DeviceUnderTest> {
    tenancy: Tenancy<D::Backend>,
    home: usize,
    value: u8,
}

/// The way in which threads share.
#[derive(Clone, Copy)]
struct Sharing {
    /// Whether all of them work on stream 0.
    one_stream: bool,
    /// Whether some blocks are passed on to other threads.
    hands_on: bool,
}

pub(super) fn own_streams<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    together(device, policy, Sharing { one_stream: false, hands_on: false })
}

pub(super) fn one_stream<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    together(device, policy, Sharing { one_stream: true, hands_on: false })
}

pub(super) fn change_hands<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    together(device, policy, Sharing { one_stream: false, hands_on: true })
}

fn together<D: DeviceUnderTest>(device: &D, policy: Policy, sharing: Sharing) -> Result<(), Stop> {
    let setup = Setup { policy, conf: "", limit: Some(LIMIT_BYTES), streams: THREADS as u32, bytes: true };
    let mut session = Session::open(device, &setup)?;
    session.threaded = true;
    session.transfer()?;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
    let stopped: Mutex<Option<Stop>> = Mutex::new(None);
    thread::scope(|scope| {
        for (me, inbox) in receivers.into_iter().enumerate() {
            let (session, stopped) = (&session, &stopped);
            let next = senders[(me + 1) % THREADS].clone();
            let home = if sharing.one_stream { 0 } else { me };
            scope.spawn(move || {
                let note = |stop| {
                    if let Ok(mut stopped) = stopped.lock() {
                        stopped.get_or_insert(stop);
                    }
                };
                match Worker::open(session, me, home) {
                    Err(stop) => note(stop),
                    Ok(mut worker) => {
                        // Noted before the worker's blocks go: what others find wrong from then on is a consequence.
                        let work = worker.work(sharing, &inbox, &next);
                        work.unwrap_or_else(note);
                        worker.evidence.close(session).map_or_else(note, drop);
                    }
                }
                drop(next);
                // Blocks that are still in the inbox are released by the thread that they were sent to.
                let rest = inbox.into_iter().map(|parcel: Parcel<D>| session.watched.free(parcel.tenancy));
                let () = rest.collect();
            });
        }
        drop(senders);
    });
    match stopped.into_inner() {
        Ok(Some(stop)) => Err(stop),
        _ => session.finish(),
    }
}

struct Worker<'d, 's, D: DeviceUnderTest> {
    session: &'s Session<'d, D>,
    evidence: Evidence<D::Backend>,
    random: Random,
    home: usize,
    me: usize,
    blocks: Vec<(Tenancy<D::Backend>, u8)>,
}

impl<'d, 's, D: DeviceUnderTest> Worker<'d, 's, D> {
    fn open(session: &'s Session<'d, D>, me: usize, home: usize) -> Result<Self, Stop> {
        let evidence = Evidence::open(session, [home]).map_err(|trouble| trouble.to_string())?;
        Ok(Self { session, evidence, random: Random::new(me as u64), home, me, blocks: Vec::new() })
    }

    fn work(&mut self, sharing: Sharing, inbox: &Receiver<Parcel<D>>, next: &Sender<Parcel<D>>) -> Result<(), Stop> {
        for at in 0..OPERATIONS {
            if self.blocks.len() < LIVE_MAX && !self.random.one_in(3) {
                self.allocate((self.me * OPERATIONS + at) as u8 % 200 + 1)?;
            } else if !self.blocks.is_empty() {
                let (tenancy, value) = self.blocks.swap_remove(self.random.index(self.blocks.len()));
                if sharing.hands_on && self.random.one_in(2) {
                    self.session.device.submit(self.session.backend(), self.session.streams[self.home].id());
                    // A worker that has stopped has dropped its inbox. In that case the block is released here.
                    if let Err(back) = next.send(Parcel { tenancy, home: self.home, value }) {
                        self.session.watched.free(back.0.tenancy);
                    }
                } else {
                    self.evidence.take(self.session, self.home, &tenancy, value)?;
                    self.session.watched.free(tenancy);
                }
            }
            if self.random.one_in(5) {
                self.session.device.submit(self.session.backend(), self.session.streams[self.home].id());
            }
            while let Ok(parcel) = inbox.try_recv() {
                self.take_over(parcel)?;
            }
        }
        for (tenancy, value) in std::mem::take(&mut self.blocks) {
            self.evidence.take(self.session, self.home, &tenancy, value)?;
            self.session.watched.free(tenancy);
        }
        Ok(())
    }

    fn allocate(&mut self, value: u8) -> Result<(), Stop> {
        let bytes = self.random.bytes(256, 6 << 20);
        match self.session.watched.allocate(&self.session.streams[self.home], bytes) {
            Ok(tenancy) => {
                self.session.fill(self.home, &tenancy, value)?;
                self.blocks.push((tenancy, value));
                Ok(())
            }
            // Other threads may hold the memory, so this is no failure.
            Err(Trouble::Refused(error)) if error.fault() == millpond_backend::Fault::OutOfMemory => Ok(()),
            Err(trouble) => Err(Stop::Fail(format!("{bytes} bytes on stream {}: {trouble}", self.home))),
        }
    }

    /// Reads another thread's block on this thread's stream, and frees it here.
    fn take_over(&mut self, parcel: Parcel<D>) -> Result<(), Stop> {
        let Parcel { tenancy, home, value } = parcel;
        self.session.order(self.home, home)?;
        self.evidence.take(self.session, self.home, &tenancy, value)?;
        let noted = self.session.watched.record_stream(&tenancy, &self.session.streams[self.home]);
        noted.map_err(|error| error.to_string())?;
        self.session.watched.free(tenancy);
        Ok(())
    }
}
