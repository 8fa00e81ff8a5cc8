//! The device's time: long kernels by stream, and how many of them are over.

/// The device's work. Short work is over at once, so only long kernels count.
pub(super) struct Device {
    launched: Vec<u64>,
    done: Vec<u64>,
}

impl Device {
    pub(super) fn new(streams: usize) -> Device {
        Device { launched: vec![0; streams], done: vec![0; streams] }
    }

    pub(super) fn streams(&self) -> usize {
        self.launched.len()
    }

    pub(super) fn launch(&mut self, stream: usize) {
        self.launched[stream] += 1;
    }

    pub(super) fn launched(&self, stream: usize) -> u64 {
        self.launched[stream]
    }

    pub(super) fn is_done(&self, stream: usize, need: u64) -> bool {
        self.done[stream] >= need
    }

    /// Makes the host wait for an event.
    pub(super) fn wait(&mut self, stream: usize, need: u64) {
        self.done[stream] = self.done[stream].max(need);
    }

    pub(super) fn complete(&mut self, stream: usize) {
        self.done[stream] = self.launched[stream];
    }

    /// Makes the host wait for all work.
    pub(super) fn synchronize(&mut self) {
        self.done.clone_from(&self.launched);
    }
}
