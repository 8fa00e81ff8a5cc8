//! How long blocks live.

use crate::{Event, Trace};

impl Trace {
    /// Returns for each block whether it lives for more than half of the program: whether more than half of the events
    /// lie between its allocation and its completion, or its free where no completion follows, or the end. Weights and
    /// the state of an optimizer do, activations do not.
    ///
    /// Costs a pass over the events and nine bytes for each block.
    pub fn long_lived(&self) -> Vec<bool> {
        let mut born = Vec::new();
        let mut died = Vec::new();
        for (at, event) in self.events.iter().enumerate() {
            match *event {
                Event::Allocate { .. } => {
                    born.push(at);
                    died.push(self.events.len());
                }
                Event::Free { id } | Event::Complete { id } => died[id as usize] = at,
                _ => {}
            }
        }
        born.into_iter().zip(died).map(|(born, died)| (died - born) * 2 > self.events.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::Trace;

    #[test]
    fn a_block_lives_to_its_completion_or_to_the_end() {
        // Ten events: block 0 lives for 9, 1 for 2, 2 for 6, 3 for 4 to the end.
        let text = "a 0 1 0\na 1 1 0\na 2 1 0\nf 1\nf 2\nm 0 0\na 3 1 0\nm 1 0\nc 2\nf 0\n";
        let trace = Trace::parse(text.as_bytes()).expect("a trace");
        assert_eq!(trace.long_lived(), [true, false, true, false]);
        assert!(Trace::default().long_lived().is_empty());
    }
}
