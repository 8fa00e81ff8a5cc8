//! The devices of frameworks, which name each by its number alone: CUDA's, unless the environment puts simulated ones in
//! their place.

use crate::code::Failure;

/// The environment variable that puts simulated devices in the place of CUDA's.
const DEVICE: &str = "MILLPOND_TORCH_DEVICE";

/// The environment variable of PyTorch's that keeps pages from being shared, if it is 0.
pub(crate) const SHARES_PAGES: &str = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";

/// The most devices. A machine has fewer.
pub(crate) const DEVICES: usize = 64;

/// Returns the place of a device in a table of [`DEVICES`].
#[inline]
pub(crate) fn place(device: i32) -> Result<usize, Failure> {
    let place = usize::try_from(device).ok().filter(|&place| place < DEVICES);
    place.ok_or_else(|| Failure::bad_argument(format!("{device} is no device: they have numbers from 0 to 63")))
}

/// Returns whether the environment puts simulated devices in the place of CUDA's.
pub(crate) fn is_simulated() -> Result<bool, Failure> {
    match std::env::var(DEVICE).as_deref() {
        Err(_) | Ok("cuda") => Ok(false),
        Ok("sim") => Ok(true),
        Ok(other) => Err(Failure::bad_argument(format!("{DEVICE} is `{other}`, and must be cuda or sim"))),
    }
}

/// Returns whether pages are created so that other processes can have them: unless the environment says, as to
/// PyTorch's own allocator, that they are not.
pub(crate) fn shares_pages() -> bool {
    std::env::var(SHARES_PAGES).as_deref() != Ok("0")
}
