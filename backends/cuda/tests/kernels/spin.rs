//! While a kernel runs, the host does not wait for it.

use std::thread;
use std::time::{Duration, Instant};

use millpond::{Allocator, Buffer, PageStats, Stream};
use millpond_backend::{Backend, ClassId, Transfer};
use millpond_cuda::testing::Cuda;

use crate::aid::{POLICIES, address, allocator, holds, machine, runs, segment_holds};
use crate::lab::{finish, give_back};
use crate::machine::SPIN;

const MIB: u64 = 1 << 20;
/// The bytes that move from one stream to the other.
const BYTES: u64 = 32 * MIB;
/// The number of requests that are made and given back while a kernel runs.
const OPERATIONS: usize = 10_000;

/// A kernel of the first stream reads memory at the end of its run that is already freed. The second stream has got the
/// pages by then, at other addresses, and its work waits on the device.
#[test]
fn pages_go_to_another_stream_while_a_kernel_still_reads_them() {
    let Some((cuda, kernels)) = machine() else { return };
    let Some(allocator) = allocator(&cuda, "policy:paged,growth:tight") else { return };
    let (first, second) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let witness = cuda.reserve(ClassId::DEVICE, BYTES).unwrap();
    cuda.fill(second.id(), &witness, 0, BYTES, 0).unwrap();
    second.synchronize().unwrap();

    let source = first.allocate(BYTES).unwrap();
    first.fill(&source, 0, BYTES, 1).unwrap();
    let reserved = allocator.memory_reserved();
    let spin = kernels.spin_and_copy(first.id(), SPIN, address(&source), witness.address(), BYTES);
    drop(source);
    let begin = Instant::now();
    let target = second.allocate(BYTES).unwrap();
    let took = begin.elapsed();
    second.fill(&target, 0, BYTES, 2).unwrap();
    let filled = second.point();
    eprintln!("{BYTES} bytes moved behind a running kernel in {took:?}, which runs for {SPIN:?}");
    assert!(took < SPIN / 10, "the host took {took:?}, while a kernel ran for {SPIN:?}");
    assert_eq!(allocator.memory_reserved(), reserved, "the second stream has the first one's pages");
    assert!(allocator.page_stats().moved_behind_wait > 0, "{:?}", allocator.page_stats());

    // This is enough time for a fill that does not wait.
    thread::sleep(Duration::from_millis(20));
    let reached = cuda.reached(second.id()).unwrap();
    assert!(runs(&cuda, first.id()), "the kernel is over too early to show anything");
    assert!(reached < filled.tick, "tick {reached} is reached: the fill at {} waits for nobody", filled.tick);
    spin.end();
    assert!(holds(&second, &target, 2), "something else was written over the second stream's fill");
    assert!(segment_holds(&cuda, first.id(), &witness, 1), "the first stream's kernel has read another's bytes");
    drop(target);
    allocator.check();
    finish(&cuda, second.id());
    give_back(&cuda, witness);
}

#[test]
fn ten_thousand_requests_beside_a_kernel_do_not_wait_for_it() {
    let Some((cuda, kernels)) = machine() else { return };
    for conf in POLICIES {
        let Some(allocator) = allocator(&cuda, conf) else { continue };
        let [busy, own, idle] = [(); 3].map(|()| allocator.create_stream().unwrap());
        // Memory of a stream without work, and of the stream that will have work: pages that `paged` can move. The fill
        // makes the driver do what it puts off until first use.
        let (early, late) = (idle.allocate(2 * BYTES).unwrap(), busy.allocate(2 * BYTES).unwrap());
        own.fill(&early, 0, BYTES, 3).unwrap();
        own.synchronize().unwrap();
        drop(early);
        let spin = kernels.spin(busy.id(), SPIN);
        drop(late);

        let before = (allocator.driver_activity(), allocator.page_stats());
        let begin = Instant::now();
        churn(&own, &busy);
        let took = begin.elapsed();
        let calls = allocator.driver_activity().since(before.0).calls;
        let pages = allocator.page_stats();
        eprintln!("{conf}: {OPERATIONS} requests in {took:?} beside a kernel of {SPIN:?}; {calls} driver calls");
        eprintln!("  {pages:?}");
        assert!(runs(&cuda, busy.id()), "{conf}: the host was kept for {took:?}, until the kernel was over");
        assert!(took < SPIN, "{conf}: {took:?}");
        assert!(calls > 0, "{conf}: no request went to the driver");
        if conf.starts_with("policy:paged") {
            let taken = |stats: &PageStats| stats.moved + stats.moved_behind_wait;
            assert!(taken(&pages) > taken(&before.1), "{conf}: no memory of another stream was used: {pages:?}");
        }
        if conf.contains("tight") {
            assert!(pages.moved_behind_wait > 0, "{conf}: nothing was taken behind a wait: {pages:?}");
        }
        spin.end();
        for stream in [&busy, &own, &idle] {
            stream.synchronize().unwrap();
        }
        allocator.check();
    }
}

/// Makes small and large requests, each kept for a while. Every sixteenth is also used by the busy stream, so that its
/// memory waits for the kernel once it is freed, and work is queued now and then. The large requests grow, so that
/// cached memory is not enough for them.
fn churn(own: &Stream<Cuda>, busy: &Stream<Cuda>) {
    const SIZES: [u64; 7] = [512, 4096, 100_000, 700_000, MIB, 3 * MIB, 5000];
    let mut held: Vec<Option<Buffer<Cuda>>> = (0..64).map(|_| None).collect();
    for operation in 0..OPERATIONS {
        let large = operation % 1000 == 999;
        let bytes = if large { BYTES / 4 * (1 + operation as u64 / 1000) } else { SIZES[operation % SIZES.len()] };
        let buffer = own.allocate(bytes).unwrap();
        if operation % 16 == 0 {
            buffer.record_stream(busy).unwrap();
        }
        if operation % 256 == 0 {
            own.fill(&buffer, 0, bytes, operation as u8).unwrap();
        }
        let place = if large { 0 } else { operation % held.len() };
        held[place] = Some(buffer);
    }
}

/// Giving segments back is the only call that makes the host wait for kernels, of any stream: `cuMemFree` does.
#[test]
fn giving_segments_back_waits_for_every_kernel() {
    let Some((cuda, kernels)) = machine() else { return };
    for act in [Allocator::empty_cache, |allocator: &Allocator<Cuda>| allocator.trim(0).map(drop)] {
        let allocator = allocator(&cuda, "policy:classic").expect("every device serves it");
        assert!(cuda.caps().release_waits);
        let (busy, own) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        drop(own.allocate(BYTES).unwrap());
        let _spin = kernels.spin(busy.id(), Duration::from_millis(100));
        assert!(runs(&cuda, busy.id()), "the kernel is over too early to show anything");
        act(&allocator).unwrap();
        assert_eq!(allocator.memory_reserved(), 0);
        assert!(!runs(&cuda, busy.id()), "the driver took a segment back while a kernel ran");
    }
}
