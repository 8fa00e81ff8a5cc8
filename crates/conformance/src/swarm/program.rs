//! A swarm's program as data: all operations with their numbers, so that the program or a part of it can be run again.

use std::fmt;

use crate::language::Operation;

/// A program: the operations that a seed drew, or those that remain of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The number of streams.
    pub streams: u32,
    /// The limit on reserved bytes at the beginning.
    pub limit: u64,
    /// The number of operations after which everything is checked, not 0. Every grant is judged in any case.
    pub check_every: usize,
    /// The operations in order.
    pub operations: Vec<Operation>,
}

/// Prints Rust code that creates the program, for a test that replays it.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, limit, check_every, operations } = self;
        writeln!(f, "Program {{")?;
        writeln!(f, "    streams: {streams},")?;
        writeln!(f, "    limit: {limit},")?;
        writeln!(f, "    check_every: {check_every},")?;
        writeln!(f, "    operations: vec![")?;
        for operation in operations {
            let code = format!("{operation:?}").replace("noted: ", "noted: Noted::");
            writeln!(f, "        Operation::{},", code.replace("fault: ", "fault: Fault::"))?;
        }
        write!(f, "    ],\n}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Noted;

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
