//! Memory of the host for the contents of paused groups.

use memmap2::MmapMut;

/// Memory of the host. It is ordinary memory, not page-locked: locking gigabytes takes seconds, and takes them away
/// from the rest of the machine.
pub(super) struct HostCopy {
    map: Option<MmapMut>,
}

impl HostCopy {
    /// Takes memory for `bytes` bytes. Returns `None` if there is none.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let len = usize::try_from(bytes).ok()?;
        if len == 0 {
            return Some(Self { map: None });
        }
        let map = MmapMut::map_anon(len).ok()?;
        // Faulting in 4 KiB at a time costs more than the copy. Where there are no huge pages, that is how it is.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self { map: Some(map) })
    }

    /// Returns its length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.as_slice().len() as u64
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}
