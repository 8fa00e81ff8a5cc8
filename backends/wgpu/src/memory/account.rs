//! The facts of their device that segments need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The facts of their device that segments need: its number, its limits, and the count of the bytes that were handed
/// out.
pub(crate) struct Account {
    pub(crate) serial: u64,
    pub(crate) max_binding_bytes: u64,
    pub(crate) offset_alignment: u64,
    held_bytes: AtomicU64,
}

impl Account {
    pub(crate) fn new(limits: &wgpu::Limits) -> Arc<Account> {
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Account {
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            offset_alignment: u64::from(limits.min_storage_buffer_offset_alignment),
            held_bytes: AtomicU64::new(0),
        })
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Adds bytes of memory that were handed out.
    pub(crate) fn add(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that were given back.
    pub(crate) fn subtract(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
