//! This allocator at one case and nothing else, for a profiler that counts instructions, or misses in the processor's
//! caches: `hotpath [paged:]CASE[+STREAMS] PASSES [BYTES]`. The policy is `classic`, or `paged` if the case is given
//! with `paged:` in front of it; `any:` stands for `paged` on a device of `millpond-any` (`--features erased`). With
//! `+STREAMS` at the end of it, that many more streams have played the case once, with other sizes, and do nothing but
//! hold the blocks that they have. If BYTES is given, that many bytes of other memory are written before each
//! operation, as by a program that works on its own data between two requests, and the times of the operations are
//! printed. `any:` takes neither.
//!
//! `CASE` is a case's name, or one of three more: `exact` (an allocation and its free, where the block fits as it is),
//! `split` (the block is cut when it is granted and joined again when it is freed), and `none` (the empty loop, which
//! has the cost of the start, to be subtracted). Of these three, a pass is one pair.

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::rc::Rc;

use millpond_benches::case::{CASES, Case, SEED};
use millpond_benches::measure::{Evictor, Latency, Meter, Player, Runner, histogram};
#[cfg(feature = "erased")]
use millpond_benches::subject::Erased;
use millpond_benches::subject::{CLASSIC, Millpond, PAGED, Subject};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (name, passes) = (words.next(), words.next().and_then(|word| word.parse().ok()));
    let bytes = words.next().map(|word| word.parse());
    let (Some(name), Some(passes), Ok(bytes)) = (name, passes, bytes.transpose()) else {
        eprintln!("usage: hotpath [paged:]CASE[+STREAMS]|any:CASE|exact|split|none PASSES [BYTES]");
        return ExitCode::from(2);
    };
    let result = match name.as_str() {
        // A segment of its own, which one block fills.
        "exact" => pairs(32 << 20, passes),
        // Half of the smallest segment.
        "split" => pairs(1 << 20, passes),
        "none" => pairs(0, passes),
        case => play(case, passes, bytes),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hotpath: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Allocates and frees a block of this size once for each pass; at 0 bytes the loop is empty.
fn pairs(bytes: u64, passes: u64) -> Result<(), Box<dyn Error>> {
    let mut subject = Millpond::new(CLASSIC, 1);
    // The first pair grows the pool; every later one is a hit.
    drop(subject.allocate(1 << 20, 0));
    for _ in 0..passes {
        if bytes > 0 {
            let block = subject.allocate(black_box(bytes), 0);
            subject.free(black_box(block));
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Case, Box<dyn Error>> {
    CASES.iter().find(|case| case.name == name).ok_or_else(|| format!("no case is named '{name}'").into())
}

#[cfg(feature = "erased")]
fn play_on_any(name: &str, passes: u64) -> Result<(), Box<dyn Error>> {
    let workload = Rc::new(find(name)?.pattern.workload(SEED)?);
    let mut player = Player::new(Erased::new(PAGED, workload.streams), workload);
    for _ in 0..passes {
        black_box(player.pass());
    }
    Ok(())
}

#[cfg(not(feature = "erased"))]
fn play_on_any(_: &str, _: u64) -> Result<(), Box<dyn Error>> {
    Err("`any:` needs a build with `--features erased`".into())
}

fn play(name: &str, passes: u64, bytes: Option<usize>) -> Result<(), Box<dyn Error>> {
    if let Some(name) = name.strip_prefix("any:") {
        return if bytes.is_none() { play_on_any(name, passes) } else { Err("with `any:` there are no BYTES".into()) };
    }
    let (policy, name) = name.strip_prefix("paged:").map_or((CLASSIC, name), |name| (PAGED, name));
    let (name, streams) = name.split_once('+').unwrap_or((name, "0"));
    let case = find(name)?;
    let workload = Rc::new(case.pattern.workload(SEED)?);
    let mut player = Player::new(Millpond::new(policy, workload.streams), workload);
    let beside = |seed| -> Result<_, Box<dyn Error>> {
        Ok(Player::new(player.subject().sibling(), Rc::new(case.pattern.workload(SEED + seed)?)))
    };
    let mut beside: Vec<_> = (1..=streams.parse()?).map(beside).collect::<Result<_, _>>()?;
    beside.iter_mut().for_each(|player| _ = player.pass());
    let Some(bytes) = bytes else {
        for _ in 0..passes {
            black_box(player.pass());
        }
        return Ok(());
    };
    // What comes first finds nothing in the cache of memory, and does not count.
    player.pass();
    let (meter, mut evictor, mut ticks) = (Meter::new(), Evictor::new(bytes), histogram());
    for _ in 0..passes {
        player.evicted(&meter, &mut evictor, 1, &mut ticks);
    }
    let Latency { p50, p99, .. } = meter.latency(&ticks);
    println!("{} operations behind {bytes} bytes: {p50:.0} ns in the median, {p99:.0} ns at 99 %", ticks.len());
    Ok(())
}
