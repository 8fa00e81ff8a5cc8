//! Where events happened: call stacks, labels and times, as the details of a trace.

use std::collections::HashMap;
use std::sync::Arc;

use millpond_snapshot::{Frame, Stack};
use millpond_trace::{Details, FrameId, Place, StackId};

/// The most frames of a stack that are kept, the innermost ones.
const FRAMES_MAX: usize = 256;

/// How many parts of the path of a file are kept, the last ones.
const FILE_PARTS: usize = 3;

/// Where libraries are installed. A path of a library is kept from there on.
const LIBRARIES: [&str; 3] = ["site-packages/", "dist-packages/", "lib/python"];

/// Where and when an event happened.
#[derive(Clone, Default)]
pub(crate) struct Spot {
    pub(crate) stack: Option<Stack>,
    pub(crate) label: Option<Arc<str>>,
    /// The time in microseconds, since any moment.
    pub(crate) micros: Option<u64>,
}

/// The places of a trace's events in progress.
pub(crate) struct Places {
    details: Details,
    /// The most frames, call stacks and labels together.
    most: u64,
    /// The numbers of stacks by where their frames are in memory, which stay there while a snapshot is read. None for
    /// those of which no frame is kept.
    stacks: HashMap<usize, Option<StackId>>,
    /// The same of frames.
    frames: HashMap<usize, Option<FrameId>>,
    /// The time of the first event that has one.
    start: Option<u64>,
    /// The number of events whose stack or label is beyond the limit.
    pub(crate) beyond: u64,
}

impl Places {
    pub(crate) fn new(most: u64) -> Self {
        let (stacks, frames) = (HashMap::new(), HashMap::new());
        Self { details: Details::default(), most, stacks, frames, start: None, beyond: 0 }
    }

    /// Adds the place of an event of the trace.
    pub(crate) fn push(&mut self, event: usize, spot: &Spot) {
        let micros = spot.micros.map(|micros| micros.saturating_sub(*self.start.get_or_insert(micros)));
        let stack = spot.stack.as_ref().and_then(|stack| self.stack(stack));
        let label = match &spot.label {
            Some(label) if self.has_room(1) => Some(self.details.label(label)),
            Some(_) => {
                self.beyond += 1;
                None
            }
            None => None,
        };
        self.details.push(event, Place { stack, label, micros });
    }

    /// Returns the details of the trace.
    pub(crate) fn finish(self) -> Details {
        self.details
    }

    /// Returns whether the limit leaves room for another `more` frames, stacks and labels.
    fn has_room(&self, more: usize) -> bool {
        let details = &self.details;
        let stored = details.frames().len() + details.calls().len() + details.labels().len();
        (stored + more) as u64 <= self.most
    }

    fn stack(&mut self, stack: &Stack) -> Option<StackId> {
        let frames = stack.frames();
        let key = frames.as_ptr().addr();
        if let Some(known) = self.stacks.get(&key).filter(|_| !frames.is_empty()) {
            return *known;
        }
        if !self.has_room(2 * frames.len().min(FRAMES_MAX)) {
            self.beyond += 1;
            return None;
        }
        let innermost: Vec<FrameId> = frames.iter().filter_map(|frame| self.frame(frame)).take(FRAMES_MAX).collect();
        let outermost_first = innermost.into_iter().rev();
        let number = outermost_first.fold(None, |caller, frame| Some(self.details.call(frame, caller)));
        self.stacks.insert(key, number);
        number
    }

    /// Returns the number of a frame, if it is of the program and has a file.
    fn frame(&mut self, frame: &Arc<Frame>) -> Option<FrameId> {
        let details = &mut self.details;
        *self.frames.entry(Arc::as_ptr(frame).addr()).or_insert_with(|| text(frame).map(|text| details.frame(&text)))
    }
}

/// Returns the text of a frame, such as `model/net.py:40 forward`, unless it is of the interpreter or has no file. The
/// path of a library begins where libraries are installed, so that readers know it as one.
fn text(frame: &Frame) -> Option<String> {
    if !frame.is_shown() || matches!(&*frame.filename, "" | "??") {
        return None;
    }
    let path = frame.filename.replace('\\', "/");
    let file = match LIBRARIES.iter().filter_map(|folder| path.rfind(folder)).max() {
        Some(start) => path[start..].to_owned(),
        None => {
            let parts: Vec<&str> = path.rsplit('/').take(FILE_PARTS).collect();
            parts.into_iter().rev().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
        }
    };
    let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
    Some(format!("{file}{line} {}", frame.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(filename: &str, line: i64, name: &str) -> Frame {
        let other = Default::default();
        Frame { name: name.into(), filename: filename.into(), line, other }
    }

    fn stack_of(names: impl Iterator<Item = String>) -> Stack {
        Stack::new(names.map(|name| frame("/srv/model/net/train.py", 7, &name)).collect())
    }

    #[test]
    fn a_frame_says_its_file_line_and_function() {
        for (filename, line, expected) in [
            (
                "/a/site-packages/torch/nn/modules/linear.py",
                125,
                Some("site-packages/torch/nn/modules/linear.py:125 forward"),
            ),
            ("/usr/lib/python3.12/threading.py", 9, Some("lib/python3.12/threading.py:9 forward")),
            ("/srv/lib/python3.12/site-packages/x.py", 9, Some("site-packages/x.py:9 forward")),
            ("/srv/benches/torch/deep/train.py", 9, Some("torch/deep/train.py:9 forward")),
            ("train.py", 0, Some("train.py forward")),
            ("/train.py", 3, Some("train.py:3 forward")),
            ("C:\\work\\a\\b\\train.py", 3, Some("a/b/train.py:3 forward")),
            ("??", 0, None),
            ("", 5, None),
            ("/python/Objects/call.c", 9, None),
        ] {
            assert_eq!(text(&frame(filename, line, "forward")).as_deref(), expected, "{filename}");
        }
    }

    #[test]
    fn the_innermost_frames_of_a_stack_are_kept() {
        let mut places = Places::new(u64::MAX);
        let stack = Some(stack_of((0..1000).map(|number| format!("f{number}"))));
        places.push(0, &Spot { stack, ..Spot::default() });
        let details = places.finish();
        let frames: Vec<&str> = details.frames_of(details.place(0).stack.expect("a stack")).collect();
        assert_eq!((frames.len(), frames[0]), (FRAMES_MAX, "model/net/train.py:7 f0"));
        assert_eq!(frames[FRAMES_MAX - 1], "model/net/train.py:7 f255");
    }

    #[test]
    fn no_more_is_kept_than_the_limit_allows() {
        let mut places = Places::new(10);
        let stacks: Vec<Stack> =
            (0..9).map(|number| stack_of([format!("f{number}"), "main".into()].into_iter())).collect();
        for (event, stack) in stacks.iter().enumerate() {
            places.push(event, &Spot { stack: Some(stack.clone()), micros: Some(5), ..Spot::default() });
        }
        assert!((1..9).contains(&places.beyond), "{}", places.beyond);
        places.push(9, &Spot { stack: Some(stacks[0].clone()), ..Spot::default() });
        let details = places.finish();
        assert!(details.frames().len() + details.calls().len() <= 10);
        assert!(details.place(9).stack.is_some() && details.place(9).stack == details.place(0).stack);
        assert_eq!((details.place(8).stack, details.place(8).micros), (None, Some(0)));
    }
}
