//! Another allocator, in a process of its own: the program of `benches/gpu`, or any other with the same protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::case::SLOW;
use super::contest::{Closer, Contestant, Effort, Share, Trouble, Turn, median};
use super::task::Task;
use crate::measure::{Evictor, Latency, Race, Timing};

/// The number of operations between two reads of the phase of a race.
const SLICE: usize = 1000;

/// The same, for operations that may take milliseconds each.
const SLOW_SLICE: usize = 4;

/// Returns the names of the allocators that a program serves.
///
/// # Errors
///
/// Returns an error for a program that cannot be started, fails, or names no allocator.
pub fn served(program: &Path) -> Result<Vec<String>, Trouble> {
    let output = Command::new(program).arg("--list").stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let names: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    if !output.status.success() || names.is_empty() {
        return Err(format!("{} --list named nobody and ended with {}", program.display(), output.status).into());
    }
    Ok(names)
}

/// One allocator of the program. Its process lives from one turn to the next, and is started anew after a failure.
pub struct Peer {
    program: PathBuf,
    name: String,
    device: usize,
    about: Option<String>,
    line: Option<Line>,
}

/// A running process and the pipes to it.
struct Line {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Line {
    fn open(program: &Path, name: &str, device: usize) -> Result<(Self, String), Trouble> {
        let mut child = Command::new(program)
            .args([name, &device.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
        let requests = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = Self { child, requests, answers };
        let about = line.answer("start")?;
        Ok((line, about))
    }

    fn ask(&mut self, request: &str) -> Result<String, Trouble> {
        // The program's last answer explains a failure better than the broken pipe does.
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        let answer = self.answer(request)?;
        sent?;
        Ok(answer)
    }

    fn answer(&mut self, request: &str) -> Result<String, Trouble> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let answer = answer.trim_end();
        match answer.split_once(' ').unwrap_or((answer, "")) {
            ("ok", rest) => Ok(rest.trim().to_owned()),
            ("error", what) => Err(what.to_owned().into()),
            ("", "") => Err(format!("the program ended without an answer to `{request}`").into()),
            _ => Err(format!("the program's answer to `{request}` is `{answer}`, not ok or error").into()),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The process may be busy, and nothing of it is needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn numbers(answer: &str) -> Result<Vec<f64>, Trouble> {
    let number =
        |word: &str| word.parse().map_err(|_| format!("the program's answer has `{word}` for a number").into());
    answer.split_whitespace().map(number).collect()
}

fn exactly<const N: usize>(answer: &str) -> Result<[f64; N], Trouble> {
    let found = numbers(answer)?;
    found.try_into().map_err(|_| format!("the program's answer is `{answer}`, not {N} numbers").into())
}

fn ns(time: Duration) -> u128 {
    time.as_nanos()
}

impl Peer {
    /// Creates the allocator of that name on that device. The process starts with the first turn.
    pub fn new(program: &Path, name: &str, device: usize) -> Self {
        Self { program: program.to_owned(), name: name.to_owned(), device, about: None, line: None }
    }

    /// Starts the process, so that the first turn need not wait for it. Takes seconds.
    ///
    /// # Errors
    ///
    /// Returns the error of the program; the next turn tries again.
    pub fn start(&mut self) -> Result<(), Trouble> {
        self.line().map(|_| ())
    }

    fn line(&mut self) -> Result<&mut Line, Trouble> {
        if self.line.is_none() {
            let (line, about) = Line::open(&self.program, &self.name, self.device)?;
            self.about = Some(about);
            self.line = Some(line);
        }
        Ok(self.line.as_mut().expect("just opened"))
    }

    /// Runs `act` with the process. After a failure the state of the process is not known, so it is ended.
    fn with_line<R>(&mut self, act: impl FnOnce(&mut Line) -> Result<R, Trouble>) -> Result<R, Trouble> {
        let result = self.line().and_then(act);
        if result.is_err() {
            self.line = None;
        }
        result
    }
}

/// Loads the lists and prepares them for the timed part. Returns the time of the preparation in nanoseconds.
fn prepare(line: &mut Line, task: &Task) -> Result<f64, Trouble> {
    for file in &task.files {
        line.ask(&format!("load {}", file.display()))?;
    }
    let [prepared] = exactly(&line.ask("prepare")?)?;
    Ok(prepared)
}

fn passes(line: &mut Line, share: Share) -> Result<Vec<f64>, Trouble> {
    let times = numbers(&line.ask(&format!("passes {} {}", share.passes, ns(share.budget)))?)?;
    if times.is_empty() { Err("the program answered no pass".into()) } else { Ok(times) }
}

/// Asks for the times of single operations.
fn singles(line: &mut Line, request: &str) -> Result<Latency, Trouble> {
    let [_, p50, p99, p999, max, _clock] = exactly(&line.ask(request)?)?;
    Ok(Latency { p50, p99, p999, max })
}

fn closer(line: &mut Line, task: &Task, share: Share) -> Result<Closer, Trouble> {
    let latency = singles(line, &format!("singles {} {}", share.passes, ns(share.budget)))?;
    let evicted = singles(line, &format!("evicted {} {}", Evictor::stride(task.ops()), Evictor::USUAL))?;
    let [blocks] = exactly(&line.ask("verify")?)?;
    let (blocks, expected) = (blocks as u64, task.blocks());
    if blocks != expected {
        return Err(format!("the program checked {blocks} blocks of {expected}: it did other work").into());
    }
    Ok(Closer { latency, evicted, blocks })
}

impl Contestant for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> Option<&str> {
        self.about.as_deref()
    }

    fn is_slow(&self) -> bool {
        self.name == SLOW
    }

    fn turn(&mut self, task: &Task, effort: &Effort, look_closer: bool) -> Result<Turn, Trouble> {
        self.with_line(|line| {
            let prepared = prepare(line, task)?;
            let [first] = exactly(&line.ask("passes 1 0")?)?;
            let [peak] = exactly(&line.ask("peak")?)?;
            passes(line, effort.warm)?;
            let times = passes(line, effort.timed)?;
            let count = times.len();
            let closer = if look_closer { Some(closer(line, task, effort.singles)?) } else { None };
            line.ask("drop")?;
            let reserved = (peak >= 0.0).then_some(peak as u64);
            Ok(Turn { cold_ns: prepared + first, pass_ns: median(times), passes: count, reserved, closer })
        })
    }

    fn race(&mut self, task: &Task, threads: &[usize], timing: Timing) -> Result<Vec<Race>, Trouble> {
        let slice = if self.is_slow() { SLOW_SLICE } else { SLICE };
        self.with_line(|line| {
            prepare(line, task)?;
            let mut race = |threads: usize| {
                let request = format!("race {threads} {} {} {slice}", ns(timing.warm), ns(timing.window));
                let [wall_ns, cpu] = exactly(&line.ask(&request)?)?;
                Ok::<_, Trouble>(Race { wall_ns, cpu_ns: (cpu >= 0.0).then_some(cpu) })
            };
            // The first race does not count, as for this allocator.
            race(task.lists.len())?;
            let races = threads.iter().map(|count| race(*count)).collect::<Result<_, _>>()?;
            line.ask("drop")?;
            Ok(races)
        })
    }
}
