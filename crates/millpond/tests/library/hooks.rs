//! Hooks that run before a request is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use millpond::backend::{Backend as _, ClassId};
use millpond::events::{Event, Sink};
use millpond::hooks::{Answer, ROUNDS_MAX};
use millpond::{Allocator, Buffer, Error, ErrorKind, Stream};
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 5] = [
    "policy:paged",
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:direct",
    "policy:classic,throw_on_cudamalloc_oom:True",
];

fn opened(conf: &str) -> (Allocator<Sim>, Stream<Sim>) {
    // Segments of classic are tested against the device where a share of it is the limit.
    let sim = Sim::builder().total_bytes(64 * MIB).build();
    let allocator = Allocator::builder(sim).conf(conf).limit(64 * MIB).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

type Cache = Arc<Mutex<Vec<Buffer<Sim>>>>;

/// Returns buffers that a hook may free.
fn cache(stream: &Stream<Sim>, mib: &[u64]) -> Cache {
    Arc::new(Mutex::new(mib.iter().map(|mib| stream.allocate(mib * MIB).unwrap()).collect()))
}

fn pop(cache: &Cache) -> Answer {
    let buffer = cache.lock().unwrap().pop();
    if buffer.is_some() { Answer::Retry } else { Answer::Pass }
}

#[test]
fn what_a_hook_frees_serves_the_request() {
    for conf in CONFS {
        let (allocator, stream) = opened(conf);
        let cached = cache(&stream, &[20, 20, 20]);
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let (hooked, told) = (Arc::clone(&cached), Arc::clone(&attempts));
        let hook = allocator.on_out_of_memory(move |shortage| {
            let report = shortage.report();
            assert_eq!((report.requested_bytes, report.limit_bytes), (40 * MIB, Some(64 * MIB)));
            assert!(report.short_bytes() > 0 && shortage.to_string().contains("out of memory"));
            told.lock().unwrap().push(shortage.attempt());
            pop(&hooked)
        });
        // Under throw_on_cudamalloc_oom nothing that is cached is released for it.
        let buffer = stream.allocate(40 * MIB);
        let stats = allocator.stats();
        if conf.contains("throw_on") {
            assert_eq!(*attempts.lock().unwrap(), [1, 2, 3, 4], "{conf}: until nothing is left");
            assert_eq!((buffer.is_err(), stats.num_oom_rejections), (true, 1), "{conf}: counted once");
            continue;
        }
        assert!(buffer.is_ok(), "{conf}");
        assert_eq!(*attempts.lock().unwrap(), [1, 2], "{conf}");
        assert_eq!((cached.lock().unwrap().len(), stats.num_ooms), (1, 0), "{conf}: nothing was refused");
        drop(hook);
        let error = stream.allocate(40 * MIB).unwrap_err();
        assert_eq!((error.kind(), attempts.lock().unwrap().len()), (ErrorKind::OutOfMemory, 2), "{conf}: it has ended");
        assert_eq!(allocator.stats().num_ooms, 1, "{conf}");
        allocator.check();
    }
}

/// Each hook is asked once in a round. A round of passes ends that.
#[test]
fn hooks_are_asked_in_order_and_a_bounded_number_of_times() {
    let (allocator, stream) = opened("policy:paged");
    let asked = Arc::new(Mutex::new(String::new()));
    let hook = |name: char, answer: fn(u32) -> Answer| {
        let asked = Arc::clone(&asked);
        allocator.on_out_of_memory(move |shortage| {
            asked.lock().unwrap().push(name);
            answer(shortage.attempt())
        })
    };
    let refused = |expected: &str| {
        assert!(matches!(stream.allocate(100 * MIB), Err(Error::OutOfMemory(_))));
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), expected);
    };
    let [a, b] = ['a', 'b'].map(|name| hook(name, |_| Answer::Pass));
    refused("ab");
    let c = hook('c', |attempt| if attempt <= 2 { Answer::Retry } else { Answer::Pass });
    refused("abcabcabc");
    drop(b);
    let d = hook('d', |_| Answer::Retry);
    refused(&"acd".repeat(ROUNDS_MAX as usize));
    drop((a, c));
    refused(&"d".repeat(ROUNDS_MAX as usize));
    d.keep();
    refused(&"d".repeat(ROUNDS_MAX as usize));
    assert_eq!(allocator.stats().num_ooms, 5, "one for each request");
}

/// In a hook the cache serves requests, and no others are served.
#[test]
fn a_hook_cannot_be_short_of_memory_itself() {
    for conf in ["policy:paged", "policy:classic"] {
        let (allocator, stream) = opened(conf);
        let other = Allocator::new(Sim::builder().build());
        let elsewhere = other.create_stream().unwrap();
        drop(stream.allocate(2 * MIB).unwrap());
        let _live = stream.allocate(50 * MIB).unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let (inside, runs) = (stream.clone(), Arc::clone(&ran));
        let hook = allocator.on_out_of_memory(move |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            match inside.allocate(20 * MIB).unwrap_err() {
                Error::InHook { requested } => assert_eq!(requested, 20 * MIB),
                error => panic!("{error}"),
            }
            assert!(inside.allocate_cached(20 * MIB).unwrap().is_none());
            assert!(elsewhere.allocate(8 * MIB).is_ok(), "another allocator is not short");
            assert!(!inside.would_fit(60 * MIB).unwrap().fits());
            Answer::Pass
        });
        let error = stream.allocate(60 * MIB).unwrap_err();
        assert_eq!((error.kind(), ran.load(Ordering::Relaxed)), (ErrorKind::OutOfMemory, 1), "{conf}");
        assert!(stream.allocate(10 * MIB).is_ok(), "{conf}: after the hook it is a request as any");
        drop(hook);
        let inside = stream.clone();
        let hook = allocator.on_out_of_memory(move |_| {
            drop(inside.allocate(MIB).expect("the cache serves it"));
            Answer::Pass
        });
        // Its neighbour keeps what is free from going back.
        let _neighbour = stream.allocate(MIB).unwrap();
        assert!(stream.allocate(60 * MIB).is_err());
        drop(hook);
        allocator.check();
    }
}

#[test]
fn a_hook_may_empty_the_cache_and_raise_the_limit() {
    let (allocator, stream) = opened("policy:classic");
    let sim_bytes = allocator.backend().caps().class(ClassId::DEVICE).total_bytes;
    allocator.set_limit(Some(30 * MIB));
    let inside = allocator.clone();
    let hook = allocator.on_out_of_memory(move |_| {
        inside.empty_cache().unwrap();
        inside.trim(0).unwrap();
        inside.set_limit(None);
        Answer::Retry
    });
    assert!(stream.allocate(sim_bytes).is_ok());
    drop(hook);
}

#[test]
fn a_panic_of_a_hook_reaches_the_caller_and_nothing_is_lost() {
    for conf in CONFS {
        let (allocator, stream) = opened(conf);
        let cached = cache(&stream, &[30]);
        let panics = allocator.on_out_of_memory(|shortage| panic!("attempt {}", shortage.attempt()));
        let panic = catch_unwind(AssertUnwindSafe(|| stream.allocate(50 * MIB).map(drop))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("attempt 1"), "{conf}");
        allocator.check();
        drop(panics);
        assert!(matches!(stream.allocate(50 * MIB), Err(Error::OutOfMemory(_))), "{conf}: it is in no hook now");
        cached.lock().unwrap().clear();
        allocator.empty_cache().unwrap();
        assert!(stream.allocate(50 * MIB).is_ok(), "{conf}");
        allocator.check();
    }
}

/// Two threads are short of memory at once, and each runs the hook while the other does.
#[test]
fn threads_run_hooks_at_the_same_time() {
    for conf in ["policy:paged", "policy:classic"] {
        let (allocator, stream) = opened(conf);
        let cached = cache(&stream, &[30, 30]);
        let (both, hooked) = (Arc::new(Barrier::new(2)), Arc::clone(&cached));
        let _hook = allocator.on_out_of_memory(move |shortage| {
            if shortage.attempt() == 1 {
                both.wait();
            }
            pop(&hooked)
        });
        thread::scope(|scope| {
            for _ in 0..2 {
                let stream = allocator.create_stream().unwrap();
                scope.spawn(move || {
                    let held = stream.allocate(30 * MIB);
                    assert!(held.is_ok(), "{held:?}");
                    held
                });
            }
        });
        assert!(cached.lock().unwrap().is_empty(), "{conf}");
        allocator.check();
    }
}

/// Requests in pools, of elements, and of page-locked memory come the same way.
#[test]
fn all_requests_ask() {
    let (allocator, stream) = opened("policy:paged");
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let _hook = allocator.on_out_of_memory(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Pass
    });
    let pool = allocator.create_pool().unwrap();
    let bytes = 100 * MIB;
    assert!(pool.stream(stream.id()).unwrap().allocate(bytes).is_err());
    assert!(stream.allocate_prepared(bytes, || Ok(())).is_err());
    assert!(stream.allocate_labelled("large", bytes).is_err());
    assert!(stream.allocate_elements::<u8>(bytes).is_err());
    assert!(allocator.allocate(bytes, &stream).is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    assert!(stream.allocate_cached(bytes).unwrap().is_none());
    assert_eq!(asked.load(Ordering::Relaxed), 5, "a cached request is not refused");
}

/// A hook ends with the last handle, so that buffers which it owns do not keep the allocator.
#[test]
fn a_hook_that_is_kept_ends_with_the_allocator() {
    let (allocator, stream) = opened("policy:paged");
    let sim = allocator.backend().clone();
    let owned = Mutex::new(Some(stream.allocate(20 * MIB).unwrap()));
    allocator
        .on_out_of_memory(move |_| if owned.lock().unwrap().take().is_some() { Answer::Retry } else { Answer::Pass })
        .keep();
    assert!(sim.held_bytes() > 0);
    drop((stream, allocator));
    assert_eq!(sim.held_bytes(), 0);
}

#[derive(Default)]
struct Steps(Vec<&'static str>);

impl Sink for Steps {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Miss { .. } => self.0.push("miss"),
            Event::Grant { .. } => self.0.push("grant"),
            Event::Step { name: "refuse", .. } => self.0.push("refuse"),
            _ => {}
        }
    }
}

/// Whoever records a program sees one request, and no refusal of one that was served.
#[test]
fn sinks_see_one_request() {
    let (allocator, stream) = opened("policy:paged");
    let cached = cache(&stream, &[20, 20]);
    let _hook = allocator.on_out_of_memory(move |_| pop(&cached));
    allocator.set_sink(Steps::default());
    drop(stream.allocate(50 * MIB).unwrap());
    drop(stream.allocate(100 * MIB).unwrap_err());
    assert_eq!(allocator.take_sink::<Steps>().unwrap().0, ["miss", "grant", "miss", "refuse"]);
}
