//! The allocator in logs and metrics. A program of its own, because it is built with features that the other tests do
//! without.

use std::io::Write;
use std::sync::{Arc, Mutex};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use millpond::telemetry::{Tracing, describe_metrics};
use millpond::{Allocator, Error};
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns what is logged while `work` runs, by line, with everything down to a level.
fn logged(level: tracing_subscriber::filter::LevelFilter, work: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn run() {
    let sim = Sim::builder().total_bytes(64 * MIB).build();
    let allocator = Allocator::builder(sim).conf("policy:classic,pinned_use_background_threads:True").build().unwrap();
    allocator.set_sink(Tracing::new("gpu0"));
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate(30 * MIB).unwrap();
    drop(stream.allocate(20 * MIB).unwrap());
    assert!(matches!(stream.allocate(60 * MIB), Err(Error::OutOfMemory(_))));
    allocator.empty_cache().unwrap();
    drop(buffer);
}

#[test]
fn levels_tell_requests_steps_and_trouble_apart() {
    use tracing_subscriber::filter::LevelFilter;
    let warnings = logged(LevelFilter::WARN, run);
    let tried: Vec<_> = warnings.iter().filter(|line| line.contains("refused by the driver, trying on")).collect();
    assert!(warnings[0].contains("the setting has no effect here"), "{warnings:?}");
    assert!(warnings[0].contains("key=\"pinned_use_background_threads\""), "{warnings:?}");
    assert!(!tried.is_empty() && tried[0].contains("call=\"reserve\" bytes=62914560"), "{warnings:?}");
    let last = warnings.last().unwrap();
    assert!(last.starts_with("WARN millpond: out of memory device=\"gpu0\" bytes=62914560"), "{warnings:?}");
    assert!(warnings.iter().all(|line| line.starts_with("WARN")));

    let debug = logged(LevelFilter::DEBUG, run);
    let count = |text: &str| debug.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("miss device="), count(" grant "), count("INFO millpond: empty_cache")), (3, 0, 1), "{debug:#?}");
    assert!(count("driver call device=\"gpu0\" call=\"reserve\" bytes=31457280") == 1, "{debug:#?}");
    assert!(count("call=\"release\"") >= 1, "{debug:#?}");

    let all = logged(LevelFilter::TRACE, run);
    let count = |text: &str| all.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("TRACE millpond: grant"), count("TRACE millpond: free")), (2, 2), "{all:#?}");
    assert_eq!(count("bytes=31457280 requested=31457280"), 1, "{all:#?}");
}

#[test]
fn metrics_are_the_statistics() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        describe_metrics();
        let sim = Sim::builder().total_bytes(64 * MIB).build();
        let after = std::time::Duration::from_nanos(1);
        let builder = Allocator::builder(sim).conf("policy:classic").release_idle_after(after);
        let allocator = builder.build().unwrap();
        let stream = allocator.create_stream().unwrap();
        drop(stream.allocate(60 * MIB).unwrap());
        let polls = std::iter::repeat_with(|| allocator.poll().unwrap());
        assert_eq!(polls.take(9).sum::<u64>(), 60 * MIB);
        let buffer = stream.allocate(30 * MIB).unwrap();
        drop(stream.allocate(1000).unwrap());
        assert!(stream.allocate(60 * MIB).is_err());
        allocator.publish_metrics("gpu0");
        let activity = allocator.driver_activity().calls;
        let found = snapshotter.snapshot().into_vec();
        let value = |name: &str| {
            let is_it = |key: &metrics::Key| {
                key.name() == name && key.labels().any(|label| (label.key(), label.value()) == ("device", "gpu0"))
            };
            match found.iter().find(|(key, ..)| is_it(key.key())) {
                Some((_, _, described, DebugValue::Gauge(value))) if described.is_some() => value.0 as u64,
                Some((_, _, described, DebugValue::Counter(value))) if described.is_some() => *value,
                other => panic!("{name}: {other:?}"),
            }
        };
        assert_eq!(value("millpond_reserved_bytes"), allocator.memory_reserved());
        assert_eq!(value("millpond_allocated_bytes"), 30 * MIB);
        assert_eq!(value("millpond_active_bytes"), 30 * MIB);
        assert_eq!(value("millpond_driver_calls_total"), activity);
        assert_eq!(value("millpond_alloc_retries_total"), allocator.stats().num_alloc_retries);
        assert_eq!((value("millpond_ooms_total"), value("millpond_allocations_total")), (1, 3));
        assert_eq!(value("millpond_idle_released_bytes_total"), 60 * MIB);
        drop(buffer);
    });
}
