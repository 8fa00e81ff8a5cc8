//! DMA buffers: files that stand for a range of device memory, as other drivers of the host import them.
//!
//! The file of a buffer lists the pieces of memory that it stands for. It names the memory and not the addresses, so it
//! shows the same bytes when the range is unmapped, for as long as the memory is there.

use std::os::unix::fs::FileExt;

use crate::DmaBuf;
use crate::driver::code::Code;
use crate::driver::memory::Memory;
use crate::driver::pages::Mapping;
use crate::ffi::reserve::{HOST_PAGE, Pages};
use crate::ffi::touch;

/// In the place of a device: the piece is an allocation, which has an address and no memory file.
const ALLOCATION: u64 = u64::MAX;

/// A piece of memory.
struct Piece {
    device: u64,
    /// In the memory file of the device, or the address of an allocation's bytes.
    offset: u64,
    bytes: u64,
}

impl Memory {
    /// Returns a new descriptor of a DMA buffer for a range, which is made of whole pages of the host.
    pub(crate) fn dma_buf(&mut self, address: u64, bytes: u64) -> Result<i32, Code> {
        let whole = address.is_multiple_of(HOST_PAGE) && bytes.is_multiple_of(HOST_PAGE) && bytes > 0;
        if !whole || address.checked_add(bytes).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        let pieces = self.pieces(address, bytes)?;
        let words = pieces.iter().flat_map(|piece| [piece.device, piece.offset, piece.bytes]);
        let list: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        Pages::holding(&list).and_then(|file| file.export(0)).ok_or(Code::OPERATING_SYSTEM)
    }

    fn pieces(&mut self, address: u64, bytes: u64) -> Result<Vec<Piece>, Code> {
        if let Some((start, allocation)) = self.allocation(address) {
            let (device, room) = (allocation.device, allocation.bytes.next_multiple_of(HOST_PAGE));
            return match self.devices[device].dma_buf {
                DmaBuf::None => Err(Code::NOT_SUPPORTED),
                _ if bytes > room - (address - start) => Err(Code::INVALID_VALUE),
                _ => Ok(vec![Piece { device: ALLOCATION, offset: address, bytes }]),
            };
        }
        let mapped = self.mapped(address, bytes).ok_or(Code::INVALID_VALUE)?;
        let (device, level) = (mapped[0].1.device, self.devices[mapped[0].1.device].dma_buf);
        if level == DmaBuf::None {
            return Err(Code::NOT_SUPPORTED);
        }
        let traits = |mapping: &Mapping| self.pages.get(&mapping.page).map(|page| page.traits);
        let alike = |mapping: &Mapping| mapping.device == device && traits(mapping) == traits(mapped[0].1);
        if (level == DmaBuf::One && mapped.len() > 1) || !mapped.iter().all(|(_, mapping)| alike(mapping)) {
            return Err(Code::INVALID_VALUE);
        }
        let mapped: Vec<(u64, u64, u64)> =
            mapped.into_iter().map(|(start, mapping)| (start, mapping.bytes, mapping.page)).collect();
        let (mut at, end, mut pieces) = (address, address + bytes, Vec::new());
        for (start, length, page) in mapped {
            let offset = self.page_for_others(page)? + (at - start);
            let stop = end.min(start + length);
            pieces.push(Piece { device: device as u64, offset, bytes: stop - at });
            at = stop;
        }
        Ok(pieces)
    }

    /// Copies bytes that a DMA buffer shows at an offset. Returns `None` for a descriptor that is none, and for bytes
    /// that it does not have.
    pub(crate) fn read_dma_buf(&self, descriptor: i32, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        let list = std::fs::read(format!("/proc/self/fd/{descriptor}")).ok()?;
        let word = |piece: &[u8], at: usize| piece[8 * at..8 * at + 8].try_into().map(u64::from_le_bytes).ok();
        let (mut skip, mut found) = (offset, Vec::new());
        for piece in list.chunks_exact(24) {
            let piece = Piece { device: word(piece, 0)?, offset: word(piece, 1)?, bytes: word(piece, 2)? };
            let wanted = (bytes - found.len() as u64).min(piece.bytes.saturating_sub(skip));
            if wanted > 0 {
                found.extend(self.read_piece(&piece, skip, wanted)?);
            }
            skip = skip.saturating_sub(piece.bytes);
        }
        (found.len() as u64 == bytes).then_some(found)
    }

    fn read_piece(&self, piece: &Piece, skip: u64, bytes: u64) -> Option<Vec<u8>> {
        if piece.device == ALLOCATION {
            let address = piece.offset + skip;
            self.allocation(address)?;
            return Some(touch::take(address, bytes).into_vec());
        }
        let file = self.devices.get(piece.device as usize)?.file.open()?;
        let mut read = vec![0; bytes as usize];
        file.read_exact_at(&mut read, piece.offset + skip).ok().map(|()| read)
    }
}
