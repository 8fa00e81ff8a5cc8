//! Private pools, for graphs and for PyTorch's `MemPool`. The library has none in this version.

use super::types::{Pool, Source};
use crate::boundary;
use crate::code::{Code, Failure};

/// Returns the failure of a call that needs private pools.
#[cold]
pub(super) fn missing() -> Failure {
    let text = "this version of Millpond has no private pools, which CUDA graphs and MemPool need: capture without \
                them, or use PyTorch's own allocator";
    Failure::new(Code::Unsupported, text)
}

fn refuse() -> i32 {
    boundary::status(|| Err(missing()))
}

pub(super) unsafe extern "C" fn pool_ref(_device: i32, _pool: Pool, _source: *const Source) -> i32 {
    refuse()
}

pub(super) extern "C" fn pool_unref(_device: i32, _pool: Pool) -> i32 {
    refuse()
}

pub(super) unsafe extern "C" fn pool_uses(_device: i32, _pool: Pool, _out: *mut i64) -> i32 {
    refuse()
}

pub(super) extern "C" fn pool_flags(_device: i32, _pool: Pool, _flags: u32) -> i32 {
    refuse()
}

pub(super) extern "C" fn capture_begin(_device: i32, _pool: Pool) -> i32 {
    refuse()
}

pub(super) extern "C" fn capture_end(_device: i32, _pool: Pool) -> i32 {
    refuse()
}
