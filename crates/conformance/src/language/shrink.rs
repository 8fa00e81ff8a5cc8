//! Delta debugging: reduces a program that fails to a short one that fails in the same way.

use super::operation::{Noted, Operation, renumbered};

/// Sizes that are tried instead of a larger one, in bytes.
const PLAIN_BYTES: [u64; 5] = [512, 4 << 10, 1 << 20, 2 << 20, 20 << 20];

/// The shortest program that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortest {
    /// The number of streams.
    pub streams: usize,
    /// The operations. Their blocks are numbered in the order of their allocations.
    pub operations: Vec<Operation>,
    /// The number of programs that were tried.
    pub trials: u32,
}

/// Removes operations that the failure does not need, then merges streams and simplifies the remaining operations,
/// until nothing helps any more or `most` programs were tried. `fails` says whether a program of a number of streams
/// still fails in the same way. The given program must fail.
pub fn shrink(
    streams: usize,
    operations: Vec<Operation>,
    most: u32,
    fails: &mut dyn FnMut(usize, &[Operation]) -> bool,
) -> Shortest {
    let mut search = Search { program: Candidate { streams, operations }, fails, left: most };
    loop {
        let before = search.program.clone();
        search.leave_out();
        search.fewer_streams();
        search.plainer();
        if search.program == before || search.left == 0 {
            let Candidate { streams, operations } = search.program;
            return Shortest { streams, operations: renumbered(&operations), trials: most - search.left };
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Candidate {
    streams: usize,
    operations: Vec<Operation>,
}

/// The shortest program so far, the function that judges another, and the number of calls that are left.
struct Search<'a> {
    program: Candidate,
    fails: &'a mut dyn FnMut(usize, &[Operation]) -> bool,
    left: u32,
}

impl Search<'_> {
    /// Replaces the program by the candidate if the candidate fails too. Returns whether it does.
    fn prefer(&mut self, candidate: Candidate) -> bool {
        if candidate == self.program || self.left == 0 {
            return false;
        }
        self.left -= 1;
        let better = (self.fails)(candidate.streams, &candidate.operations);
        if better {
            self.program = candidate;
        }
        better
    }

    /// Removes runs of operations: halves first, then quarters, down to single ones. Later operations depend on earlier
    /// ones, so the last are removed first.
    fn leave_out(&mut self) {
        let mut size = self.program.operations.len();
        while size > 0 {
            let mut end = self.program.operations.len();
            while end > 0 {
                let begin = end.saturating_sub(size);
                let mut candidate = self.program.clone();
                candidate.operations.drain(begin..end);
                self.prefer(candidate);
                end = begin;
            }
            size /= 2;
        }
    }

    /// Merges streams, so that the program has fewer.
    fn fewer_streams(&mut self) {
        for streams in 1..self.program.streams {
            let to = |stream: usize| stream % streams;
            let operations = self.program.operations.iter().map(|operation| operation.on_streams(to)).collect();
            if self.prefer(Candidate { streams, operations }) {
                return;
            }
        }
    }

    /// Replaces single operations by simpler ones.
    fn plainer(&mut self) {
        for at in 0..self.program.operations.len() {
            for operation in simpler(self.program.operations[at]) {
                let mut candidate = self.program.clone();
                candidate.operations[at] = operation;
                if self.prefer(candidate) {
                    break;
                }
            }
        }
    }
}

/// Returns what may replace an operation, the simplest first.
fn simpler(operation: Operation) -> Vec<Operation> {
    match operation {
        Operation::Allocate { block, bytes, stream } => {
            let sizes = PLAIN_BYTES.into_iter().filter(|&plain| plain < bytes);
            sizes.map(|bytes| Operation::Allocate { block, bytes, stream }).collect()
        }
        Operation::AllocateGrowable { block, bytes, stream, .. } => vec![Operation::Allocate { block, bytes, stream }],
        Operation::AllocateAligned { block, bytes, stream, .. } => vec![Operation::Allocate { block, bytes, stream }],
        Operation::Grow { block, bytes } => {
            let sizes = PLAIN_BYTES.into_iter().filter(|&plain| plain < bytes);
            sizes.map(|bytes| Operation::Grow { block, bytes }).collect()
        }
        Operation::Use { block, stream, noted, keep } => {
            let ways = [(Noted::Before, false), (noted, false), (Noted::Before, keep)];
            let others = ways.into_iter().filter(|&way| way != (noted, keep));
            others.map(|(noted, keep)| Operation::Use { block, stream, noted, keep }).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a hundred allocations on four streams, with a poll and a free after each.
    fn long() -> Vec<Operation> {
        let of = |block: u32| {
            let stream = block as usize % 4;
            let bytes = 1000 * (u64::from(block) + 1);
            [Operation::Allocate { block, bytes, stream }, Operation::Poll, Operation::Free { block }]
        };
        (0..100).flat_map(of).collect()
    }

    /// Returns whether a block of more than 5 KiB is allocated and freed, and a poll comes later.
    fn fails(_: usize, operations: &[Operation]) -> bool {
        let large = operations.iter().enumerate().find_map(|(at, operation)| match *operation {
            Operation::Allocate { block, bytes, .. } if bytes > 5 << 10 => Some((at, block)),
            _ => None,
        });
        let Some((at, large)) = large else { return false };
        let freed = operations.iter().skip(at).position(|operation| *operation == Operation::Free { block: large });
        freed.is_some_and(|behind| operations[at + behind..].contains(&Operation::Poll))
    }

    #[test]
    fn what_a_failure_does_not_need_is_left_out_and_the_rest_is_plain() {
        let shrunk = shrink(4, long(), 10_000, &mut fails);
        // Later operations are left out first, so the first block of more than 5 KiB stays: its 6000 bytes are fewer
        // than any plain size that would fail.
        let wanted =
            [Operation::Allocate { block: 0, bytes: 6000, stream: 0 }, Operation::Free { block: 0 }, Operation::Poll];
        assert_eq!((shrunk.streams, &shrunk.operations[..]), (1, &wanted[..]));
        assert!(shrunk.trials < 1_000, "{} trials", shrunk.trials);
    }

    #[test]
    fn trials_have_an_end() {
        let shrunk = shrink(4, long(), 3, &mut fails);
        assert_eq!(shrunk.trials, 3);
        assert!(fails(shrunk.streams, &shrunk.operations), "{shrunk:?}");
    }
}
