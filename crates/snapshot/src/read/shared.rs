//! Call stacks and frames that were converted: each is there once, however often a file has it.
//!
//! PyTorch's history has a list of frames for each event. The frames in them are few and the same, but the lists are
//! different objects, many of them with the same content.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::model::{Frame, Stack};

/// The frames and stacks of a file.
#[derive(Default)]
pub(super) struct Shared {
    frames: Vec<Arc<Frame>>,
    /// The numbers of frames by their content.
    by_content: HashMap<Arc<Frame>, u32>,
    /// For each dictionary that was converted, the number of its frame and one more, or 0.
    of_dicts: Vec<u32>,
    /// The stacks of the lists that were converted.
    of_lists: HashMap<u32, Stack>,
    /// The stacks by a hash of the numbers of their frames.
    by_frames: HashMap<u64, Stack>,
    hasher: RandomState,
    /// Room for the frames of the stack that is being converted.
    pub(super) scratch: Vec<u32>,
}

impl Shared {
    /// Returns the stack of a list that was converted before.
    pub(super) fn stack_of(&self, list: u32) -> Option<Stack> {
        self.of_lists.get(&list).cloned()
    }

    /// Returns the number of the frame of a dictionary that was converted before.
    pub(super) fn frame_of(&self, dict: u32) -> Option<u32> {
        self.of_dicts.get(dict as usize)?.checked_sub(1)
    }

    /// Returns the number of a dictionary's frame, which may be equal to one before.
    pub(super) fn frame(&mut self, dict: u32, frame: Frame) -> u32 {
        let number = match self.by_content.get(&frame) {
            Some(number) => *number,
            None => {
                let (frame, number) = (Arc::new(frame), self.frames.len() as u32);
                self.frames.push(Arc::clone(&frame));
                self.by_content.insert(frame, number);
                number
            }
        };
        let dict = dict as usize;
        if self.of_dicts.len() <= dict {
            self.of_dicts.resize(dict + 1, 0);
        }
        self.of_dicts[dict] = number + 1;
        number
    }

    /// Returns the stack of a list, which may be equal to one before.
    pub(super) fn stack(&mut self, list: u32, frames: &[u32]) -> Stack {
        let hash = self.hasher.hash_one(frames);
        let frames = frames.iter().map(|frame| &self.frames[*frame as usize]);
        let known = self.by_frames.get(&hash).filter(|known| {
            // Frames with one content are one.
            known.frames().len() == frames.len()
                && known.frames().iter().zip(frames.clone()).all(|(a, b)| Arc::ptr_eq(a, b))
        });
        let stack = known.cloned().unwrap_or_else(|| frames.cloned().collect());
        self.by_frames.entry(hash).or_insert_with(|| stack.clone());
        self.of_lists.insert(list, stack.clone());
        stack
    }
}
