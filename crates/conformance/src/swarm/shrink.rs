//! Delta debugging: reduces a program that fails to a short one that fails in the same way.

use super::operation::{Noted, Operation, Program};

/// Sizes that are tried in place of a larger one, in bytes.
const PLAIN_BYTES: [u64; 5] = [512, 4 << 10, 1 << 20, 2 << 20, 20 << 20];

/// The function that says whether a program still fails in the same way, and the number of calls that are left.
pub(super) struct Trials<'a> {
    fails: &'a mut dyn FnMut(&Program) -> bool,
    left: u32,
}

impl<'a> Trials<'a> {
    /// Creates a counter that allows at most `most` programs to be tried.
    pub(super) fn new(most: u32, fails: &'a mut dyn FnMut(&Program) -> bool) -> Self {
        Self { fails, left: most }
    }

    /// Returns the number of programs that may still be tried.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    fn fails(&mut self, program: &Program) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        (self.fails)(program)
    }

    /// Replaces the program by the candidate if the candidate fails too. Returns whether it does.
    fn prefer(&mut self, program: &mut Program, candidate: Program) -> bool {
        let better = candidate != *program && self.fails(&candidate);
        if better {
            *program = candidate;
        }
        better
    }
}

/// Removes operations that the failure does not need, then simplifies the remaining ones, until neither helps any more
/// or all trials are used up.
pub(super) fn shrink(mut program: Program, trials: &mut Trials<'_>) -> Program {
    loop {
        let before = program.clone();
        leave_out(&mut program, trials);
        fewer_streams(&mut program, trials);
        plainer(&mut program, trials);
        if program == before || trials.left() == 0 {
            return program.renumbered();
        }
    }
}

/// Removes runs of operations: halves first, then quarters, down to single ones. Later operations depend on earlier
/// ones, so the last are removed first.
fn leave_out(program: &mut Program, trials: &mut Trials<'_>) {
    let mut size = program.operations.len();
    while size > 0 {
        let mut end = program.operations.len();
        while end > 0 {
            let begin = end.saturating_sub(size);
            let mut candidate = program.clone();
            candidate.operations.drain(begin..end);
            trials.prefer(program, candidate);
            end = begin;
        }
        size /= 2;
    }
}

/// Merges streams, so that the program has fewer.
fn fewer_streams(program: &mut Program, trials: &mut Trials<'_>) {
    for streams in 1..program.streams {
        let to = |stream: usize| stream % streams as usize;
        let operations = program.operations.iter().map(|operation| operation.on_streams(to)).collect();
        if trials.prefer(program, Program { streams, operations, ..program.clone() }) {
            return;
        }
    }
}

/// Replaces single operations by simpler ones.
fn plainer(program: &mut Program, trials: &mut Trials<'_>) {
    for at in 0..program.operations.len() {
        for operation in simpler(program.operations[at]) {
            let mut candidate = program.clone();
            candidate.operations[at] = operation;
            if trials.prefer(program, candidate) {
                break;
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
    fn long() -> Program {
        let of = |block: u32| {
            let stream = block as usize % 4;
            let bytes = 1000 * (u64::from(block) + 1);
            [Operation::Allocate { block, bytes, stream }, Operation::Poll, Operation::Free { block }]
        };
        Program { streams: 4, limit: 1 << 30, check_every: 1, operations: (0..100).flat_map(of).collect() }
    }

    /// Returns whether a block of more than 5 KiB is allocated and freed, and a poll comes later.
    fn fails(program: &Program) -> bool {
        let operations = &program.operations;
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
        let mut fails = fails;
        let mut trials = Trials::new(10_000, &mut fails);
        let shrunk = shrink(long(), &mut trials);
        // Later operations are left out first, so the first block of more than 5 KiB stays: its 6000 bytes are fewer
        // than any plain size that would fail.
        let wanted =
            [Operation::Allocate { block: 0, bytes: 6000, stream: 0 }, Operation::Free { block: 0 }, Operation::Poll];
        assert_eq!((shrunk.streams, &shrunk.operations[..]), (1, &wanted[..]), "{shrunk}");
        assert!(trials.left() > 9_000, "{} trials are left", trials.left());
    }

    #[test]
    fn trials_have_an_end() {
        let mut fails = fails;
        let mut trials = Trials::new(3, &mut fails);
        let shrunk = shrink(long(), &mut trials);
        assert_eq!(trials.left(), 0);
        assert!(super::tests::fails(&shrunk), "{shrunk}");
    }

    #[test]
    fn a_program_is_printed_as_code() {
        let operations = vec![
            Operation::Allocate { block: 0, bytes: 512, stream: 1 },
            Operation::Use { block: 0, stream: 0, noted: Noted::Until, keep: true },
            Operation::Fault { nth: 2, fault: millpond_backend::Fault::OutOfMemory },
        ];
        let program = Program { streams: 2, limit: 1 << 20, check_every: 4, operations };
        let wanted = "\
Program {
    streams: 2,
    limit: 1048576,
    check_every: 4,
    operations: vec![
        Operation::Allocate { block: 0, bytes: 512, stream: 1 },
        Operation::Use { block: 0, stream: 0, noted: Noted::Until, keep: true },
        Operation::Fault { nth: 2, fault: Fault::OutOfMemory },
    ],
}";
        assert_eq!(program.to_string(), wanted);
    }
}
