//! What one attempt does once its way is chosen: it claims what the way needs, has waits queued and page calls made,
//! books what each call has changed, and hands the block out. Of a window that it makes or lengthens is kept what is
//! mapped, even if the job fails.
//!
//! A job for a window goes through these steps:
//!
//! 1. `claim_addresses_for` claims the addresses, and `claim_stretches` the free memory with its points.
//! 2. `waits` has the stream wait on the device for points of other streams.
//! 3. `calls` creates new pages and maps all of them.
//! 4. `note_calls` books each page at its place.
//! 5. `serve` takes the memory out of its home (`memory/home.rs`), books the window (`made`), and hands its block out.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::Pager;
use super::gather::{FreeEnd, Gathered};
use super::taker::{Stretch, Taker, Tiles, When};
use crate::block::LastUse;
use crate::books::{Addresses, PageCall, Part, Points, WindowPart};
use crate::coordinator::Shards;
use crate::ids::{BlockId, PageId, Place, PoolId, ShardId, Side, Slot};
use crate::memory::{Claimed, Ground, Growth, NoRoom, Vacant};
use crate::segment::Role;
use crate::shard::{Grant, Longer, NewUser};
use crate::size::Want;

/// What a plan has claimed to serve its request.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) taker: Taker,
    pub(crate) target: Target,
    /// Claimed memory, in order of the addresses that the block will have.
    pub(crate) pieces: Vec<Claimed>,
    /// New pages at home.
    pub(crate) growth: Option<Grown>,
    /// The points of other streams that the requesting stream waits for, until those waits are queued.
    waits: Points,
    /// A tick of the stream that covers those waits, and what other streams did that is over.
    covered: Tick,
    /// The bytes that the driver is being asked for.
    created: u64,
    /// Whether its page calls were made.
    is_backed: bool,
}

/// What came of a way.
#[derive(Debug)]
pub(crate) enum Way {
    /// The job is claimed.
    Job(Job),
    /// Another thread has changed what the way needs.
    Spoiled(Job),
    /// A range of addresses has to be reserved first, as a home or for a window of some bytes.
    Range(Addresses),
    /// A free block of a segment serves.
    Found(Grant),
    /// There are no addresses for pages: a segment of this many bytes is taken from the driver.
    Segment(u64),
    /// Windows end first, by these calls, as too many pages are mapped in them.
    End(Vec<PageCall>),
    /// Pages would be created, and what the device's budget leaves has to be asked for first.
    Budget,
    /// Idle memory goes back first, of one pool or of all, until this number of bytes are reserved.
    GiveBack { down_to: u64, of: Option<PoolId> },
    /// There is no room for a block to become longer.
    Stuck(NoRoom),
}

/// Where the block will be.
#[derive(Debug)]
pub(crate) enum Target {
    /// At home, in what the home has grown by and the free block in front of it.
    Home,
    /// At home, in free memory there, on that side.
    Free(Side),
    /// In a part of a window that was kept, whose addresses are claimed.
    Kept(BlockId),
    /// In a window that is made or lengthened.
    Window(Making),
    /// Directly after this block, which becomes longer by it, in free memory or in what the home has grown by. The
    /// program has asked for this number of bytes of it then.
    After(BlockId, u64),
}

/// A window that is made or lengthened.
#[derive(Debug)]
pub(crate) struct Making {
    /// The end of a window that was kept, if that is lengthened.
    pub(crate) rear: Option<Rear>,
    /// Claimed addresses for more pages.
    pub(crate) block: BlockId,
    /// The bytes between the beginning of the first page and the block that is handed out. 0 behind a rear.
    pub(crate) front: u64,
    /// These pages.
    pub(crate) parts: Vec<Part>,
}

/// The end of a window that is lengthened.
#[derive(Debug)]
pub(crate) struct Rear {
    /// Its claimed addresses.
    pub(crate) run: BlockId,
    /// The place of the last page there, by which the window is found again.
    pub(crate) last: Place,
}

/// What a home grows by.
#[derive(Debug)]
pub(crate) struct Grown {
    ground: Ground,
    slot: Slot,
    begin: u64,
    pages: Vec<New>,
    /// The bytes of it that the request gets, where that is in a window.
    pub(crate) bytes: u64,
    /// Whether the last piece that is claimed comes behind these bytes there, and not in front of them.
    pub(crate) is_last_behind: bool,
}

impl Grown {
    /// Returns the pages of which a block in a window gets bytes, as parts of that window.
    pub(crate) fn parts(&self, shard: ShardId) -> Vec<Part> {
        let nowhere = Place { shard, slot: Slot(0), offset: 0 };
        let needed = self.pages.iter().take_while(|new| new.offset - self.begin < self.bytes);
        let home = |new: &New| Place { shard, slot: self.slot, offset: new.offset };
        needed.map(|new| Part::new(new.page, home(new), new.bytes, nowhere)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct New {
    page: PageId,
    offset: u64,
    bytes: u64,
    /// Whether the page is one that was spare.
    is_spare: bool,
}

impl Job {
    /// Returns the points that its stream has to wait for, if there are any.
    pub(crate) fn waits(&self) -> Option<Vec<Point>> {
        (!self.waits.is_empty()).then(|| self.waits.clone().into_vec())
    }

    /// Returns its page calls, if it has some and they were not asked for before: new pages go home first, and then
    /// pages to the window.
    pub(crate) fn calls(&mut self) -> Option<Vec<PageCall>> {
        let shard = self.taker.shard;
        let mut calls = Vec::new();
        if let Some(grown) = &self.growth {
            for &New { page, offset, bytes, is_spare } in &grown.pages {
                if !is_spare {
                    calls.push(PageCall::Create { page, bytes });
                }
                calls.push(PageCall::Map { page, at: Place { shard, slot: grown.slot, offset } });
            }
        }
        if let Target::Window(making) = &self.target {
            calls.extend(making.parts.iter().map(|part| PageCall::Map { page: part.page, at: part.at }));
        }
        (!calls.is_empty() && !core::mem::replace(&mut self.is_backed, true)).then_some(calls)
    }

    /// Returns the job of a stream that has claimed nothing and waits for nothing. It has `reached` a tick, which
    /// stands for uses on other streams that are over.
    pub(crate) fn new(taker: Taker, reached: Tick) -> Self {
        let (pieces, waits) = (Vec::new(), Points::default());
        let (target, covered) = (Target::Home, reached);
        Self { taker, target, pieces, growth: None, waits, covered, created: 0, is_backed: false }
    }
}

impl Pager<'_> {
    /// Claims a place to grow for new pages of these sizes. Returns whether it could.
    pub(crate) fn claim_ground(&mut self, job: &mut Job, growth: &Growth, sizes: &[u64]) -> bool {
        let total = sizes.iter().sum();
        let claimed = self.shards.with(job.taker.shard, |shard| shard.memory.claim_growth(growth, total));
        let Some(ground) = claimed else { return false };
        if ground.before.as_ref().is_some_and(|before| !self.comes_after(job, &before.points)) {
            self.shards.with(job.taker.shard, |shard| {
                ground.before.into_iter().for_each(|before| shard.memory.give_back(before, [0; 2]));
                shard.memory.keep_backed(ground.gap, 0, LastUse::NEVER, [0; 2]);
            });
            return false;
        }
        let mut offset = growth.begin;
        let mut pages = Vec::new();
        for &size in sizes {
            let spare = self.core.pages.spare().find(|(_, page)| page.bytes == size).map(|(id, _)| id);
            let page = match spare {
                Some(page) => {
                    self.core.pages.use_spare(page);
                    page
                }
                None => {
                    job.created += size;
                    self.core.pages.insert(size, Side::Large)
                }
            };
            pages.push(New { page, offset, bytes: size, is_spare: spare.is_some() });
            offset += size;
        }
        self.core.headroom.ask(job.created);
        let (slot, begin) = (growth.slot, growth.begin);
        job.growth = Some(Grown { ground, slot, begin, pages, bytes: 0, is_last_behind: false });
        true
    }

    /// Claims addresses for the memory of a job: for a new window over what is gathered and new pages, or for what goes
    /// behind the last bytes of a kept window.
    ///
    /// # Panics
    ///
    /// If there are not enough.
    pub(crate) fn claim_addresses_for(&mut self, job: &mut Job, gathered: &Gathered) {
        let shard = job.taker.shard;
        let nowhere = Place { shard, slot: Slot(0), offset: 0 };
        let (added, behind) = gathered.added();
        let mut parts = self.parts_of(added, nowhere);
        let front = match (gathered.rear, added.first(), parts.first()) {
            (None, Some(stretch), Some(part)) => stretch.home.offset - part.home.offset,
            _ => 0,
        };
        if let Some(grown) = &mut job.growth {
            (grown.bytes, grown.is_last_behind) = (gathered.missing, gathered.is_last_behind);
            parts.extend(grown.parts(shard));
        }
        parts.extend(self.parts_of(behind, nowhere));
        let length: u64 = parts.iter().map(|part| part.bytes).sum();
        let (rear, Vacant { block, slot, offset }) = match gathered.rear {
            None => {
                let addresses = self.shards.with(shard, |shard| shard.memory.claim_vacant(length));
                (None, addresses.unwrap_or_else(|| panic!("no {length} bytes of addresses for a window")))
            }
            Some(FreeEnd { window: id, bytes, .. }) => {
                self.core.paging.windows.note_use(id);
                let window = &self.core.paging.windows[id];
                let (end, slot) = (window.end(), window.begin().slot);
                let Some(last) = window.parts.last().map(|part| part.at) else { panic!("window {} is empty", id.0) };
                self.shards.with(shard, |shard| {
                    let Some(block) = shard.memory.room_behind(window.head, end) else {
                        panic!("no room behind {last:?}")
                    };
                    let room = shard.size_of(block);
                    assert!(length <= room, "{length} bytes of addresses behind {last:?}, where {room} are vacant");
                    shard.memory.claim_addresses(block, length);
                    let run = shard.memory.claim_run(window.head, end - bytes, bytes);
                    (Some(Rear { run, last }), Vacant { block, slot, offset: end })
                })
            }
        };
        let mut at = offset;
        for part in &mut parts {
            part.at = Place { shard, slot, offset: at };
            at += part.bytes;
        }
        job.target = Target::Window(Making { rear, block, front, parts });
    }

    /// Claims free memory. Returns whether all of it could be claimed: another thread may have taken some of it. What
    /// could be claimed is in the job.
    pub(crate) fn claim_stretches(&mut self, job: &mut Job, stretches: &[Stretch], tiles: &Tiles) -> bool {
        // From the highest address down, so that what is left of a block keeps its number.
        let mut order: Vec<usize> = (0..stretches.len()).collect();
        order.sort_by_key(|&at| core::cmp::Reverse(stretches[at].home));
        let mut claimed: Vec<Option<Claimed>> = alloc::vec![None; stretches.len()];
        let all = order.into_iter().all(|at| {
            let Stretch { home, bytes } = stretches[at];
            let part = tiles.around(home, bytes).and_then(|tile| {
                self.shards
                    .with(job.taker.shard, |shard| shard.memory.claim_part(tile, home.offset, home.offset + bytes))
            });
            claimed[at] = part.and_then(|part| self.keep_if_usable(job, part));
            claimed[at].is_some()
        });
        job.pieces.extend(claimed.into_iter().flatten());
        all
    }

    /// Has the stream of a job come after the uses of what it has claimed. Gives the claim back if it cannot: another
    /// thread may have used the memory since it was looked at.
    pub(crate) fn keep_if_usable(&mut self, job: &mut Job, claimed: Claimed) -> Option<Claimed> {
        if self.comes_after(job, &claimed.points) {
            return Some(claimed);
        }
        self.shards.with(job.taker.shard, |shard| shard.memory.give_back(claimed, [0; 2]));
        None
    }

    /// Has the stream of a job wait for some points of other streams that are not reached, unless it has done so
    /// before. Returns whether it can.
    fn comes_after(&self, job: &mut Job, points: &Points) -> bool {
        let taker = job.taker;
        if points.iter().any(|point| taker.when(self.core, point) > When::BehindWait) {
            return false;
        }
        let stream = taker.by.stream;
        for point in points.iter().filter(|point| point.stream != stream && !self.core.pending.is_reached(*point)) {
            match self.core.paging.waited.covering(stream, point) {
                Some(covered) => job.covered = job.covered.max(covered),
                None => job.waits.max(point),
            }
        }
        true
    }

    /// Notes that the waits of a job are queued. `tick` is one of the stream that covers them.
    pub(crate) fn note_waits(&mut self, job: &mut Job, tick: Tick) {
        job.covered = job.covered.max(tick);
        let stream = job.taker.by.stream;
        core::mem::take(&mut job.waits).iter().for_each(|point| self.core.paging.waited.note(stream, point, tick));
        self.core.paging.pace.wait(stream, tick);
        self.core.paging.stats.moved_behind_wait += job.pieces.len() as u64;
    }

    /// Books what the calls of a job have changed.
    pub(crate) fn note_calls(&mut self, job: &mut Job, made: &[PageCall]) {
        self.core.headroom.end_ask(core::mem::take(&mut job.created));
        for call in made {
            match *call {
                PageCall::Create { page, bytes } => {
                    self.core.headroom.gain(Side::Large, bytes);
                    self.core.paging.stats.created += 1;
                    self.core.pages.put_aside(page);
                }
                PageCall::Map { page, at } if self.core.pages[page].home.is_none() => {
                    self.core.pages.use_spare(page);
                    self.core.page_arrives(page, at, Role::Home, self.shards);
                }
                PageCall::Map { page, at } => {
                    self.core.paging.stats.moved += 1;
                    self.core.page_arrives(page, at, Role::Window, self.shards);
                }
                other => panic!("{other:?} backs nothing"),
            }
        }
    }

    /// Gives up a job of which a call has failed. The pages that are at home become free memory, and the rest goes
    /// back: nothing is undone without need. Returns whether it was a page that could not be mapped in a window.
    pub(crate) fn undo(&mut self, job: Job) -> bool {
        // Pages go home first: if all are there, mapping in the window has failed.
        let at_home = |grown: &Grown| grown.pages.iter().all(|new| self.core.pages[new.page].home.is_some());
        let lacks_windows = job.growth.as_ref().is_none_or(at_home);
        self.put_back(job);
        lacks_windows
    }

    /// Hands the block out: everything is in place.
    pub(crate) fn serve(&mut self, mut job: Job) -> Grant {
        let Taker { shard, want, clocks, .. } = job.taker;
        let stream = job.taker.by.stream;
        let clock = job.taker.clock();
        let last_use = last_use_of(&job.pieces, job.covered, stream);
        let user = NewUser { stream, last_use };
        if self.core.pools.has_private() {
            let live = self.core.live_in_pool(shard, self.shards) + want.rounded;
            self.core.note_live(shard, live);
        }
        let grant = match job.target {
            Target::Home => {
                let Some(Grown { ground, pages, .. }) = job.growth else { panic!("{want:?} gets nothing at home") };
                let from = first_use_of(&pages);
                let before = last_use_of(ground.before.as_slice(), job.covered, stream);
                self.shards.with(shard, |shard| {
                    shard.memory.set_last_use(ground.gap, from);
                    let grant =
                        shard.serve_growth(ground, &want, clock, NewUser { stream, last_use: from.max(before) });
                    shard.mark_used_elsewhere(grant.block);
                    grant
                })
            }
            Target::After(block, requested) => {
                let (ground, from) = match job.growth {
                    Some(Grown { ground, pages, .. }) => (Some(ground), first_use_of(&pages)),
                    None => (None, LastUse::NEVER),
                };
                let before = ground.as_ref().and_then(|ground| ground.before.clone());
                let last_use = last_use_of(before.as_slice(), job.covered, stream).max(last_use).max(from);
                self.shards.with(shard, |shard| {
                    let free = before.or_else(|| job.pieces.pop()).map(|free| free.block);
                    let gap = ground.map(|ground| {
                        shard.memory.set_last_use(ground.gap, from);
                        ground.gap
                    });
                    let part = match (free, gap) {
                        (Some(free), Some(gap)) => shard.memory.absorb(free, gap),
                        (Some(part), None) | (None, Some(part)) => part,
                        (None, None) => panic!("block {} grows by nothing", block.0),
                    };
                    let longer = Longer { part, bytes: want.rounded, requested };
                    shard.lengthen(block, &longer, clock, NewUser { stream, last_use })
                })
            }
            Target::Free(side) => {
                let Some(piece) = job.pieces.pop() else { panic!("{want:?} gets nothing at home") };
                let want = Want { side, ..want };
                self.shards.with(shard, |shard| {
                    // What a small block leaves of a slab is the stream's, which comes after the same uses.
                    shard.memory.set_last_use(piece.block, last_use);
                    shard.serve(piece.block, &want, clock, user)
                })
            }
            Target::Kept(run) => {
                self.core.paging.stats.returned += 1;
                let pieces = send_away(shard, &job.pieces, self.shards);
                self.shards.with(shard, |shard| shard.open_window(run, pieces, user, &want))
            }
            Target::Window(making) => {
                if let Some(grown) = &job.growth {
                    let block = self.shards.with(shard, |shard| {
                        shard.memory.set_last_use(grown.ground.gap, LastUse::NEVER);
                        shard.memory.carve(grown.ground.gap, grown.begin, grown.bytes, clocks)
                    });
                    let at = job.pieces.len() - usize::from(grown.is_last_behind);
                    job.pieces.insert(at, Claimed { block, points: Points::default(), is_fresh: true });
                }
                let pieces = send_away(shard, &job.pieces, self.shards);
                let run = self.made(shard, making);
                self.shards.with(shard, |shard| shard.open_window(run, pieces, user, &want))
            }
        };
        self.core.settled(shard, grant, self.shards)
    }

    /// Notes that a window is made or lengthened, and returns the claimed part of it that the request gets.
    fn made(&mut self, shard: ShardId, making: Making) -> BlockId {
        let Making { rear, block, front, parts } = making;
        match rear {
            Some(Rear { run, last }) => {
                self.lengthen(last, parts);
                self.shards.with(shard, |shard| shard.memory.absorb(run, block));
                run
            }
            None => {
                self.core.paging.windows.insert(shard, block, parts);
                self.shards.with(shard, |shard| shard.panes.begin(&mut shard.memory, block, front))
            }
        }
    }

    /// Adds pages to the window whose last page is mapped at a place.
    fn lengthen(&mut self, last: Place, parts: Vec<Part>) {
        let Some(WindowPart { window: id, .. }) = self.core.paging.windows.at(last) else {
            panic!("no window ends at {last:?}")
        };
        self.core.paging.windows.lengthen(id, parts);
    }

    /// Gives up a job: what has arrived at home stays as free memory, and claims go back.
    fn put_back(&mut self, job: Job) {
        let Taker { shard, clocks, .. } = job.taker;
        for piece in job.pieces {
            self.shards.with(shard, |shard| shard.memory.give_back(piece, clocks));
        }
        match job.target {
            Target::Home | Target::Free(_) | Target::After(..) => {}
            Target::Kept(run) => self.shards.with(shard, |shard| shard.panes.unclaim_run(&mut shard.memory, run)),
            Target::Window(making) => self.unmake(shard, making),
        }
        if let Some(Grown { ground, pages, .. }) = job.growth {
            // Those that were taken back are gone.
            let pages: Vec<_> = pages.into_iter().filter(|new| self.core.pages.get(new.page).is_some()).collect();
            let arrived = pages.iter().take_while(|new| self.core.pages[new.page].home.is_some());
            let backed = arrived.map(|new| new.bytes).sum();
            for new in &pages {
                match (self.core.pages[new.page].home, new.is_spare) {
                    (None, true) => self.core.pages.put_aside(new.page),
                    // If the page was created and then not mapped, it is spare. Otherwise it was never created.
                    (None, false) if !self.core.pages.is_spare(new.page) => self.core.pages.remove(new.page),
                    _ => {}
                }
            }
            self.shards.with(shard, |s| {
                ground.before.into_iter().for_each(|before| s.memory.give_back(before, clocks));
                if ground.is_reserved {
                    assert_eq!(backed, 0, "pages stay where addresses are reserved for another block");
                    return s.memory.reserve_again(ground.gap);
                }
                // A growable block that is not handed out needs no addresses.
                s.memory.unreserve(ground.gap);
                s.memory.keep_backed(ground.gap, backed, LastUse::NEVER, clocks);
            });
        }
    }

    /// Gives up the addresses of a window. The pages that are mapped there already are kept.
    fn unmake(&mut self, shard: ShardId, making: Making) {
        let Making { rear, block, front, mut parts } = making;
        let mapped = parts.iter().take_while(|part| self.core.pages[part.page].windows.contains(&part.at)).count();
        parts.truncate(mapped);
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let is_kept = self.shards.with(shard, |shard| {
            rear.iter().for_each(|rear| shard.panes.unclaim_run(&mut shard.memory, rear.run));
            shard.memory.keep_mapped(block, bytes)
        });
        if is_kept {
            let run = match &rear {
                Some(Rear { last, .. }) => {
                    self.lengthen(*last, parts);
                    block
                }
                None => self.made(shard, Making { rear: None, block, front, parts }),
            };
            self.shards.with(shard, |shard| shard.panes.unclaim_run(&mut shard.memory, run));
        }
    }

    /// Returns the calls that unmap and release the new pages of a job that have arrived, the last one first.
    pub(crate) fn calls_to_take_back(&mut self, job: &Job) -> Vec<PageCall> {
        let pages = job.growth.iter().flat_map(|grown| &grown.pages).rev().map(|new| new.page);
        let arrived: Vec<_> = pages.filter(|&page| self.core.pages[page].home.is_some()).collect();
        arrived.into_iter().flat_map(|page| self.calls_to_release(page)).collect()
    }

    /// Gives up the job of a plan that ends early, or begins again.
    pub(crate) fn give_up(&mut self, mut job: Job) {
        self.core.headroom.end_ask(core::mem::take(&mut job.created));
        self.put_back(job);
    }
}

/// Returns the last use, on a stream, of claimed memory. What other streams did there is over, or covered by a wait.
fn last_use_of(pieces: &[Claimed], covered: Tick, stream: StreamId) -> LastUse {
    let behind = |point: Point| LastUse::at(if point.stream == stream { point.tick } else { covered });
    let used = |piece: &Claimed| {
        let least = if piece.is_fresh { LastUse::NEVER } else { LastUse::at(Tick::ZERO) };
        piece.points.iter().map(behind).fold(least, LastUse::max)
    };
    pieces.iter().map(used).max().unwrap_or(LastUse::NEVER)
}

/// Returns the last use of new pages: those that were spare may have been used before.
fn first_use_of(pages: &[New]) -> LastUse {
    if pages.iter().any(|new| new.is_spare) { LastUse::at(Tick::ZERO) } else { LastUse::NEVER }
}

/// Notes that claimed memory is in use through a window.
fn send_away(home: ShardId, pieces: &[Claimed], shards: &mut dyn Shards) -> Vec<BlockId> {
    let blocks: Vec<_> = pieces.iter().map(|piece| piece.block).collect();
    shards.with(home, |shard| blocks.iter().for_each(|&block| shard.memory.goes_away(block)));
    blocks
}
