//! Work that is captured into a graph, on memory of an allocator.

use std::ptr;

use millpond::Stream;
use millpond_backend::{Backend, ClassId, Point, Transfer};
use millpond_cuda::Segment;
use millpond_cuda::cudarc::driver::sys::{self, CUevent, CUgraph, CUgraphExec, CUstreamCaptureMode};
use millpond_cuda::testing::Cuda;

use crate::aid::{POLICIES, address, allocator, holds, machine, segment_holds};
use crate::lab::{finish, give_back};
use crate::machine::SPIN;

const BYTES: u64 = 3 << 20;

/// A graph that was captured, and can be launched.
struct Graph {
    cuda: Cuda,
    graph: CUgraph,
    executable: CUgraphExec,
}

impl Graph {
    /// Captures the work queued on the stream, in the strictest mode: any query of the stream's progress, and any
    /// unsafe call of this thread during the capture, invalidates it.
    fn capture(cuda: &Cuda, stream: &Stream<Cuda>, work: impl FnOnce()) -> Graph {
        cuda.context().bind_to_thread().unwrap();
        let raw = cuda.raw_stream(stream.id()).unwrap();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        let (mut graph, mut executable): (CUgraph, CUgraphExec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream is alive.
        unsafe { sys::cuStreamBeginCapture_v2(raw, mode) }.result().unwrap();
        work();
        // SAFETY: the stream is alive and being captured; the pointer is to a local pointer.
        let ended = unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) };
        ended.result().expect("nobody disturbs the capture");
        // SAFETY: the pointer is to a local pointer, and the graph was just made.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
        made.result().expect("the graph can be run");
        Graph { cuda: cuda.clone(), graph, executable }
    }

    fn launch(&self, stream: &Stream<Cuda>) {
        self.cuda.context().bind_to_thread().unwrap();
        // SAFETY: both are alive, and the tests keep the memory that the graph touches.
        let launched = unsafe { sys::cuGraphLaunch(self.executable, self.cuda.raw_stream(stream.id()).unwrap()) };
        launched.result().expect("the graph is launched");
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.cuda.context().bind_to_thread();
        // SAFETY: both were made for this, and are not used again.
        unsafe {
            let _ = sys::cuGraphExecDestroy(self.executable);
            let _ = sys::cuGraphDestroy(self.graph);
        }
    }
}

/// Takes zeroed memory outside the allocators.
fn witness(cuda: &Cuda, stream: &Stream<Cuda>) -> Segment {
    let segment = cuda.reserve(ClassId::DEVICE, BYTES).unwrap();
    cuda.fill(stream.id(), &segment, 0, BYTES, 0).unwrap();
    finish(cuda, stream.id());
    segment
}

/// Three blocks are allocated and freed while a stream is captured, some from the cache and some not. The stream's
/// order is the graph's, so one block's memory serves the next, and every replay writes the same bytes.
#[test]
fn blocks_come_and_go_while_their_stream_is_captured() {
    let Some((cuda, kernels)) = machine() else { return };
    for conf in POLICIES {
        let Some(allocator) = allocator(&cuda, conf) else { continue };
        let stream = allocator.create_stream().unwrap();
        let witnesses = [(); 3].map(|()| witness(&cuda, &stream));
        let warm = stream.allocate(BYTES).unwrap();
        stream.fill(&warm, 0, BYTES, 77).unwrap();
        let cached = address(&warm);
        drop(warm);

        let mut places = Vec::new();
        let graph = Graph::capture(&cuda, &stream, || {
            for (witness, value) in witnesses.iter().zip(11..) {
                let block = stream.allocate(BYTES).unwrap();
                // This is more than the cached memory, so that the driver is called during the capture.
                let fresh = stream.allocate(64 << 20).unwrap();
                stream.fill(&block, 0, BYTES, value).unwrap();
                kernels.copy(stream.id(), address(&block), witness.address(), BYTES);
                places.push(address(&block));
                drop((block, fresh));
            }
        });
        assert_eq!(places, [cached; 3], "{conf}: the captured stream reuses its own memory in order");
        for (witness, value) in witnesses.iter().zip(11..) {
            assert!(!segment_holds(&cuda, stream.id(), witness, value), "{conf}: what is captured does not run");
        }
        for replay in 0..3 {
            for witness in &witnesses {
                cuda.fill(stream.id(), witness, 0, BYTES, 0).unwrap();
            }
            graph.launch(&stream);
            for (witness, value) in witnesses.iter().zip(11..) {
                assert!(segment_holds(&cuda, stream.id(), witness, value), "{conf}: replay {replay}, {value} is lost");
            }
        }
        stream.synchronize().unwrap();
        allocator.check();
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}: the capture has left something outstanding");
        witnesses.into_iter().for_each(|witness| give_back(&cuda, witness));
    }
}

/// A block that a captured stream uses, and that is freed during the capture, is not handed out until the capture is
/// over: until then it is not known what that stream will do.
#[test]
fn what_a_captured_stream_uses_waits_for_the_end_of_the_capture() {
    let Some((cuda, kernels)) = machine() else { return };
    for conf in POLICIES {
        let Some(allocator) = allocator(&cuda, conf) else { continue };
        let (captured, home) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let witness = witness(&cuda, &captured);
        let used = home.allocate(BYTES).unwrap();
        home.fill(&used, 0, BYTES, 5).unwrap();
        home.synchronize().unwrap();
        let (place, point) = (address(&used), captured.point());
        let graph = Graph::capture(&cuda, &captured, || {
            kernels.copy(captured.id(), address(&used), witness.address(), BYTES);
            used.record_stream(&captured).unwrap();
            drop(used);
            for _ in 0..10 {
                let other = home.allocate(BYTES).unwrap();
                assert_ne!(address(&other), place, "{conf}: the block is used by a stream that is being captured");
                assert!(cuda.reached(captured.id()).unwrap() < captured.point().tick);
            }
            let reached = cuda.wait(Point { stream: captured.id(), tick: captured.point().tick }).unwrap();
            assert!(reached < captured.point().tick, "{conf}: work that is only captured is reached");
        });
        graph.launch(&captured);
        assert!(segment_holds(&cuda, captured.id(), &witness, 5), "{conf}: the graph read something else");
        assert!(finish(&cuda, captured.id()) >= point.tick);
        allocator.poll().unwrap();
        let taken: Vec<_> = (0..2).map(|_| home.allocate(BYTES).unwrap()).collect();
        let again = taken.iter().any(|buffer| address(buffer) == place);
        assert!(again, "{conf}: the block is lost: {:#x} is not handed out again", place);
        drop(taken);
        allocator.check();
        give_back(&cuda, witness);
    }
}

/// While one stream is captured, no other stream can wait for a point of it, and it cannot wait for a point outside the
/// graph. Each gets memory of its own.
#[test]
fn a_captured_stream_waits_for_no_other() {
    let Some((cuda, kernels)) = machine() else { return };
    for conf in POLICIES {
        let Some(allocator) = allocator(&cuda, conf) else { continue };
        let (captured, busy) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let witness = witness(&cuda, &captured);
        let freed = busy.allocate(8 * BYTES).unwrap();
        busy.fill(&freed, 0, 8 * BYTES, 1).unwrap();
        let spin = kernels.spin(busy.id(), SPIN);
        drop(freed);
        let mut taken = Vec::new();
        let graph = Graph::capture(&cuda, &captured, || {
            let own = captured.allocate(8 * BYTES).unwrap_or_else(|error| panic!("{conf}: {error}"));
            captured.fill(&own, 0, BYTES, 9).unwrap();
            kernels.copy(captured.id(), address(&own), witness.address(), BYTES);
            drop(own);
            taken.extend((0..2).map(|_| busy.allocate(8 * BYTES).unwrap_or_else(|error| panic!("{conf}: {error}"))));
        });
        graph.launch(&captured);
        assert!(segment_holds(&cuda, captured.id(), &witness, 9), "{conf}: the graph wrote something else");
        spin.end();
        for buffer in &taken {
            busy.fill(buffer, 0, buffer.len(), 4).unwrap();
            assert!(holds(&busy, buffer, 4));
        }
        let stats = allocator.page_stats();
        assert_eq!(stats.moved_behind_wait, 0, "{conf}: {stats:?}");
        drop(taken);
        allocator.check();
        give_back(&cuda, witness);
    }
}

/// Makes a stream wait for what another one has queued so far, which has it take part in a capture of that one.
fn follow(cuda: &Cuda, stream: &Stream<Cuda>, other: &Stream<Cuda>) {
    cuda.context().bind_to_thread().unwrap();
    let [waits, leads] = [stream, other].map(|stream| cuda.raw_stream(stream.id()).unwrap());
    let mut event: CUevent = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer; both streams are alive; a wait that is queued needs the event no more.
    unsafe {
        sys::cuEventCreate(&raw mut event, 2).result().unwrap();
        sys::cuEventRecord(event, leads).result().unwrap();
        sys::cuStreamWaitEvent(waits, event, 0).result().unwrap();
        sys::cuEventDestroy_v2(event).result().unwrap();
    }
}

/// A graph of two streams is captured in a private pool. Whenever it runs, it finds its memory: nothing of the pool
/// goes back or to other requests, and a block that both streams used is not granted again inside of the graph.
#[test]
fn a_graph_finds_the_memory_of_its_pool_whenever_it_runs() {
    let Some((cuda, kernels)) = machine() else { return };
    for conf in POLICIES {
        let Some(allocator) = allocator(&cuda, conf) else { continue };
        let eager = [(); 2].map(|()| allocator.create_stream().unwrap());
        let witnesses = [(); 4].map(|()| witness(&cuda, &eager[0]));
        let pool = allocator.create_pool().unwrap();
        let [main, side] = [0, 1].map(|at: usize| pool.stream(eager[at].id()).unwrap());
        let capture = main.begin_capture().unwrap();
        let graph = Graph::capture(&cuda, &main, || {
            let shared = main.allocate(BYTES).unwrap();
            main.fill(&shared, 0, BYTES, 21).unwrap();
            follow(&cuda, &side, &main);
            capture.join(&side).unwrap();
            kernels.copy(side.id(), address(&shared), witnesses[0].address(), BYTES);
            shared.record_stream(&side).unwrap();
            let place = address(&shared);
            drop(shared);
            for (witness, value) in witnesses[1..].iter().zip(11..) {
                let blocks = [&main, &side].map(|stream| stream.allocate(BYTES).unwrap());
                assert!(blocks.iter().all(|block| address(block) != place), "{conf}: both streams use it");
                main.fill(&blocks[0], 0, BYTES, value).unwrap();
                side.fill(&blocks[1], 0, BYTES, 99).unwrap();
                kernels.copy(main.id(), address(&blocks[0]), witness.address(), BYTES);
            }
            follow(&cuda, &main, &side);
        });
        capture.end();
        let reserved = || allocator.pool_stats(pool.id()).unwrap().reserved_bytes;
        let had = reserved();
        for replay in 0..3 {
            allocator.empty_cache().unwrap();
            allocator.trim(0).unwrap();
            assert_eq!(reserved(), had, "{conf}: replay {replay}");
            let others: Vec<_> = (0..12).map(|at| eager[at % 2].allocate(BYTES).unwrap()).collect();
            others.iter().enumerate().for_each(|(at, other)| eager[at % 2].fill(other, 0, BYTES, 77).unwrap());
            eager[1].synchronize().unwrap();
            graph.launch(&eager[0]);
            for (witness, value) in witnesses.iter().zip([21, 11, 12, 13]) {
                assert!(segment_holds(&cuda, eager[0].id(), witness, value), "{conf}: replay {replay}, {value}");
                cuda.fill(eager[0].id(), witness, 0, BYTES, 0).unwrap();
            }
            for (at, other) in others.iter().enumerate() {
                assert!(holds(&eager[at % 2], other, 77), "{conf}: replay {replay} has overwritten another pool's");
            }
        }
        allocator.check();
        eager.iter().for_each(|stream| stream.synchronize().unwrap());
        drop((graph, pool));
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}: the pool is over");
        witnesses.into_iter().for_each(|witness| give_back(&cuda, witness));
    }
}
