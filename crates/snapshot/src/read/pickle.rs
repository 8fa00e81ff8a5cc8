//! Reads pickles of plain data into a tree.
//!
//! Existing readers (`serde-pickle`) accept more than is wanted and promise less: they copy a remembered value each
//! time it is referred to, so that a hundred bytes can become gigabytes; they follow lists into each other without a
//! bound; and what goes wrong behind the parser has no place. A snapshot needs thirty instructions, all of which make
//! numbers, texts, lists, tuples and dictionaries. Those that would build other objects are refused by name: nothing is
//! run.

use std::collections::HashMap;

use super::tree::{Item, Tree, Value, at};
use crate::error::{Problem, SnapshotError};
use crate::limits::Limits;

/// Instructions that snapshots have no use for: their code, name, and what they are for.
const REFUSED: [(u8, &str, &str); 36] = [
    (b'0', "POP", "taking back what was built"),
    (b'1', "POP_MARK", "taking back what was built"),
    (b'2', "DUP", "protocol 0 or 1"),
    (b'F', "FLOAT", "protocol 0 or 1"),
    (b'I', "INT", "protocol 0 or 1"),
    (b'L', "LONG", "protocol 0 or 1"),
    (b'S', "STRING", "protocol 0 or 1"),
    (b'V', "UNICODE", "protocol 0 or 1"),
    (b'g', "GET", "protocol 0 or 1"),
    (b'p', "PUT", "protocol 0 or 1"),
    (b'P', "PERSID", "references to objects elsewhere"),
    (b'Q', "BINPERSID", "references to objects elsewhere"),
    (b'T', "BINSTRING", "texts of Python 2"),
    (b'U', "SHORT_BINSTRING", "texts of Python 2"),
    (b'B', "BINBYTES", "bytes"),
    (b'C', "SHORT_BINBYTES", "bytes"),
    (0x8e, "BINBYTES8", "bytes"),
    (0x96, "BYTEARRAY8", "bytes"),
    (0x97, "NEXT_BUFFER", "bytes"),
    (0x98, "READONLY_BUFFER", "bytes"),
    (b'c', "GLOBAL", "objects that are built by calling code"),
    (b'R', "REDUCE", "objects that are built by calling code"),
    (b'b', "BUILD", "objects that are built by calling code"),
    (b'i', "INST", "objects that are built by calling code"),
    (b'o', "OBJ", "objects that are built by calling code"),
    (0x81, "NEWOBJ", "objects that are built by calling code"),
    (0x92, "NEWOBJ_EX", "objects that are built by calling code"),
    (0x93, "STACK_GLOBAL", "objects that are built by calling code"),
    (0x82, "EXT1", "registered objects"),
    (0x83, "EXT2", "registered objects"),
    (0x84, "EXT4", "registered objects"),
    (0x8b, "LONG4", "whole numbers of more than 255 bytes"),
    (0x8f, "EMPTY_SET", "sets"),
    (0x90, "ADDITEMS", "sets"),
    (0x91, "FROZENSET", "sets"),
    (0x8d, "BINUNICODE8", "texts of more than 4 GiB"),
];

/// Reads a pickle from its first byte to its `STOP`. Returns also the number of bytes that it takes.
///
/// # Errors
///
/// Returns the first place that is not of a pickle of plain data, or that exceeds a limit.
pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<(Tree, Item, usize), SnapshotError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        start: 0,
        tree: Tree::new(limits),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        memoized: 0,
    };
    loop {
        reader.start = reader.at;
        let code = reader.byte("an instruction")?;
        if code == b'.' {
            let root = reader.pop("STOP")?;
            return Ok((reader.tree, root, reader.at));
        }
        reader.instruction(code)?;
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the instruction begins.
    start: usize,
    tree: Tree,
    stack: Vec<Item>,
    /// For each open mark, the length of the stack below it.
    marks: Vec<usize>,
    memo: HashMap<u32, Item>,
    /// The number that `MEMOIZE` gives next.
    memoized: u32,
}

impl Reader<'_> {
    fn wrong(&self, problem: Problem) -> SnapshotError {
        at(self.start as u64, problem)
    }

    fn byte(&mut self, expected: &'static str) -> Result<u8, SnapshotError> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte.ok_or_else(|| at(self.bytes.len() as u64, Problem::End { expected }))
    }

    /// Reads a whole number of `N` bytes, the lowest first.
    fn little<const N: usize>(&mut self) -> Result<u64, SnapshotError> {
        let mut number = [0; 8];
        for byte in &mut number[..N] {
            *byte = self.byte("the bytes of a number")?;
        }
        Ok(u64::from_le_bytes(number))
    }

    fn push(&mut self, value: Value) -> Result<(), SnapshotError> {
        self.tree.count(self.start as u64)?;
        self.stack.push(Item { at: self.start as u64, value });
        Ok(())
    }

    /// Takes the value on top, above the last mark.
    fn pop(&mut self, name: &'static str) -> Result<Item, SnapshotError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.wrong(Problem::Missing { name, needs: "a value" }));
        }
        self.stack.pop().ok_or_else(|| self.wrong(Problem::Missing { name, needs: "a value" }))
    }

    /// Takes all values above the last mark, and the mark.
    fn pop_mark(&mut self, name: &'static str) -> Result<Vec<Item>, SnapshotError> {
        let mark = self.marks.pop().ok_or_else(|| self.wrong(Problem::Missing { name, needs: "a mark" }))?;
        Ok(self.stack.split_off(mark))
    }

    fn instruction(&mut self, code: u8) -> Result<(), SnapshotError> {
        match code {
            0x80 => {
                let version = self.byte("a protocol")?;
                if (2..=5).contains(&version) { Ok(()) } else { Err(self.wrong(Problem::Protocol { version })) }
            }
            // The length of what follows, for readers that read ahead.
            0x95 => self.little::<8>().map(drop),
            b'N' => self.push(Value::Null),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'K' | b'M' | b'J' | 0x8a | b'G' => self.number(code),
            b'X' | 0x8c => self.text(code),
            b']' | b'a' | b'e' | b'l' => self.list(code),
            b')' | b't' | 0x85..=0x87 => self.tuple(code),
            b'}' | b's' | b'u' | b'd' => self.dict(code),
            b'(' => {
                self.tree.count(self.start as u64)?;
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'h' | b'j' | b'q' | b'r' | 0x94 => self.remembered(code),
            _ => Err(self.wrong(match REFUSED.iter().find(|(refused, ..)| *refused == code) {
                Some((_, name, what)) => Problem::Refused { name, what },
                None => Problem::Instruction { code },
            })),
        }
    }

    fn number(&mut self, code: u8) -> Result<(), SnapshotError> {
        let value = match code {
            b'K' => Value::Int(self.little::<1>()? as i64),
            b'M' => Value::Int(self.little::<2>()? as i64),
            b'J' => Value::Int((self.little::<4>()? as u32).cast_signed().into()),
            0x8a => self.long()?,
            _ => Value::Float(f64::from_bits(self.little::<8>()?.swap_bytes())),
        };
        self.push(value)
    }

    /// Reads `LONG1`: a length in bytes, and a number in two's complement, the lowest byte first.
    fn long(&mut self) -> Result<Value, SnapshotError> {
        let length = usize::from(self.byte("the length of a number")?);
        let bytes = self.bytes.get(self.at..self.at + length);
        let Some(bytes) = bytes else {
            return Err(at(self.bytes.len() as u64, Problem::End { expected: "the bytes of a number" }));
        };
        self.at += length;
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let fill = if is_negative { 0xff } else { 0 };
        let mut number = [fill; 9];
        let (low, high) = bytes.split_at(length.min(9));
        number[..low.len()].copy_from_slice(low);
        if high.iter().any(|byte| *byte != fill) {
            return Err(self.wrong(Problem::TooBig));
        }
        let [low @ .., sign] = number;
        let (low, has_high_bit) = (u64::from_le_bytes(low), low[7] & 0x80 != 0);
        match (sign, has_high_bit) {
            (0, false) | (0xff, true) => Ok(Value::Int(low.cast_signed())),
            (0, true) => Ok(Value::Uint(low)),
            _ => Err(self.wrong(Problem::TooBig)),
        }
    }

    fn text(&mut self, code: u8) -> Result<(), SnapshotError> {
        let length = if code == b'X' { self.little::<4>()? } else { self.little::<1>()? };
        let left = (self.bytes.len() - self.at) as u64;
        if length > left {
            return Err(self.wrong(Problem::Length { bytes: length, left }));
        }
        let bytes = &self.bytes[self.at..self.at + length as usize];
        let text = str::from_utf8(bytes).map_err(|_| self.wrong(Problem::NotText))?;
        self.at += bytes.len();
        let value = self.tree.text(text);
        self.push(value)
    }

    fn list(&mut self, code: u8) -> Result<(), SnapshotError> {
        let (name, items) = match code {
            b']' => ("EMPTY_LIST", Vec::new()),
            b'l' => ("LIST", self.pop_mark("LIST")?),
            b'a' => ("APPEND", vec![self.pop("APPEND")?]),
            _ => ("APPENDS", self.pop_mark("APPENDS")?),
        };
        if matches!(code, b']' | b'l') {
            return self.push_list(items);
        }
        match self.top(name)? {
            Value::List(list) => self.tree.lists[list as usize].extend(items),
            _ => return Err(self.wrong(Problem::Missing { name, needs: "a list below what it adds" })),
        }
        Ok(())
    }

    fn tuple(&mut self, code: u8) -> Result<(), SnapshotError> {
        let items = match code {
            b')' => Vec::new(),
            b't' => self.pop_mark("TUPLE")?,
            _ => {
                let mut items = vec![self.pop("TUPLE")?];
                for _ in 0x85..code {
                    items.insert(0, self.pop("TUPLE")?);
                }
                items
            }
        };
        self.push_list(items)
    }

    fn push_list(&mut self, items: Vec<Item>) -> Result<(), SnapshotError> {
        let list = self.tree.list();
        self.tree.lists[list as usize] = items;
        self.push(Value::List(list))
    }

    fn dict(&mut self, code: u8) -> Result<(), SnapshotError> {
        let (name, items) = match code {
            b'}' => ("EMPTY_DICT", Vec::new()),
            b'd' => ("DICT", self.pop_mark("DICT")?),
            b's' => {
                let value = self.pop("SETITEM")?;
                ("SETITEM", vec![self.pop("SETITEM")?, value])
            }
            _ => ("SETITEMS", self.pop_mark("SETITEMS")?),
        };
        if matches!(code, b'}' | b'd') {
            let dict = self.tree.dict();
            self.push(Value::Dict(dict))?;
        }
        let Value::Dict(dict) = self.top(name)? else {
            return Err(self.wrong(Problem::Missing { name, needs: "a dictionary below what it adds" }));
        };
        if items.len() % 2 == 1 {
            return Err(self.wrong(Problem::Missing { name, needs: "a value for each key" }));
        }
        for pair in items.chunks_exact(2) {
            let Value::Text(key) = pair[0].value else {
                return Err(at(pair[0].at, Problem::Key { found: pair[0].value.kind() }));
            };
            self.tree.dicts[dict as usize].push((key, pair[1]));
        }
        Ok(())
    }

    /// Returns the value on top, above the last mark.
    fn top(&self, name: &'static str) -> Result<Value, SnapshotError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.last().filter(|_| self.stack.len() > floor);
        top.map(|item| item.value).ok_or_else(|| self.wrong(Problem::Missing { name, needs: "a value" }))
    }

    /// Remembers the value on top, or refers to one that was remembered.
    fn remembered(&mut self, code: u8) -> Result<(), SnapshotError> {
        let index = match code {
            b'h' | b'q' => self.little::<1>()? as u32,
            b'j' | b'r' => self.little::<4>()? as u32,
            _ => self.memoized,
        };
        if matches!(code, b'h' | b'j') {
            let item = self.memo.get(&index).copied();
            let item = item.ok_or_else(|| self.wrong(Problem::Unremembered { index: index.into() }))?;
            self.tree.count(self.start as u64)?;
            self.stack.push(item);
            return Ok(());
        }
        let value = self.top("MEMOIZE")?;
        self.tree.count(self.start as u64)?;
        self.memo.insert(index, Item { at: self.start as u64, value });
        self.memoized = self.memoized.max(index).saturating_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<Value, String> {
        let pickle = [b"\x80\x02\x8a".as_slice(), &[bytes.len() as u8], bytes, b"."].concat();
        read(&pickle, &Limits::default()).map(|(_, root, _)| root.value).map_err(|error| error.to_string())
    }

    #[test]
    fn long_numbers_are_read_up_to_64_bits() {
        assert_eq!(number(&[]), Ok(Value::Int(0)));
        assert_eq!(number(&[0xff]), Ok(Value::Int(-1)));
        assert_eq!(number(&[0, 0, 0, 0, 0, 1]), Ok(Value::Int(1 << 40)));
        assert_eq!(number(&[0, 0, 0, 0, 0, 0, 0, 0x80]), Ok(Value::Int(i64::MIN)));
        assert_eq!(number(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), Ok(Value::Uint(1 << 63)));
        assert_eq!(number(&[0xff; 20]), Ok(Value::Int(-1)));
        for too_big in
            [&[0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0, 0, 0, 0, 0, 0, 0, 0, 0xff], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
        {
            assert!(number(too_big).is_err_and(|error| error.contains("does not fit in 64 bits")), "{too_big:?}");
        }
    }
}
