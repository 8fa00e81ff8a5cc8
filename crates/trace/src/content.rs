//! What a file holds, decompressed, of which the beginning can be looked at before it is read.

use std::cell::Cell;
use std::io::{self, BufReader, Cursor, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

/// The bytes by which a compression is known.
const MAGIC_BYTES: usize = 4;

/// A reader that counts the bytes taken from it.
struct Counted<R> {
    reader: R,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

/// The content behind a reader, decompressed where its first bytes are those of gzip or zstd.
///
/// Limit what you read from it: a few kilobytes can hold gigabytes. [`taken`](Content::taken) says how many bytes it
/// took from the reader so far.
pub struct Content<'a> {
    reader: Box<dyn Read + 'a>,
    taken: Rc<Cell<u64>>,
    /// What was looked at and not read yet.
    beginning: Cursor<Vec<u8>>,
    /// The error that came after it, for the next read.
    broken: Option<io::Error>,
}

impl<'a> Content<'a> {
    /// Looks at the first bytes of a reader.
    ///
    /// # Errors
    ///
    /// Returns the reader's or the decompressor's error.
    pub fn new(reader: impl Read + 'a) -> io::Result<Self> {
        let taken = Rc::new(Cell::new(0));
        let mut reader = Counted { reader, taken: Rc::clone(&taken) };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        reader.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
        let kind = magic.clone();
        let whole = Cursor::new(magic).chain(reader);
        let reader: Box<dyn Read + 'a> = match kind[..] {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(whole))),
            // A frame of zstd, or one that its readers skip and that others may follow.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(zstd::Decoder::new(whole)?),
            _ => Box::new(whole),
        };
        Ok(Self { reader, taken, beginning: Cursor::default(), broken: None })
    }

    /// Returns the first bytes, as many as `most` if there are, and keeps them to be read.
    ///
    /// # Errors
    ///
    /// Returns the reader's or the decompressor's error if there are no bytes before it. Otherwise the read after them
    /// returns it.
    ///
    /// # Panics
    ///
    /// If anything was read before.
    pub fn beginning(&mut self, most: usize) -> io::Result<&[u8]> {
        assert_eq!(self.beginning.position(), 0, "the beginning is looked at before it is read");
        let known = self.beginning.get_mut();
        let missing = most.saturating_sub(known.len());
        if self.broken.is_none()
            && let Err(error) = self.reader.by_ref().take(missing as u64).read_to_end(known)
        {
            if known.is_empty() {
                return Err(error);
            }
            self.broken = Some(error);
        }
        Ok(&known[..most.min(known.len())])
    }

    /// Returns how many bytes were taken from the reader.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.beginning.read(buffer)? {
            0 => self.broken.take().map_or_else(|| self.reader.read(buffer), Err),
            read => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes everything")
    }

    #[test]
    fn every_compression_is_known_by_its_beginning() {
        let zstd = zstd::encode_all(&b"some text"[..], 0).expect("memory takes everything");
        // A frame that is skipped, of three bytes.
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], &zstd[..]].concat();
        for bytes in [b"some text".to_vec(), gzip(b"some text"), zstd, skipped] {
            let mut content = Content::new(&bytes[..]).expect("a beginning");
            assert_eq!(content.beginning(4).expect("bytes"), b"some");
            assert_eq!(content.beginning(6).expect("bytes"), b"some t");
            assert_eq!(content.beginning(4).expect("bytes"), b"some");
            let mut text = Vec::new();
            content.read_to_end(&mut text).expect("the rest");
            assert_eq!((text, content.taken()), (b"some text".to_vec(), bytes.len() as u64));
        }
        let mut short = Content::new(&b"ab"[..]).expect("a beginning");
        assert_eq!(short.beginning(9).expect("bytes"), b"ab");
    }

    #[test]
    fn what_breaks_off_is_read_as_far_as_it_goes() {
        let whole = gzip(b"some text that is cut off in the end, where it says nothing new");
        let mut content = Content::new(&whole[..whole.len() - 12]).expect("a beginning");
        let beginning = content.beginning(4096).expect("some bytes").to_vec();
        assert!(beginning.starts_with(b"some"), "{beginning:?}");
        let mut text = Vec::new();
        content.read_to_end(&mut text).expect_err("the text is not whole");
        assert_eq!(text, beginning);
        assert!(Content::new(&whole[..12]).and_then(|mut content| content.beginning(9).map(drop)).is_err());
    }
}
