//! Reads scenarios from text. Reading is strict: a loaded scenario makes sense, so the player does not check it again.

use std::collections::{BTreeMap, BTreeSet};

use millpond::MemoryStats;
use millpond::settings::Policy;

use super::words::Words;
use super::{Action, Expect, POLICIES, Requirement, Scenario, Step};

/// A line of a corpus file that does not follow the grammar or makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct LoadError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The problem, and what was expected.
    pub problem: String,
}

/// The state of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Live { written: bool },
    Freed,
}

/// A scenario that is being read, and the state after its steps so far.
struct Draft {
    scenario: Scenario,
    buffers: BTreeMap<String, Life>,
    points: BTreeSet<String>,
    held: BTreeSet<u32>,
    refused: bool,
    counted: bool,
}

/// Reads all scenarios of a file.
pub(super) fn load(text: &str) -> Result<Vec<Scenario>, LoadError> {
    let mut done: Vec<Scenario> = Vec::new();
    let mut draft: Option<Draft> = None;
    let mut last = 0;
    for (at, content) in text.lines().enumerate() {
        let line = at + 1;
        let wrong = |problem| LoadError { line, problem };
        let mut words = Words::new(content);
        let Some(verb) = words.next() else { continue };
        last = line;
        if verb == "scenario" {
            done.extend(draft.take().map(Draft::finish).transpose().map_err(wrong)?);
            let name = words.name().map_err(wrong)?;
            if done.iter().any(|scenario| scenario.name == name) {
                return Err(wrong(format!("there is a scenario `{name}` already")));
            }
            draft = Some(Draft::new(name, line));
        } else if let Some(draft) = &mut draft {
            draft.line(line, verb, &mut words).map_err(wrong)?;
        } else {
            return Err(wrong(format!("`{verb}` stands before the first scenario")));
        }
        words.end().map_err(wrong)?;
    }
    done.extend(draft.map(Draft::finish).transpose().map_err(|problem| LoadError { line: last, problem })?);
    Ok(done)
}

impl Draft {
    fn new(name: String, line: usize) -> Self {
        let scenario = Scenario {
            name,
            line,
            policies: vec![POLICIES[0]],
            needs: Vec::new(),
            conf: String::new(),
            limit: None,
            streams: 1,
            steps: Vec::new(),
        };
        Self {
            scenario,
            buffers: BTreeMap::new(),
            points: BTreeSet::new(),
            held: BTreeSet::new(),
            refused: false,
            counted: false,
        }
    }

    fn line(&mut self, line: usize, verb: &str, words: &mut Words<'_>) -> Result<(), String> {
        if !self.header(verb, words)? {
            let action = action(verb, words)?;
            self.sense(&action)?;
            self.scenario.steps.push(Step { line, action });
        }
        Ok(())
    }

    /// Reads a line of the kind that stands before the steps. Returns whether it was one.
    fn header(&mut self, verb: &str, words: &mut Words<'_>) -> Result<bool, String> {
        let scenario = &mut self.scenario;
        match verb {
            "under" => {
                scenario.policies.clear();
                while let Some(word) = words.next() {
                    let known = Policy::variant(word).ok_or_else(|| format!("`{word}` is no policy"))?;
                    scenario.policies.push(known);
                }
                if scenario.policies.is_empty() {
                    return Err("`under` names no policy".to_owned());
                }
            }
            "needs" => {
                while let Some(word) = words.next() {
                    let known = Requirement::WORDS.iter().find(|(known, ..)| *known == word);
                    let (_, requirement, _) = known.ok_or_else(|| format!("`{word}` is nothing that devices have"))?;
                    scenario.needs.push(*requirement);
                }
            }
            "conf" => scenario.conf = words.word("a configuration")?.to_owned(),
            "limited" => scenario.limit = Some(words.number()?),
            _ => return Ok(false),
        }
        if scenario.steps.is_empty() { Ok(true) } else { Err(format!("`{verb}` stands behind the first step")) }
    }

    /// Checks that a step makes sense where it stands, and applies its effects to the state.
    fn sense(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Allocate { name, stream, .. } => {
                if self.buffers.insert(name.clone(), Life::Live { written: false }).is_some() {
                    return Err(format!("there was a buffer `{name}` already"));
                }
                self.stream(*stream);
            }
            Action::Refuse { stream, .. } => {
                self.refused = true;
                self.stream(*stream);
                self.at_rest("a refusal waits for outstanding work")?;
            }
            Action::Free { name } => *self.live(name)? = Life::Freed,
            Action::Write { name, stream } => {
                *self.live(name)? = Life::Live { written: true };
                self.stream(*stream);
                self.require(Requirement::Transfer);
            }
            Action::Record { name, stream } => {
                self.live(name)?;
                self.stream(*stream);
            }
            Action::Point { name, stream } => {
                if !self.points.insert(name.clone()) {
                    return Err(format!("there is a point `{name}` already"));
                }
                self.stream(*stream);
            }
            Action::Until { name, point } => {
                self.live(name)?;
                self.point(point)?;
            }
            Action::Wait { point } => {
                self.point(point)?;
                self.at_rest("`wait` waits")?;
            }
            Action::After { stream, point } => {
                self.point(point)?;
                self.stream(*stream);
                self.at_rest("`after` waits on devices that cannot leave it to a stream")?;
            }
            Action::Hold { stream } => {
                self.require(Requirement::Hold);
                self.stream(*stream);
                if !self.held.insert(*stream) {
                    return Err(format!("s{stream} is held already"));
                }
            }
            Action::Unhold { stream } if !self.held.remove(stream) => return Err(format!("s{stream} is not held")),
            Action::Submit { stream } => self.stream(*stream),
            Action::Sync | Action::EmptyCache | Action::Trim { .. } => {
                self.at_rest("the step waits for outstanding work")?;
            }
            Action::CountCalls => self.counted = true,
            Action::Expect(expect) => self.expectation(expect)?,
            _ => {}
        }
        Ok(())
    }

    fn expectation(&mut self, expect: &Expect) -> Result<(), String> {
        match expect {
            Expect::Capacity { name, .. } | Expect::Reuse { name, .. } => self.live(name).map(drop),
            Expect::Data { name } => {
                self.require(Requirement::Transfer);
                if *self.live(name)? == (Life::Live { written: false }) {
                    return Err(format!("nothing was written to `{name}`"));
                }
                self.at_rest("`expect data` waits for the stream")
            }
            Expect::Place { name, other, .. } | Expect::Segment { name, other, .. } => {
                match [name, other].into_iter().find(|name| !self.buffers.contains_key(*name)) {
                    Some(name) => Err(format!("there is no buffer `{name}`")),
                    None => Ok(()),
                }
            }
            Expect::Reached { point, .. } => self.point(point),
            Expect::Calls { .. } if !self.counted => Err("no `count-calls` stands before".to_owned()),
            Expect::Report { .. } if !self.refused => Err("no `refuse` stands before".to_owned()),
            Expect::Stat { key, .. } => {
                let known = MemoryStats::default().flat().iter().any(|(known, _)| known == key);
                if known { Ok(()) } else { Err(format!("`{key}` is no key of torch.cuda.memory_stats")) }
            }
            Expect::Calls { .. } | Expect::Report { .. } => Ok(()),
        }
    }

    fn live(&mut self, name: &str) -> Result<&mut Life, String> {
        match self.buffers.get_mut(name) {
            Some(Life::Freed) => Err(format!("the buffer `{name}` was freed before")),
            Some(life) => Ok(life),
            None => Err(format!("there is no buffer `{name}`")),
        }
    }

    fn point(&self, name: &str) -> Result<(), String> {
        if self.points.contains(name) { Ok(()) } else { Err(format!("there is no point `{name}`")) }
    }

    fn stream(&mut self, stream: u32) {
        self.scenario.streams = self.scenario.streams.max(stream + 1);
    }

    fn require(&mut self, requirement: Requirement) {
        if !self.scenario.needs.contains(&requirement) {
            self.scenario.needs.push(requirement);
        }
    }

    /// Checks that no stream is held, because the host would wait for held work without end.
    fn at_rest(&self, why: &str) -> Result<(), String> {
        match self.held.first() {
            Some(stream) => Err(format!("s{stream} is held, and {why}: `unhold` it first")),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<Scenario, String> {
        self.at_rest("the end of a scenario waits for everything")?;
        if self.scenario.steps.is_empty() {
            return Err(format!("the scenario `{}` has no steps", self.scenario.name));
        }
        Ok(self.scenario)
    }
}

/// Reads a step.
fn action(verb: &str, words: &mut Words<'_>) -> Result<Action, String> {
    Ok(match verb {
        "alloc" => {
            let (name, bytes) = (words.name()?, words.number()?);
            Action::Allocate { name, bytes, stream: words.on_stream()? }
        }
        "refuse" => {
            let (bytes, stream) = (words.number()?, words.on_stream()?);
            Action::Refuse { bytes, stream, refusal: words.refusal()? }
        }
        "free" => Action::Free { name: words.name()? },
        "write" => Action::Write { name: words.name()?, stream: words.on_stream()? },
        "record" => Action::Record { name: words.name()?, stream: words.on_stream()? },
        "point" => Action::Point { name: words.name()?, stream: words.on_stream()? },
        "until" => Action::Until { name: words.name()?, point: words.name()? },
        "wait" => Action::Wait { point: words.name()? },
        "after" => Action::After { stream: words.stream()?, point: words.name()? },
        "submit" => Action::Submit { stream: words.stream()? },
        "sync" => Action::Sync,
        "hold" => Action::Hold { stream: words.stream()? },
        "unhold" => Action::Unhold { stream: words.stream()? },
        "empty-cache" => Action::EmptyCache,
        "trim" => Action::Trim { bytes: words.number()? },
        "poll" => Action::Poll,
        "limit" => Action::Limit { bytes: words.number_or_none()? },
        "reset-peaks" => Action::ResetPeaks,
        "reset-totals" => Action::ResetTotals,
        "count-calls" => Action::CountCalls,
        "expect" => Action::Expect(expect(words)?),
        other => return Err(format!("`{other}` is no step")),
    })
}

/// Reads an expectation.
fn expect(words: &mut Words<'_>) -> Result<Expect, String> {
    Ok(match words.word("what to expect")? {
        "capacity" => {
            let name = words.name()?;
            words.expect("=")?;
            Expect::Capacity { name, bytes: words.number()? }
        }
        "place" => {
            let (name, same) = (words.name()?, words.sameness()?);
            Expect::Place { name, other: words.name()?, same }
        }
        "segment" => {
            let (name, same) = (words.name()?, words.sameness()?);
            Expect::Segment { name, other: words.name()?, same }
        }
        "reuse" => Expect::Reuse { name: words.name()?, reuse: words.reuse()? },
        "data" => Expect::Data { name: words.name()? },
        "reached" => Expect::Reached { point: words.name()?, reached: true },
        "unreached" => Expect::Reached { point: words.name()?, reached: false },
        "calls" => Expect::Calls { relation: words.relation()?, value: words.number()? },
        "report" => {
            let (field, relation) = (words.report_field()?, words.relation()?);
            Expect::Report { field, relation, value: words.number()? }
        }
        key => Expect::Stat { key: key.to_owned(), relation: words.relation()?, value: words.number()? },
    })
}
