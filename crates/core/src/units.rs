//! Arithmetic on bytes, and the constants that every module shares.

/// One KiB, in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB, in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB, in bytes.
pub const GIB: u64 = 1 << 30;

/// The unit of every size and offset, in bytes (PyTorch's `kMinBlockSize`).
pub const QUANTUM: u64 = 512;
/// The largest rounded size that the small pool serves, in bytes. A large block is split when more than this is left
/// over (PyTorch's `kSmallSize`).
pub const SMALL_BYTES: u64 = MIB;
/// The size of a segment of the small pool, and of a small page of an expandable segment, in bytes (PyTorch's
/// `kSmallBuffer`).
pub const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// The size below which a large request shares a segment, in bytes (PyTorch's `kMinLargeAlloc`).
pub const SHARED_SEGMENT_BELOW: u64 = 10 * MIB;
/// The unit of the segment sizes for larger requests, in bytes (PyTorch's `kRoundLarge`).
pub const LARGE_ROUNDING: u64 = 2 * MIB;
/// The size from which requests are refused at once, in bytes, as in PyTorch ("more than 1EB").
pub const REQUEST_BYTES_MAX: u64 = 1 << 60;

/// Rounds up to the next multiple of `unit`, which must be a power of two.
///
/// # Panics
///
/// Panics on overflow. Callers refuse sizes near 2^60 first.
pub const fn align_up(bytes: u64, unit: u64) -> u64 {
    debug_assert!(unit.is_power_of_two());
    match bytes.checked_add(unit - 1) {
        Some(sum) => sum & !(unit - 1),
        None => panic!("size overflows when it is aligned"),
    }
}
