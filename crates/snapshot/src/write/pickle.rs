//! Writes pickles of protocol 2.
//!
//! The viewer, `MemoryViz.js`, reads protocols 2 to 4 and knows some thirty instructions: these are among them. It adds
//! the values of a list with one call whose arguments they are, so lists are written in parts, as Python writes them.

use std::collections::HashMap;
use std::io::{self, Write};

use super::Out;

/// The most values of a part of a list or dictionary, as in Python.
const PART: usize = 1000;

/// A list or a dictionary in progress.
struct Open {
    is_list: bool,
    /// The values or pairs of the part that is open.
    in_part: usize,
}

/// A pickle in progress.
pub(super) struct PickleOut<W> {
    out: W,
    open: Vec<Open>,
    /// The number under which a reader remembers each text.
    texts: HashMap<Box<str>, u32>,
    /// The same of the lists that may be written again, by what they belong to.
    lists: HashMap<usize, u32>,
    remembered: u32,
}

impl<W: Write> PickleOut<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"\x80\x02")?;
        Ok(Self { out, open: Vec::new(), texts: HashMap::new(), lists: HashMap::new(), remembered: 0 })
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b".")?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Begins a value, or the key of a pair: ends a part that is full, and marks the beginning of the next one.
    fn next(&mut self, is_key: bool) -> io::Result<()> {
        let Some(open) = self.open.last_mut().filter(|open| open.is_list != is_key) else { return Ok(()) };
        if open.in_part == PART {
            self.out.write_all(if open.is_list { b"e" } else { b"u" })?;
            open.in_part = 0;
        }
        if open.in_part == 0 {
            self.out.write_all(b"(")?;
        }
        open.in_part += 1;
        Ok(())
    }

    fn begin(&mut self, is_list: bool) -> io::Result<()> {
        self.next(false)?;
        self.out.write_all(if is_list { b"]" } else { b"}" })?;
        self.open.push(Open { is_list, in_part: 0 });
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        match self.open.pop() {
            Some(Open { is_list, in_part }) if in_part > 0 => self.out.write_all(if is_list { b"e" } else { b"u" }),
            _ => Ok(()),
        }
    }

    /// Has readers remember the value that was written last, and returns the number that they find it by.
    fn remember(&mut self) -> io::Result<u32> {
        let index = self.remembered;
        self.numbered((b'q', b'r'), index)?;
        self.remembered += 1;
        Ok(index)
    }

    /// Writes an instruction with a number, in its short form or in its long one.
    fn numbered(&mut self, (short, long): (u8, u8), index: u32) -> io::Result<()> {
        match u8::try_from(index) {
            Ok(index) => self.out.write_all(&[short, index]),
            Err(_) => {
                self.out.write_all(&[long])?;
                self.out.write_all(&index.to_le_bytes())
            }
        }
    }

    fn raw_text(&mut self, text: &str) -> io::Result<()> {
        if let Some(index) = self.texts.get(text) {
            return self.numbered((b'h', b'j'), *index);
        }
        let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a text of 4 GiB or more"))?;
        self.out.write_all(b"X")?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())?;
        let index = self.remember()?;
        self.texts.insert(text.into(), index);
        Ok(())
    }

    /// Writes a whole number that fits in 65 bits, in the shortest form.
    fn raw_number(&mut self, value: i128) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.out.write_all(&[b'K', value]);
        }
        if let Ok(value) = u16::try_from(value) {
            self.out.write_all(b"M")?;
            return self.out.write_all(&value.to_le_bytes());
        }
        if let Ok(value) = i32::try_from(value) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&value.to_le_bytes());
        }
        let bytes = value.to_le_bytes();
        let mut length = bytes.len();
        let fill = if value < 0 { 0xff } else { 0 };
        while bytes[length - 1] == fill && (bytes[length - 2] ^ fill) & 0x80 == 0 {
            length -= 1;
        }
        self.out.write_all(&[0x8a, length as u8])?;
        self.out.write_all(&bytes[..length])
    }
}

impl<W: Write> Out for PickleOut<W> {
    fn begin_dict(&mut self) -> io::Result<()> {
        self.begin(false)
    }

    fn key(&mut self, name: &str) -> io::Result<()> {
        self.next(true)?;
        self.raw_text(name)
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.end()
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(true)
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end()
    }

    fn null(&mut self) -> io::Result<()> {
        self.next(false)?;
        self.out.write_all(b"N")
    }

    fn bool(&mut self, value: bool) -> io::Result<()> {
        self.next(false)?;
        self.out.write_all(if value { b"\x88" } else { b"\x89" })
    }

    fn int(&mut self, value: i64) -> io::Result<()> {
        self.next(false)?;
        self.raw_number(value.into())
    }

    fn uint(&mut self, value: u64) -> io::Result<()> {
        self.next(false)?;
        self.raw_number(value.into())
    }

    fn float(&mut self, value: f64) -> io::Result<()> {
        self.next(false)?;
        self.out.write_all(b"G")?;
        self.out.write_all(&value.to_be_bytes())
    }

    fn text(&mut self, value: &str) -> io::Result<()> {
        self.next(false)?;
        self.raw_text(value)
    }

    fn pair(&mut self, (first, second): (u64, u64)) -> io::Result<()> {
        self.next(false)?;
        self.raw_number(first.into())?;
        self.raw_number(second.into())?;
        self.out.write_all(b"\x86")
    }

    fn begin_shared(&mut self, identity: usize) -> io::Result<bool> {
        if let Some(index) = self.lists.get(&identity).copied() {
            self.next(false)?;
            self.numbered((b'h', b'j'), index)?;
            return Ok(false);
        }
        self.begin(true)?;
        let index = self.remember()?;
        self.lists.insert(identity, index);
        Ok(true)
    }
}
