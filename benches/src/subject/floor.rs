//! Floors: what the machine takes for operations that an allocator cannot do without.

use std::hint::black_box;
use std::mem::MaybeUninit;

use parking_lot::Mutex;

use super::Subject;

/// An uncontended lock taken once for each operation, with one number written under it.
#[derive(Debug, Default)]
pub struct MutexPair(Mutex<u64>);

impl Subject for MutexPair {
    type Block = ();

    #[inline]
    fn allocate(&mut self, bytes: u64, _stream: u16) {
        *black_box(&self.0).lock() += bytes;
    }

    #[inline]
    fn free(&mut self, (): ()) {
        *black_box(&self.0).lock() += 1;
    }
}

/// The host's allocator.
#[derive(Debug, Default)]
pub struct Malloc;

impl Subject for Malloc {
    type Block = Box<MaybeUninit<[u8; 64]>>;

    #[inline]
    fn allocate(&mut self, _bytes: u64, _stream: u16) -> Self::Block {
        black_box(Box::new_uninit())
    }

    #[inline]
    fn free(&mut self, block: Self::Block) {
        drop(black_box(block));
    }
}
