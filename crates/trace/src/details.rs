//! What is known of the events beyond what they ask for: call stacks, labels and times.

use std::num::NonZeroU32;

use indexmap::IndexSet;

use crate::error::Problem;
use crate::text::printable;

/// The most bytes of the text of a frame or a label.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

/// Defines a number that counts from 0 and whose `Option` takes four bytes.
macro_rules! number {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// Returns its number, which counts from 0 in the order in which they were added.
            pub const fn index(self) -> usize {
                self.0.get() as usize - 1
            }

            /// Returns the one with a number.
            ///
            /// # Panics
            ///
            /// If there are more than 2^32 - 2 before it. [`Details`] adds no more.
            fn of_index(index: usize) -> Self {
                let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
                Self(number.unwrap_or_else(|| panic!("{index} is no number of 32 bits")))
            }
        }
    };
}

number! {
    /// A frame of [`Details`].
    FrameId
}
number! {
    /// A call stack of [`Details`].
    StackId
}
number! {
    /// A label of [`Details`].
    LabelId
}

/// A call stack, given by its innermost frame and the stack that called it. So stacks form a tree, and each common
/// beginning is stored once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// The innermost frame.
    pub frame: FrameId,
    /// The stack of the caller; `None` for the outermost frame.
    pub caller: Option<StackId>,
}

/// What is known of an event beyond what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The call stack.
    pub stack: Option<StackId>,
    /// The label, such as the part of the program or the kind of the data.
    pub label: Option<LabelId>,
    /// The time, in microseconds since the beginning of the trace.
    pub micros: Option<u64>,
}

/// The number that stands for no time.
const NO_TIME: u64 = u64::MAX;

/// A [`Place`] in 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packed {
    stack: Option<StackId>,
    label: Option<LabelId>,
    micros: u64,
}

impl Packed {
    const NONE: Packed = Packed { stack: None, label: None, micros: NO_TIME };
}

/// The call stacks, labels and times of the events of a trace, as far as they are known.
///
/// Each frame, call stack and label is stored once. Takes 16 bytes for each event where there are any, and none
/// otherwise.
///
/// ```
/// use millpond_trace::{Details, Place};
///
/// let mut details = Details::default();
/// let stack = details.stack(["train.py:40 main", "model.py:12 forward"]);
/// let label = details.label("activations");
/// details.push(0, Place { stack, label: Some(label), micros: Some(7) });
/// let frames: Vec<&str> = details.frames_of(stack.expect("a stack")).collect();
/// assert_eq!(frames, ["model.py:12 forward", "train.py:40 main"]);
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Details {
    frames: IndexSet<Box<str>>,
    calls: IndexSet<Call>,
    labels: IndexSet<Box<str>>,
    /// The places of the events, as far as the last one that has any.
    places: Vec<Packed>,
    /// The latest time so far.
    latest: u64,
    has_times: bool,
}

impl Details {
    /// Returns whether there is nothing: no frame, call stack or label, and no event of which anything is known.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.stored() == 0
    }

    /// Returns whether any event has a time.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Returns whether there is any call stack.
    pub fn has_stacks(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns whether there is any label.
    pub fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// Adds a frame, such as `train.py:40 main`, or finds it. Control characters are escaped, and 1,024 bytes of the
    /// text are kept. An empty text is `?`.
    ///
    /// # Panics
    ///
    /// If there are 2^32 - 1 frames.
    pub fn frame(&mut self, text: &str) -> FrameId {
        FrameId::of_index(intern(&mut self.frames, text))
    }

    /// Adds a label, or finds it. Its text is kept as that of a [`frame`](Details::frame).
    ///
    /// # Panics
    ///
    /// If there are 2^32 - 1 labels.
    pub fn label(&mut self, text: &str) -> LabelId {
        LabelId::of_index(intern(&mut self.labels, text))
    }

    /// Adds the call stack that ends in a frame, or finds it.
    ///
    /// # Panics
    ///
    /// If there are 2^32 - 1 stacks.
    pub fn call(&mut self, frame: FrameId, caller: Option<StackId>) -> StackId {
        StackId::of_index(self.calls.insert_full(Call { frame, caller }).0)
    }

    /// Adds a call stack, or finds it. Returns `None` for one without frames. Costs a search in a table for each frame.
    pub fn stack<'a>(&mut self, outermost_first: impl IntoIterator<Item = &'a str>) -> Option<StackId> {
        outermost_first.into_iter().fold(None, |caller, text| {
            let frame = self.frame(text);
            Some(self.call(frame, caller))
        })
    }

    /// Notes the place of the event with a number, which counts from 0. A time before that of an earlier event becomes
    /// that one: times of several threads may be out of order by a little.
    ///
    /// # Panics
    ///
    /// If a later event has a place.
    pub fn push(&mut self, event: usize, place: Place) {
        if place == Place::default() {
            return;
        }
        assert!(event >= self.places.len(), "event {event} comes after event {}", self.places.len());
        self.places.resize(event, Packed::NONE);
        if let Some(micros) = place.micros {
            self.latest = self.latest.max(micros.min(NO_TIME - 1));
            self.has_times = true;
        }
        let micros = if place.micros.is_some() { self.latest } else { NO_TIME };
        self.places.push(Packed { stack: place.stack, label: place.label, micros });
    }

    /// Makes room for events that come before others: for each number of an event, in order, one before it. Of these as
    /// much is known as of the event after it.
    pub fn make_room(&mut self, before: &[usize]) {
        if before.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.places);
        let mut before = before.iter().peekable();
        for (event, place) in old.iter().enumerate() {
            while before.next_if(|at| **at == event).is_some() {
                self.places.push(*place);
            }
            self.places.push(*place);
        }
    }

    /// Returns the place of an event.
    pub fn place(&self, event: usize) -> Place {
        let Packed { stack, label, micros } = self.places.get(event).copied().unwrap_or(Packed::NONE);
        Place { stack, label, micros: Some(micros).filter(|micros| *micros != NO_TIME) }
    }

    /// Returns the frames in the order of their numbers.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &str> {
        self.frames.iter().map(|text| &**text)
    }

    /// Returns the call stacks in the order of their numbers. The stack of a caller comes before those that it calls.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = Call> {
        self.calls.iter().copied()
    }

    /// Returns the labels in the order of their numbers.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.labels.iter().map(|text| &**text)
    }

    /// Returns a call stack by its innermost frame and its caller.
    ///
    /// # Panics
    ///
    /// If the stack is of other details.
    pub fn call_of(&self, stack: StackId) -> Call {
        self.calls[stack.index()]
    }

    /// Returns the frames of a call stack, innermost first.
    ///
    /// # Panics
    ///
    /// If the stack is of other details.
    pub fn frames_of(&self, stack: StackId) -> impl Iterator<Item = &str> {
        let callers = std::iter::successors(Some(stack), |stack| self.call_of(*stack).caller);
        callers.map(|stack| self.frame_text(self.call_of(stack).frame))
    }

    /// Returns the text of a frame.
    ///
    /// # Panics
    ///
    /// If the frame is of other details.
    pub fn frame_text(&self, frame: FrameId) -> &str {
        &self.frames[frame.index()]
    }

    /// Returns the text of a label.
    ///
    /// # Panics
    ///
    /// If the label is of other details.
    pub fn label_text(&self, label: LabelId) -> &str {
        &self.labels[label.index()]
    }

    /// Returns the number of frames, call stacks and labels.
    pub(crate) fn stored(&self) -> u64 {
        (self.frames.len() + self.calls.len() + self.labels.len()) as u64
    }

    /// Adds a frame of a file, which has it once.
    pub(crate) fn read_frame(&mut self, text: &[u8]) -> Result<(), Problem> {
        read_text(&mut self.frames, text)
    }

    /// Adds a label of a file, which has it once.
    pub(crate) fn read_label(&mut self, text: &[u8]) -> Result<(), Problem> {
        read_text(&mut self.labels, text)
    }

    /// Adds a call stack of a file, which has it once: the number of a frame, and that of the caller, from 1; 0 for
    /// none.
    pub(crate) fn read_call(&mut self, frame: u64, caller: u64) -> Result<(), Problem> {
        let Some(frame) = self.numbered(self.frames.len(), frame.saturating_add(1)).map(FrameId) else {
            return Err(Problem::NotDefined { what: "frame", number: frame });
        };
        let caller = self.read_stack(caller)?;
        if self.calls.insert(Call { frame, caller }) { Ok(()) } else { Err(Problem::Repeated { what: "call stack" }) }
    }

    /// Returns the call stack that a file gives by its number from 1; 0 for none.
    pub(crate) fn read_stack(&self, number: u64) -> Result<Option<StackId>, Problem> {
        let stack = self.numbered(self.calls.len(), number).map(StackId);
        if stack.is_none() && number > 0 { Err(Problem::NotDefined { what: "call stack", number }) } else { Ok(stack) }
    }

    /// Returns the label that a file gives by its number from 1; 0 for none.
    pub(crate) fn read_label_number(&self, number: u64) -> Result<Option<LabelId>, Problem> {
        let label = self.numbered(self.labels.len(), number).map(LabelId);
        if label.is_none() && number > 0 { Err(Problem::NotDefined { what: "label", number }) } else { Ok(label) }
    }

    /// Returns a number from 1 to `most`.
    fn numbered(&self, most: usize, number: u64) -> Option<NonZeroU32> {
        if number > most as u64 { None } else { NonZeroU32::new(number as u32) }
    }
}

/// Returns the number of a text in a table, to which it is added if it is new.
fn intern(table: &mut IndexSet<Box<str>>, text: &str) -> usize {
    let shown = printable(if text.is_empty() { "?" } else { text });
    let end = (0..=TEXT_BYTES_MAX.min(shown.len())).rev().find(|end| shown.is_char_boundary(*end)).unwrap_or(0);
    let kept = &shown[..end];
    match table.get_index_of(kept) {
        Some(index) => index,
        None => table.insert_full(kept.into()).0,
    }
}

/// Adds a text of a file to a table that must not have it yet.
fn read_text(table: &mut IndexSet<Box<str>>, text: &[u8]) -> Result<(), Problem> {
    let Ok(text) = std::str::from_utf8(text) else { return Err(Problem::Text { most: TEXT_BYTES_MAX }) };
    if text.is_empty() || text.len() > TEXT_BYTES_MAX || printable(text) != text {
        return Err(Problem::Text { most: TEXT_BYTES_MAX });
    }
    if table.insert(text.into()) { Ok(()) } else { Err(Problem::Repeated { what: "text" }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_beginning_of_stacks_is_stored_once() {
        let mut details = Details::default();
        let first = details.stack(["main", "step", "forward"]);
        let second = details.stack(["main", "step", "backward"]);
        assert_eq!(details.stack(["main", "step", "forward"]), first);
        assert_eq!((details.frames().len(), details.calls().len()), (4, 4));
        let frames: Vec<&str> = details.frames_of(second.unwrap()).collect();
        assert_eq!(frames, ["backward", "step", "main"]);
        assert_eq!(details.stack([]), None);
    }

    #[test]
    fn events_without_a_place_have_none() {
        let mut details = Details::default();
        let label = Some(details.label("weights"));
        details.push(0, Place::default());
        assert!(!details.is_empty() && !details.has_times() && Details::default().is_empty());
        details.push(2, Place { label, ..Place::default() });
        details.push(5, Place { micros: Some(30), ..Place::default() });
        details.push(6, Place { micros: Some(20), ..Place::default() });
        assert_eq!(details.place(0), Place::default());
        assert_eq!(details.place(2), Place { label, ..Place::default() });
        assert_eq!([3, 5, 6, 7].map(|event| details.place(event).micros), [None, Some(30), Some(30), None]);
    }

    #[test]
    fn what_comes_before_an_event_is_known_as_that_is() {
        let mut details = Details::default();
        (0..3).for_each(|event| details.push(event, Place { micros: Some(event as u64), ..Place::default() }));
        details.make_room(&[0, 2, 2, 9]);
        let micros = (0..7).map(|event| details.place(event).micros);
        assert_eq!(micros.collect::<Vec<_>>(), [Some(0), Some(0), Some(1), Some(2), Some(2), Some(2), None]);
    }

    #[test]
    fn texts_are_what_a_line_can_hold() {
        let mut details = Details::default();
        for (text, kept) in [("", "?"), ("a\nb", "a\\nb"), (&"ä".repeat(600), &"ä".repeat(512))] {
            let frame = details.frame(text);
            assert_eq!(details.frame_text(frame), kept);
        }
    }
}
