//! Calls that break the contract, as errors that all backends have in common.

use std::fmt;

use millpond_backend::{BackendError, ClassId, Fault, Point, StreamId};
use thiserror::Error;

/// A mistake of the caller: what is wrong with the call, in numbers, and what to do. Backends embed it in their own
/// error. All sizes and offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The stream is not of this device.
    #[error("{stream} asked of a {device} that has {streams} streams")]
    UnknownStream {
        /// The stream.
        stream: StreamId,
        /// What the device is called.
        device: &'static str,
        /// The number of streams that it has.
        streams: usize,
    },
    /// The request is for 0 bytes.
    #[error("{call} of 0 bytes; request at least one")]
    Empty {
        /// The call.
        call: &'static str,
    },
    /// The device, as it was opened, cannot do this.
    #[error("{call}{}", unsupported(*missing))]
    Unsupported {
        /// The call.
        call: &'static str,
        /// The capability that the device lacks, or was opened without, where the backend names it.
        missing: Option<&'static str>,
    },
    /// Only the device's own memory comes in pages.
    #[error("class {} has no virtual memory; use class 0", class.0)]
    NoPages {
        /// The class that was asked for.
        class: ClassId,
    },
    /// A size, an offset or an address is not a multiple of what it must be a multiple of.
    #[error("{call}: {}{value} is not a multiple of {}{multiple}; round it", the(*what), the(*multiple_is))]
    Misaligned {
        /// The call.
        call: &'static str,
        /// What is misaligned, where the call has several such numbers: "offset" or "size".
        what: Option<&'static str>,
        /// The size, offset or address.
        value: u64,
        /// The number that it must be a multiple of.
        multiple: u64,
        /// What that number is, where it has a name: "granularity".
        multiple_is: Option<&'static str>,
    },
    /// The operation reaches beyond the end of its segment.
    #[error("{}{bytes} bytes at offset {offset} do not fit {}", prefix(*call), segment(*role, *segment_bytes))]
    OutOfRange {
        /// The call, where the backend names it.
        call: Option<&'static str>,
        /// Which segment of the operation it is, where the backend distinguishes them.
        role: Option<Role>,
        /// The offset in the segment at which the operation starts.
        offset: u64,
        /// The length of the operation.
        bytes: u64,
        /// The length of the segment.
        segment_bytes: u64,
    },
    /// The operation touches addresses where nothing is mapped.
    #[error("{bytes} bytes at address {address:#x} touch unmapped addresses; map pages there first")]
    Unmapped {
        /// The address at which the operation starts.
        address: u64,
        /// The length of the operation.
        bytes: u64,
    },
    /// A page is already mapped at the target of a map.
    #[error("{bytes} bytes at address {address:#x} are mapped already; unmap them first")]
    AlreadyMapped {
        /// The address at which the page was to be mapped.
        address: u64,
        /// The page's size.
        bytes: u64,
    },
    /// A segment was passed where the call needs a range of addresses.
    #[error("the segment {segment} is not a range: it has its own memory, and nothing can be mapped there")]
    NotARange {
        /// The segment.
        segment: Named,
    },
    /// The source and the target of a copy share bytes.
    #[error("a copy of {bytes} bytes from {from:#x} to {to:#x} overlaps itself")]
    Overlap {
        /// The address of the source.
        from: u64,
        /// The address of the target.
        to: u64,
        /// The number of bytes to copy.
        bytes: u64,
    },
    /// The source and the target of a copy within one segment share bytes.
    #[error("a copy of {bytes} bytes from offset {from} to offset {to} of one segment overlaps itself")]
    OverlapWithin {
        /// The offset of the source.
        from: u64,
        /// The offset of the target.
        to: u64,
        /// The number of bytes to copy.
        bytes: u64,
    },
    /// The segment belongs to another device.
    #[error("{call}: {}", foreign(*own, *other, *remedy))]
    Foreign {
        /// The call.
        call: &'static str,
        /// This device's number.
        own: u64,
        /// The number of the segment's device.
        other: u64,
        /// What the caller can do instead.
        remedy: Remedy,
    },
    /// A stream was asked to wait for a point that was never marked.
    #[error("{point} was never marked: the open tick is {open}; call mark first")]
    NeverMarked {
        /// The point.
        point: Point,
        /// The stream's open tick.
        open: u64,
    },
    /// A stream was asked to wait for work that was not submitted: its queue could wait for ever.
    #[error("{point} is not submitted: the newest submitted tick is {submitted}; submit that stream first")]
    NotSubmitted {
        /// The point.
        point: Point,
        /// The newest submitted tick of the point's stream.
        submitted: u64,
    },
}

/// Which segment of an operation is meant, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role {
    /// The source or the target of a copy, else the segment or the range.
    pub name: &'static str,
    /// The place of the device that the segment is on.
    pub device: usize,
}

/// How an error names a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// By the address at which it starts.
    Address(u64),
    /// By its length in bytes, where the device has no addresses.
    Bytes(u64),
}

/// What to do where a segment belongs to another device. The text is the kind of device, as errors call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Make the call on the device that owns the segment.
    AskOwner,
    /// Copy through the host.
    CopyThroughHost(&'static str),
    /// Download the bytes and upload them.
    DownloadAndUpload(&'static str),
}

/// Returns whether a range of bytes lies within a segment of that length.
#[inline]
pub fn is_inside(offset: u64, bytes: u64, segment_bytes: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= segment_bytes)
}

impl Misuse {
    /// Returns an error if a request is for 0 bytes.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`].
    pub fn if_empty(call: &'static str, bytes: u64) -> Result<(), Misuse> {
        if bytes == 0 { Err(Misuse::Empty { call }) } else { Ok(()) }
    }

    /// Returns an error if a value is not a multiple of the granularity. `multiple_is` is the name of the granularity
    /// in the error, if it has one.
    ///
    /// # Errors
    ///
    /// [`Misuse::Misaligned`].
    pub fn if_misaligned(
        call: &'static str,
        value: u64,
        multiple: u64,
        multiple_is: Option<&'static str>,
    ) -> Result<(), Misuse> {
        if value.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(Misuse::Misaligned { call, what: None, value, multiple, multiple_is })
    }

    /// Returns an error if a range of bytes leaves a segment of that length.
    ///
    /// # Errors
    ///
    /// [`Misuse::OutOfRange`], without the call and the role.
    pub fn if_outside(offset: u64, bytes: u64, segment_bytes: u64) -> Result<(), Misuse> {
        if is_inside(offset, bytes, segment_bytes) {
            return Ok(());
        }
        Err(Misuse::OutOfRange { call: None, role: None, offset, bytes, segment_bytes })
    }
}

impl BackendError for Misuse {
    /// Returns [`Fault::Other`]: no release of memory helps, and the device is well.
    fn fault(&self) -> Fault {
        Fault::Other
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Address(address) => write!(f, "at address {address:#x}"),
            Named::Bytes(bytes) => write!(f, "of {bytes} bytes"),
        }
    }
}

fn the(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!("the {name} "))
}

fn prefix(call: Option<&str>) -> String {
    call.map_or(String::new(), |call| format!("{call}: "))
}

fn unsupported(missing: Option<&str>) -> String {
    match missing {
        Some(missing) => format!(": {missing}; see the device's capabilities"),
        None => " asked of a device that cannot do it; see its capabilities".to_owned(),
    }
}

fn segment(role: Option<Role>, bytes: u64) -> String {
    match role {
        Some(Role { name, device }) => {
            format!("the {name}, a segment of {bytes} bytes on device {device}; stay within it")
        }
        None => format!("a segment of {bytes} bytes"),
    }
}

fn foreign(own: u64, other: u64, remedy: Remedy) -> String {
    match remedy {
        Remedy::AskOwner => {
            format!("the segment belongs to device {other}, and this is device {own}; call the device that owns it")
        }
        Remedy::CopyThroughHost(kind) => {
            format!("the segment belongs to {kind} device {other}, not to device {own}; copy through the host")
        }
        Remedy::DownloadAndUpload(kind) => {
            format!("the segment belongs to {kind} device {other}, not to {own}; download and upload instead")
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::Tick;

    use super::*;

    fn says(misuse: Misuse, text: &str) {
        assert_eq!(misuse.to_string(), text);
        assert_eq!(misuse.fault(), Fault::Other);
    }

    #[test]
    fn requests_are_named_with_their_numbers_and_what_to_do() {
        says(Misuse::Empty { call: "reserve" }, "reserve of 0 bytes; request at least one");
        says(Misuse::NoPages { class: ClassId(1) }, "class 1 has no virtual memory; use class 0");
        let missing = Some("no memory pools");
        says(
            Misuse::Unsupported { call: "cuMemAllocAsync", missing },
            "cuMemAllocAsync: no memory pools; see the device's capabilities",
        );
        says(
            Misuse::Unsupported { call: "map", missing: None },
            "map asked of a device that cannot do it; see its capabilities",
        );
        assert_eq!(Misuse::if_empty("a", 1), Ok(()));
        assert_eq!(Misuse::if_empty("a", 0), Err(Misuse::Empty { call: "a" }));
    }

    #[test]
    fn a_number_that_is_no_multiple_is_named_as_the_backend_has_it() {
        let misaligned =
            |what, multiple_is| Misuse::Misaligned { call: "fill", what, value: 5, multiple: 4, multiple_is };
        says(misaligned(None, None), "fill: 5 is not a multiple of 4; round it");
        says(misaligned(None, Some("granularity")), "fill: 5 is not a multiple of the granularity 4; round it");
        says(misaligned(Some("offset"), None), "fill: the offset 5 is not a multiple of 4; round it");
        assert_eq!(Misuse::if_misaligned("fill", 8, 4, None), Ok(()));
        assert_eq!(Misuse::if_misaligned("fill", 5, 4, None), Err(misaligned(None, None)));
    }

    #[test]
    fn a_range_is_held_against_its_segment() {
        for (offset, bytes) in [(0, 100), (100, 0), (99, 1)] {
            assert_eq!(Misuse::if_outside(offset, bytes, 100), Ok(()), "{bytes} at {offset}");
        }
        for (offset, bytes) in [(0, 101), (101, 0), (u64::MAX, 2), (2, u64::MAX)] {
            let text = format!("{bytes} bytes at offset {offset} do not fit a segment of 100 bytes");
            says(Misuse::if_outside(offset, bytes, 100).expect_err("it leaves"), &text);
        }
        let out = |call, role| Misuse::OutOfRange { call, role, offset: 9, bytes: 2, segment_bytes: 10 };
        says(out(Some("copy"), None), "copy: 2 bytes at offset 9 do not fit a segment of 10 bytes");
        says(
            out(None, Some(Role { name: "source", device: 1 })),
            "2 bytes at offset 9 do not fit the source, a segment of 10 bytes on device 1; stay within it",
        );
    }

    #[test]
    fn addresses_are_named_in_hexadecimal() {
        let (address, bytes) = (0x1000, 16);
        says(
            Misuse::Unmapped { address, bytes },
            "16 bytes at address 0x1000 touch unmapped addresses; map pages there first",
        );
        says(
            Misuse::AlreadyMapped { address, bytes },
            "16 bytes at address 0x1000 are mapped already; unmap them first",
        );
        let own = "is not a range: it has its own memory, and nothing can be mapped there";
        says(Misuse::NotARange { segment: Named::Address(address) }, &format!("the segment at address 0x1000 {own}"));
        says(Misuse::NotARange { segment: Named::Bytes(bytes) }, &format!("the segment of 16 bytes {own}"));
        says(
            Misuse::Overlap { from: address, to: address + 8, bytes },
            "a copy of 16 bytes from 0x1000 to 0x1008 overlaps itself",
        );
        says(
            Misuse::OverlapWithin { from: 0, to: 8, bytes },
            "a copy of 16 bytes from offset 0 to offset 8 of one segment overlaps itself",
        );
    }

    #[test]
    fn a_segment_of_another_device_is_named_with_both() {
        let foreign = |remedy| Misuse::Foreign { call: "copy", own: 0, other: 1, remedy };
        says(
            foreign(Remedy::AskOwner),
            "copy: the segment belongs to device 1, and this is device 0; call the device that owns it",
        );
        says(
            foreign(Remedy::CopyThroughHost("Vulkan")),
            "copy: the segment belongs to Vulkan device 1, not to device 0; copy through the host",
        );
        says(
            foreign(Remedy::DownloadAndUpload("wgpu")),
            "copy: the segment belongs to wgpu device 1, not to 0; download and upload instead",
        );
    }

    #[test]
    fn points_are_named_with_what_the_stream_has() {
        let point = Point { stream: StreamId(2), tick: Tick(7) };
        says(
            Misuse::NeverMarked { point, open: 3 },
            "stream 2 tick 7 was never marked: the open tick is 3; call mark first",
        );
        says(
            Misuse::NotSubmitted { point, submitted: 3 },
            "stream 2 tick 7 is not submitted: the newest submitted tick is 3; submit that stream first",
        );
    }
}
