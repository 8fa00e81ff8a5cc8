//! Byte arithmetic: the constants that every module shares.

/// One KiB, in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB, in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB, in bytes.
pub const GIB: u64 = 1 << 30;

/// Every size and offset is a multiple of this many bytes (PyTorch's `kMinBlockSize`).
pub const QUANTUM: u64 = 512;
/// A rounded size up to this many bytes is served by the small pool; a large block is split when more than this is
/// left over (PyTorch's `kSmallSize`).
pub const SMALL_BYTES: u64 = MIB;
/// A segment of the small pool, and a small page of an expandable segment (PyTorch's `kSmallBuffer`).
pub const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// Below it a large request shares a segment (PyTorch's `kMinLargeAlloc`).
pub const SHARED_SEGMENT_BELOW: u64 = 10 * MIB;
/// From there on, segments are multiples of this many bytes (PyTorch's `kRoundLarge`).
pub const LARGE_ROUNDING: u64 = 2 * MIB;
/// Requests of this size and more are refused outright, as PyTorch does ("more than 1EB").
pub const REQUEST_BYTES_MAX: u64 = 1 << 60;

/// The next multiple of `unit`, which must be a power of two.
///
/// # Panics
///
/// On overflow: callers refuse sizes near 2^60 first.
pub const fn align_up(bytes: u64, unit: u64) -> u64 {
    debug_assert!(unit.is_power_of_two());
    match bytes.checked_add(unit - 1) {
        Some(sum) => sum & !(unit - 1),
        None => panic!("size overflows when it is aligned"),
    }
}

/// The multiple of `unit` (a power of two) at or below.
pub const fn align_down(bytes: u64, unit: u64) -> u64 {
    debug_assert!(unit.is_power_of_two());
    bytes & !(unit - 1)
}

/// The next multiple of `unit`, whatever it is; `None` on overflow.
pub const fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    match bytes % unit {
        0 => Some(bytes),
        rest => bytes.checked_add(unit - rest),
    }
}
