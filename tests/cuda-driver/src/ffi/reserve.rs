//! The address space that stands for the devices' memory: reserved once, given pages and taken back piece by piece.
//!
//! Only work that has checked the table of memory touches these addresses, and no Rust reference points to them. So a
//! change of what is mapped inside invalidates no reference, and the functions are safe.

use std::ffi::{CStr, CString};
use std::ptr;

/// The size of the host's pages in bytes.
pub(crate) const HOST_PAGE: u64 = 4096;

/// A reserved range of addresses, which is never given back.
pub(crate) struct Reserve {
    start: u64,
    end: u64,
}

/// Memory without an address: pages that can be mapped at several.
pub(crate) struct Pages(i32);

impl Reserve {
    /// Reserves as much as the host grants, from 32 TiB down to 64 GiB.
    pub(crate) fn new() -> Reserve {
        let sizes = (0..=9).map(|halvings| (32_u64 << 40) >> halvings);
        let granted = sizes.into_iter().find_map(|bytes| {
            // SAFETY: a fresh range without access, at an address that the kernel chooses, touches nothing that exists.
            let start = unsafe {
                libc::mmap(ptr::null_mut(), bytes as usize, libc::PROT_NONE, EMPTY & !libc::MAP_FIXED, -1, 0)
            };
            (start != libc::MAP_FAILED).then_some((start as u64, bytes))
        });
        let (start, bytes) =
            granted.expect("the host grants not even 64 GiB of addresses: raise the limit (ulimit -v)");
        Reserve { start, end: start + bytes }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Maps fresh memory of zeros at a range. Returns whether the host granted it.
    pub(crate) fn commit(&self, address: u64, bytes: u64) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        self.map(address, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    }

    /// Unmaps everything in a range.
    pub(crate) fn decommit(&self, address: u64, bytes: u64) {
        let done = self.map(address, bytes, libc::PROT_NONE, EMPTY, -1, 0);
        assert!(done, "{bytes} bytes at {address:#x} cannot be unmapped: {}", std::io::Error::last_os_error());
    }

    /// Maps pages at a range, without access. Returns whether the host could.
    pub(crate) fn attach(&self, address: u64, bytes: u64, pages: &Pages, offset: u64) -> bool {
        self.map(address, bytes, libc::PROT_NONE, libc::MAP_SHARED | libc::MAP_FIXED, pages.0, offset)
    }

    /// Opens or closes a range to all accesses.
    pub(crate) fn protect(&self, address: u64, bytes: u64, open: bool) {
        self.check(address, bytes);
        let access = if open { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        // SAFETY: the range is inside the reserve, as checked, and no reference into it exists.
        let code = unsafe { libc::mprotect(address as *mut _, bytes as usize, access) };
        assert!(code == 0, "no access to {bytes} bytes at {address:#x}: {}", std::io::Error::last_os_error());
    }

    fn map(&self, address: u64, bytes: u64, access: i32, flags: i32, file: i32, offset: u64) -> bool {
        self.check(address, bytes);
        // SAFETY: the range is inside the reserve, as checked, and no reference into it exists.
        let at = unsafe { libc::mmap(address as *mut _, bytes as usize, access, flags, file, offset as libc::off_t) };
        at != libc::MAP_FAILED
    }

    fn check(&self, address: u64, bytes: u64) {
        let inside = address >= self.start && bytes <= self.end - address;
        let whole = address.is_multiple_of(HOST_PAGE) && bytes.is_multiple_of(HOST_PAGE);
        assert!(inside && whole, "{bytes} bytes at {address:#x} are not whole pages of the reserved addresses");
    }
}

/// The flags with which addresses are reserved: they take no memory.
const EMPTY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;

/// The name of the memory files.
const NAME: &CStr = c"millpond-cuda-driver";

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the file is ours, and what is mapped stays mapped.
        unsafe { libc::close(self.0) };
    }
}

impl Pages {
    /// Creates a file of `bytes` bytes that takes no memory before it is written.
    pub(crate) fn new(bytes: u64) -> Pages {
        // SAFETY: the name ends with a 0 and is a constant.
        let file = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0, "the host has no memory file: {}", std::io::Error::last_os_error());
        // SAFETY: the file was made above; growing it moves nothing.
        let code = unsafe { libc::ftruncate(file, bytes as libc::off_t) };
        assert!(code == 0, "a memory file cannot have {bytes} bytes: {}", std::io::Error::last_os_error());
        Pages(file)
    }

    /// Creates a file with these bytes; `None` if the host has no room for it.
    pub(crate) fn holding(bytes: &[u8]) -> Option<Pages> {
        let file = Pages::new(0);
        std::fs::write(file.path(), bytes).ok().map(|()| file)
    }

    /// Opens the file anew, for reading.
    pub(crate) fn open(&self) -> Option<std::fs::File> {
        std::fs::File::open(self.path()).ok()
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0)
    }

    /// Returns a new descriptor of the file with a position of its own; `None` if the host has none left.
    pub(crate) fn export(&self, position: u64) -> Option<i32> {
        let path = CString::new(self.path()).ok()?;
        // SAFETY: the path ends with a 0 and lives during the call.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        // SAFETY: the descriptor was just opened; a wrong one would only be refused.
        let moved = file >= 0 && unsafe { libc::lseek(file, position as libc::off_t, libc::SEEK_SET) } >= 0;
        moved.then_some(file)
    }

    /// Returns the file of a descriptor that [`export`](Pages::export) returned, in this process or in another one,
    /// with the position; `None` for any other descriptor.
    pub(crate) fn import(descriptor: i32) -> Option<(Pages, u64)> {
        let target = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
        let known = format!("/memfd:{}", NAME.to_string_lossy());
        if !target.to_string_lossy().starts_with(&known) {
            return None;
        }
        // SAFETY: the descriptor is open, as it has a target; asking for the position changes nothing.
        let position = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) };
        // SAFETY: as above; a copy of the descriptor is made.
        let file = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        (file >= 0).then(|| (Pages(file), position as u64))
    }

    /// Gives a range's memory back to the host. It reads as zeros afterwards.
    pub(crate) fn empty(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the file is ours, and the caller has checked that nothing maps the range any more.
        unsafe { libc::fallocate(self.0, mode, offset as libc::off_t, bytes as libc::off_t) };
    }
}
