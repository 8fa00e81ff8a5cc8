//! Reads pickles of plain data into a tree.
//!
//! Existing readers (`serde-pickle`) accept more than is wanted and promise less: they copy a remembered value each
//! time it is referred to, so that a hundred bytes can become gigabytes; they follow lists into each other without a
//! bound; and what goes wrong behind the parser has no place. A snapshot needs thirty instructions, all of which make
//! numbers, texts, lists, tuples and dictionaries. Those that would build other objects are refused by name: nothing is
//! run.

use std::collections::HashMap;

use super::source::Source;
use super::tree::{Node, Tree, Value, at};
use crate::error::{Problem, SnapshotError};
use crate::limits::{Limit, Limits};

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

/// Reads a pickle from its first byte to its `STOP`, and leaves what follows.
///
/// # Errors
///
/// Returns the first place that is not of a pickle of plain data, or that exceeds a limit.
pub(super) fn read(source: &mut Source<'_>, limits: &Limits) -> Result<(Tree, Node), SnapshotError> {
    let tree = Tree::new(limits);
    let (stack, marks, memo, text) = (Vec::new(), Vec::new(), Memo::default(), Vec::new());
    let mut reader = Reader { source, start: 0, tree, stack, marks, memo, text };
    loop {
        reader.start = reader.source.at();
        let code = reader.byte("an instruction")?;
        if code == b'.' {
            let root = reader.pop("STOP")?;
            return Ok((reader.tree, root));
        }
        if let Err(error) = reader.instruction(code) {
            return Err(reader.advised(error));
        }
    }
}

/// Adds to the error of a limit of values the one that would be enough.
pub(super) fn with_enough(error: SnapshotError, count: impl FnOnce() -> Option<u64>) -> SnapshotError {
    match error {
        SnapshotError::Limit { limit: limit @ Limit::Values, most, at, enough: None } => {
            SnapshotError::Limit { limit, most, at, enough: count() }
        }
        error => error,
    }
}

/// The values that were remembered, by their numbers.
#[derive(Default)]
struct Memo {
    /// Those that were remembered in the order of their numbers, as Python does it.
    in_order: Vec<Node>,
    others: HashMap<u32, Node>,
    /// The number that `MEMOIZE` gives next.
    next: u32,
}

impl Memo {
    fn get(&self, index: u32) -> Option<Node> {
        self.in_order.get(index as usize).or_else(|| self.others.get(&index)).copied()
    }

    fn insert(&mut self, index: u32, node: Node) {
        let (place, end) = (index as usize, self.in_order.len());
        match self.in_order.get_mut(place) {
            Some(known) => *known = node,
            None if place == end => self.in_order.push(node),
            None => drop(self.others.insert(index, node)),
        }
        self.next = self.next.max(index).saturating_add(1);
    }
}

struct Reader<'r, 'a> {
    source: &'r mut Source<'a>,
    /// Where the instruction begins.
    start: u64,
    tree: Tree,
    stack: Vec<Node>,
    /// For each open mark, the length of the stack below it.
    marks: Vec<usize>,
    memo: Memo,
    /// Room for the text that is read.
    text: Vec<u8>,
}

impl Reader<'_, '_> {
    fn wrong(&self, problem: Problem) -> SnapshotError {
        at(self.start, problem)
    }

    fn byte(&mut self, expected: &'static str) -> Result<u8, SnapshotError> {
        let byte = self.source.byte()?;
        byte.ok_or_else(|| self.source.ends(expected))
    }

    /// Reads a whole number of `N` bytes, the lowest first.
    fn little<const N: usize>(&mut self) -> Result<u64, SnapshotError> {
        let mut number = [0; 8];
        let ahead = self.source.ahead(N)?;
        let Some(bytes) = ahead.get(..N) else { return Err(self.source.ends("the bytes of a number")) };
        number[..N].copy_from_slice(bytes);
        self.source.skip(N);
        Ok(u64::from_le_bytes(number))
    }

    /// Adds a value to the tree and puts it on top.
    fn push(&mut self, value: Value) -> Result<(), SnapshotError> {
        self.tree.count(self.start)?;
        self.stack.push(self.tree.add(self.start, value));
        Ok(())
    }

    /// Takes the value on top, above the last mark.
    fn pop(&mut self, name: &'static str) -> Result<Node, SnapshotError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.wrong(Problem::Missing { name, needs: "a value" }));
        }
        self.stack.pop().ok_or_else(|| self.wrong(Problem::Missing { name, needs: "a value" }))
    }

    /// Takes the last mark, and returns how many values lie below it.
    fn pop_mark(&mut self, name: &'static str) -> Result<usize, SnapshotError> {
        self.marks.pop().ok_or_else(|| self.wrong(Problem::Missing { name, needs: "a mark" }))
    }

    /// Adds to the error of the limit how many values the whole pickle has: what follows is counted and not kept.
    fn advised(&mut self, error: SnapshotError) -> SnapshotError {
        with_enough(error, || {
            let (mut values, mut references) = (0, 0);
            loop {
                let code = self.source.byte().ok()??;
                let operands = match code {
                    b'.' => return Some(self.tree.enough(values, references)),
                    b'a' | b'e' | b's' | b'u' | b'N' | 0x88 | 0x89 | b'(' | b']' | b'}' | b')' | 0x94 => 0,
                    b'l' | b't' | b'd' | 0x85..=0x87 => 0,
                    0x80 | b'K' | b'h' | b'q' => 1,
                    b'M' => 2,
                    b'J' | b'j' | b'r' => 4,
                    0x95 | b'G' => 8,
                    b'X' => self.little::<4>().ok()?,
                    0x8a | 0x8c => self.little::<1>().ok()?,
                    _ => return None,
                };
                self.source.pass(operands).ok()?;
                match code {
                    0x80 | 0x95 | b'a' | b'e' | b's' | b'u' => {}
                    b'h' | b'j' | b'q' | b'r' | 0x94 => references += 1,
                    _ => values += 1,
                }
            }
        })
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
                self.tree.count(self.start)?;
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
        if self.source.ahead(length)?.len() < length {
            return Err(self.source.ends("the bytes of a number"));
        }
        let bytes = &self.source.ahead(length)?[..length];
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let fill = if is_negative { 0xff } else { 0 };
        let mut number = [fill; 9];
        let (low, high) = bytes.split_at(length.min(9));
        number[..low.len()].copy_from_slice(low);
        let is_too_long = high.iter().any(|byte| *byte != fill);
        self.source.skip(length);
        if is_too_long {
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
        self.source.bytes(length, &mut self.text)?;
        let left = self.text.len() as u64;
        if length > left {
            return Err(self.wrong(Problem::Length { bytes: length, left }));
        }
        let text = str::from_utf8(&self.text).map_err(|_| at(self.start, Problem::NotText))?;
        let value = self.tree.text(text);
        self.push(value)
    }

    fn list(&mut self, code: u8) -> Result<(), SnapshotError> {
        match code {
            b']' => self.push_list(Vec::new()),
            b'l' => {
                let mark = self.pop_mark("LIST")?;
                let items = self.stack.split_off(mark);
                self.push_list(items)
            }
            b'a' => {
                let item = self.pop("APPEND")?;
                let list = self.list_on_top("APPEND")?;
                list.push(item);
                Ok(())
            }
            _ => {
                let mark = self.pop_mark("APPENDS")?;
                let items = self.stack.split_off(mark);
                self.list_on_top("APPENDS")?.extend_from_slice(&items);
                Ok(())
            }
        }
    }

    /// Returns the list on top, above the last mark.
    fn list_on_top(&mut self, name: &'static str) -> Result<&mut Vec<Node>, SnapshotError> {
        match self.top(name)? {
            Value::List(list) => Ok(&mut self.tree.lists[list as usize]),
            _ => Err(self.wrong(Problem::Missing { name, needs: "a list below what it adds" })),
        }
    }

    fn tuple(&mut self, code: u8) -> Result<(), SnapshotError> {
        let items = match code {
            b')' => Vec::new(),
            b't' => {
                let mark = self.pop_mark("TUPLE")?;
                self.stack.split_off(mark)
            }
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

    fn push_list(&mut self, items: Vec<Node>) -> Result<(), SnapshotError> {
        let list = self.tree.list();
        self.tree.lists[list as usize] = items;
        self.push(Value::List(list))
    }

    fn dict(&mut self, code: u8) -> Result<(), SnapshotError> {
        let (name, items) = match code {
            b'}' => ("EMPTY_DICT", Vec::new()),
            b'd' => ("DICT", self.pop_mark("DICT").map(|mark| self.stack.split_off(mark))?),
            b's' => {
                let value = self.pop("SETITEM")?;
                ("SETITEM", vec![self.pop("SETITEM")?, value])
            }
            _ => ("SETITEMS", self.pop_mark("SETITEMS").map(|mark| self.stack.split_off(mark))?),
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
        self.tree.dicts[dict as usize].reserve_exact(items.len() / 2);
        for pair in items.chunks_exact(2) {
            let key = self.tree.item(pair[0]);
            let Value::Text(text) = key.value else {
                return Err(at(key.at, Problem::Key { found: key.value.kind() }));
            };
            self.tree.dicts[dict as usize].push((text, pair[1]));
        }
        Ok(())
    }

    /// Returns the value on top, above the last mark.
    fn top(&self, name: &'static str) -> Result<Value, SnapshotError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.last().filter(|_| self.stack.len() > floor);
        top.map(|node| self.tree.item(*node).value)
            .ok_or_else(|| self.wrong(Problem::Missing { name, needs: "a value" }))
    }

    /// Remembers the value on top, or refers to one that was remembered.
    fn remembered(&mut self, code: u8) -> Result<(), SnapshotError> {
        let index = match code {
            b'h' | b'q' => self.little::<1>()? as u32,
            b'j' | b'r' => self.little::<4>()? as u32,
            _ => self.memo.next,
        };
        if matches!(code, b'h' | b'j') {
            let node = self.memo.get(index);
            let node = node.ok_or_else(|| self.wrong(Problem::Unremembered { index: index.into() }))?;
            self.tree.count_reference(self.start)?;
            self.stack.push(node);
            return Ok(());
        }
        self.top("MEMOIZE")?;
        let Some(node) = self.stack.last().copied() else { return Ok(()) };
        self.tree.count_reference(self.start)?;
        self.memo.insert(index, node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Input;
    use super::*;

    fn number(bytes: &[u8]) -> Result<Value, String> {
        let pickle = [b"\x80\x02\x8a".as_slice(), &[bytes.len() as u8], bytes, b"."].concat();
        let mut source = Source::new(Input::Bytes(&pickle), &Limits::default());
        let read = read(&mut source, &Limits::default());
        read.map(|(tree, root)| tree.item(root).value).map_err(|error| error.to_string())
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
