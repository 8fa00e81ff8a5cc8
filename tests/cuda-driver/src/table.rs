//! The interface between a test's executable and the library: one table of functions.
//!
//! The executable links this package too, but its copy of the driver is never used: everything goes through the table
//! that the loaded library hands out.

/// The version of the layout below. It rises with every change, so that a stale library is refused.
pub(crate) const VERSION: u64 = 4;

/// The name of the function that returns the table.
#[cfg(target_os = "linux")]
pub(crate) const ENTRY: &[u8] = b"millpond_cuda_driver_table\0";

/// A text that lives during a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Text {
    pub(crate) start: *const u8,
    pub(crate) bytes: usize,
}

impl Text {
    pub(crate) fn new(text: &str) -> Text {
        Text { start: text.as_ptr(), bytes: text.len() }
    }
}

/// A mistake, as it is passed to the tests: `kind` 0 is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawViolation {
    pub(crate) kind: u32,
    pub(crate) device: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// The functions, in the order of the methods of `Control`.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) version: u64,
    pub(crate) reset: extern "C" fn(),
    /// The name is empty for any call that can fail. Returns 0 if there is no function of that name.
    pub(crate) fail_nth: extern "C" fn(Text, u64, u32) -> u32,
    /// Returns `u64::MAX` if there is no function of that name.
    pub(crate) calls: extern "C" fn(Text) -> u64,
    pub(crate) set_bytes: extern "C" fn(u32, u64),
    pub(crate) set_others: extern "C" fn(u32, u64),
    pub(crate) set_rdma: extern "C" fn(u32, u32),
    /// The second number is a `DmaBuf`.
    pub(crate) set_dma_buf: extern "C" fn(u32, u32),
    /// Writes as many bytes of a DMA buffer, from an offset, to a place. Returns 0 if there are none.
    pub(crate) read_dma_buf: extern "C" fn(i32, u64, *mut u8, u64) -> u32,
    pub(crate) held_bytes: extern "C" fn(u32) -> u64,
    pub(crate) lose: extern "C" fn(u32, u32),
    /// Returns 0 if the stream is unknown or captured.
    pub(crate) hold: extern "C" fn(u32, usize) -> u64,
    pub(crate) open: extern "C" fn(u64),
    pub(crate) violation: extern "C" fn(u64) -> RawViolation,
    pub(crate) live: extern "C" fn(u32) -> u64,
    /// Returns 0 if there is no function of that name.
    pub(crate) stop_nth: extern "C" fn(Text, u64) -> u64,
    /// Waits at most this number of milliseconds. Returns 0 if the call has not arrived.
    pub(crate) arrived: extern "C" fn(u64, u64) -> u32,
    pub(crate) go_on: extern "C" fn(u64),
}
