//! Damaged files of every format: a reader returns, takes a bounded part of the memory, and what it accepts is sound.
//!
//! Cases are drawn from a seed, so each run has the same ones; `MILLPOND_FUZZ_CASES` and `MILLPOND_FUZZ_SEED` have it
//! make others. A case that fails is written to the folder of temporary files. It belongs into `tests/corpus/readers`,
//! which holds inputs that did fail once: they are read first, as they are.

use std::any::Any;
use std::fs;
use std::io::{Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond::Allocator;
use millpond::conf;
use millpond_conformance::golden::{self, Recording};
use millpond_import::{Format, Options, import};
use millpond_replay::Replay;
use millpond_sim::Sim;
use millpond_snapshot::{Limits as SnapshotLimits, Snapshot, VmaDevice};
use millpond_trace::{Content, Limits, Random, Trace};

use crate::counting::most_during;
use crate::turn;

/// The cases unless told. They take some ten seconds.
const CASES: u64 = 4000;

/// The most bytes of the host that reading a case may take, and a replay of what it means, of a thousand streams.
const BYTES_MAX: i64 = 256 << 20;

/// After how long a case is taken for one that never ends. It is no measure: the slowest takes a hundredth.
const NEVER: Duration = Duration::from_secs(60);

/// The most events of a trace, and operations of a recording, that are replayed.
const REPLAYED_MAX: usize = 400;

/// Numbers at the ends of what fields hold.
const NUMBERS: [&str; 20] = [
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "9223372036854775807",
    "9223372036854775808",
    "1152921504606846975",
    "1152921504606846976",
    "1e309",
    "4294967295",
    "4294967296",
    "1000000",
    "65535",
    "65536",
    "1024",
    "0",
    "NaN",
    "",
    "-0",
    "1.5",
    "0x10",
];

const NESTS: [&[u8]; 6] = [b"[", b"{\"a\":", b"(", b"]", b"}", b"\x1b"];

const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n1,2,allocate,0x7f0000000000,1024,0\n\
    1,2,allocate,0x7f0000000400,2048,0x55d0c0\n2,2,allocate failure,(nil),99999999,0x55d0c0\n\
    1,2,free,0x7f0000000000,1024,0\n1,2,deallocate,0x7f0000000400,2048,0\n";
const LIVES: &str = "size,start,end,buffer_id,offset,gaps,alignment\n8,-2,-1,x,0,,1\n9,0,0,y,8,3-4,1\n0,1,1,z,0,,1\n";
const STALLOC: &str = "Iteration Index : 0\nmicro-batch : F\n1 0x7f1e41329c00 512 0\nmodule.0.mlp->MoELayer Layer : F\n\
    1 0x7f1e41329e00 1024 0x5581\n1 0 0 0\n0 0x7f1e41329c00 512 0\n0 0x1 7 0\n";
const CONF: &str =
    "policy:paged,growth:tight,slack:0.05,max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:4]";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the first lines of a file of the corpus.
fn lines(name: &str, count: usize) -> Vec<u8> {
    let file = fs::File::open(root().join("tests/corpus").join(name)).expect(name);
    let mut text = Vec::new();
    let content = Content::new(file).expect(name);
    content.take(4 << 20).read_to_end(&mut text).expect(name);
    text.split_inclusive(|byte| *byte == b'\n').take(count).flatten().copied().collect()
}

/// Returns the files of a folder in the order of their names.
fn folder(path: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(root().join(path)).expect(path).map(|entry| entry.expect(path).path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort_unstable();
    paths.iter().map(|path| (path.display().to_string(), fs::read(path).expect("a file"))).collect()
}

/// Returns the inputs that cases are made of.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for name in ["gnn", "prefetch", "bert_multistream"] {
        seeds.push(lines(&format!("traces/{name}.trace.gz"), 60));
    }
    let trace = Trace::parse(&seeds[0]).expect("a trace");
    seeds.push(trace.write_to(Vec::new()).expect("memory takes everything"));
    for (name, count) in [("default-edges", 12), ("expand-mixed", 20), ("limited-mixed", 12)] {
        seeds.push(lines(&format!("golden/{name}.jsonl.gz"), count));
    }
    let small = folder("crates/snapshot/tests/fixtures").into_iter().filter(|(_, bytes)| bytes.len() < 100_000);
    seeds.extend(small.map(|(_, bytes)| bytes));
    seeds.extend(folder("tests/corpus/readers").into_iter().map(|(_, bytes)| bytes));
    seeds.extend([RMM, LIVES, STALLOC, CONF].map(|text| text.as_bytes().to_vec()));
    seeds
}

/// Returns the runs of digits.
fn numbers(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut begin = None;
    for (at, byte) in bytes.iter().chain([&b' ']).enumerate() {
        match (byte.is_ascii_digit(), begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                runs.push((from, at));
                begin = None;
            }
            _ => {}
        }
    }
    runs
}

/// Damages an input a little, in one way or several.
fn damaged(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.pick(&[1, 1, 1, 2, 3, 6]) {
        if bytes.is_empty() {
            bytes.push(b'a');
        }
        let at = random.index(bytes.len());
        let end = (at + 1 + random.index(200)).min(bytes.len());
        match random.below(11) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => {
                let part = bytes[at..end].repeat(random.pick(&[1, 2, 50]));
                drop(bytes.splice(at..at, part));
            }
            3..=5 => {
                let runs = numbers(&bytes);
                if !runs.is_empty() {
                    let (from, to) = random.pick(&runs);
                    drop(bytes.splice(from..to, random.pick(&NUMBERS).bytes()));
                }
            }
            6 => drop(bytes.drain(at..end)),
            7 => bytes = String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes(),
            8 => {
                let nest = random.pick(&NESTS).repeat(random.pick(&[1, 5, 200, 100_000]));
                drop(bytes.splice(at..at, nest));
            }
            9 => bytes[at] = random.bits() as u8,
            _ => {
                let from = random.index(bytes.len());
                let part = bytes[from..(from + random.index(300)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
    if random.one_in(10) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        bytes = encoder.write_all(&bytes).and_then(|()| encoder.finish()).expect("memory takes everything");
        bytes.truncate(bytes.len().saturating_sub(random.pick(&[0, 0, 3, 20])));
    }
    bytes
}

/// Replays a trace, which no driver may refuse.
fn replays(trace: &Trace) {
    assert_eq!(trace.live_peak() == 0, trace.allocations() == 0);
    if trace.events.len() <= REPLAYED_MAX {
        Replay::new(trace).run(&Allocator::new(Sim::new()), 0).expect("no driver fails");
    }
}

/// Has every reader read an input.
fn read(bytes: &[u8]) {
    if let Ok(trace) = Trace::from_reader(bytes) {
        let text = trace.write_to(Vec::new()).expect("a valid trace can be written");
        assert_eq!(Trace::parse(&text).expect("what was written can be read"), trace);
        replays(&trace);
    }
    if let Ok(snapshot) = Snapshot::from_reader(bytes, &SnapshotLimits::default()) {
        assert!(snapshot.diff(&snapshot, 2).segments.iter().all(|change| change.growth() != 0));
        snapshot.write_vma(&VmaDevice::default(), Vec::new()).expect("memory takes it");
        for written in [snapshot.write_json(Vec::new()), snapshot.write_pickle(Vec::new())] {
            let written = written.expect("memory takes it");
            assert_eq!(Snapshot::parse(&written, &SnapshotLimits::NONE).expect("it was written"), snapshot);
        }
    }
    for format in Format::ALL.map(Some).into_iter().chain([None]) {
        let limits = Limits { events: 1 << 16, ..Limits::default() };
        let options = Options { format, limits, refused: true, ..Options::default() };
        match import(bytes, &options) {
            Ok(imported) => {
                let text = imported.trace.write_to(Vec::new()).expect("the trace is valid");
                assert_eq!(Trace::parse(&text).expect("what was written can be read"), imported.trace);
                replays(&imported.trace);
            }
            Err(error) => assert!(error.to_string().len() < 10_000, "{error}"),
        }
    }
    match Recording::from_reader(bytes) {
        Ok(recording) if recording.ops.len() <= REPLAYED_MAX => drop(golden::replay(&recording)),
        _ => {}
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(settings) = conf::parse(text)
    {
        assert_eq!(conf::parse(&conf::write(&settings)), Ok(settings));
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

/// Reads an input, and returns what was wrong.
fn fault(bytes: &[u8]) -> Option<String> {
    let mut outcome = Ok(());
    let most = most_during(|| outcome = catch_unwind(AssertUnwindSafe(|| read(bytes))));
    match outcome {
        Err(panic) => Some(message(&*panic)),
        Ok(()) if most > BYTES_MAX => Some(format!("it took {most} bytes, and {BYTES_MAX} are the most")),
        Ok(()) => None,
    }
}

/// Ends the process with the number of the case if one does not end.
fn watch(under_way: &'static AtomicU64, ended: mpsc::Receiver<()>) {
    let mut seen = u64::MAX;
    while ended.recv_timeout(NEVER) == Err(mpsc::RecvTimeoutError::Timeout) {
        let now = under_way.load(Ordering::Relaxed);
        if now == seen {
            eprintln!("case {now} did not end within {NEVER:?}");
            std::process::abort();
        }
        seen = now;
    }
}

fn told(name: &str, most: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(most)
}

#[test]
fn a_damaged_file_is_read_or_refused_within_bounds() {
    static UNDER_WAY: AtomicU64 = AtomicU64::new(0);
    let _turn = turn();
    let (cases, first) = (told("MILLPOND_FUZZ_CASES", CASES), told("MILLPOND_FUZZ_SEED", 0));
    let (end, ended) = mpsc::channel::<()>();
    let watching = thread::spawn(move || watch(&UNDER_WAY, ended));
    for (name, bytes) in folder("tests/corpus/readers") {
        assert_eq!(fault(&bytes), None, "{name}");
    }
    let (seeds, mut failed) = (seeds(), Vec::new());
    for seed in first..first + cases {
        UNDER_WAY.store(seed, Ordering::Relaxed);
        let mut random = Random::new(seed);
        let origin = random.index(seeds.len());
        let bytes = damaged(&mut random, &seeds[origin]);
        if let Some(what) = fault(&bytes) {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("case-{seed}"));
            fs::write(&path, &bytes).expect("a file");
            failed.push(format!("case {seed}, in {}: {what}", path.display()));
        }
    }
    drop(end);
    watching.join().expect("it watches");
    assert!(failed.is_empty(), "{} of {cases} cases:\n{}", failed.len(), failed.join("\n"));
}
