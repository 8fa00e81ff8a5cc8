//! Writes JSON, without spaces.

use std::fmt::Display;
use std::io::{self, Write};

use super::Out;

/// A JSON text in progress.
pub(super) struct JsonOut<W> {
    out: W,
    /// Whether a comma is due in front of the next value or key.
    is_behind: bool,
}

impl<W: Write> JsonOut<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, is_behind: false }
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn comma(&mut self) -> io::Result<()> {
        if self.is_behind { self.out.write_all(b",") } else { Ok(()) }
    }

    fn begin(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.comma()?;
        self.is_behind = false;
        self.out.write_all(bracket)
    }

    fn end(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.is_behind = true;
        self.out.write_all(bracket)
    }

    /// Writes a value that JSON writes as Rust does.
    fn plain(&mut self, value: impl Display) -> io::Result<()> {
        self.comma()?;
        self.is_behind = true;
        write!(self.out, "{value}")
    }
}

impl<W: Write> Out for JsonOut<W> {
    fn begin_dict(&mut self) -> io::Result<()> {
        self.begin(b"{")
    }

    fn key(&mut self, name: &str) -> io::Result<()> {
        self.text(name)?;
        self.is_behind = false;
        self.out.write_all(b":")
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.end(b"}")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(b"[")
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(b"]")
    }

    fn null(&mut self) -> io::Result<()> {
        self.plain("null")
    }

    fn bool(&mut self, value: bool) -> io::Result<()> {
        self.plain(value)
    }

    fn int(&mut self, value: i64) -> io::Result<()> {
        self.plain(value)
    }

    fn uint(&mut self, value: u64) -> io::Result<()> {
        self.plain(value)
    }

    fn float(&mut self, value: f64) -> io::Result<()> {
        self.comma()?;
        self.is_behind = true;
        serde_json::to_writer(&mut self.out, &value).map_err(io::Error::from)
    }

    fn text(&mut self, value: &str) -> io::Result<()> {
        self.comma()?;
        self.is_behind = true;
        serde_json::to_writer(&mut self.out, &value).map_err(io::Error::from)
    }

    fn pair(&mut self, (first, second): (u64, u64)) -> io::Result<()> {
        self.plain(format_args!("[{first},{second}]"))
    }

    fn begin_shared(&mut self, _identity: usize) -> io::Result<bool> {
        self.begin_list()?;
        Ok(true)
    }
}
