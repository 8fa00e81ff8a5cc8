//! What is wrong with a range, a cast or a length.

/// Why a slice or a view cannot be made, or elements do not fit. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The range leaves the elements.
    #[error(
        "elements {start} to {end} are not a range within {len} elements, the requested length; the rounded block \
         does not count"
    )]
    Range {
        /// The first element.
        start: u64,
        /// The element behind the last one.
        end: u64,
        /// The number of elements.
        len: u64,
    },
    /// The bytes are no whole number of elements.
    #[error("{bytes} bytes are not a whole number of elements of {element_bytes} bytes; take a slice that is")]
    Size {
        /// The number of bytes.
        bytes: u64,
        /// The size of an element, in bytes.
        element_bytes: u64,
    },
    /// The first byte is not aligned for the elements.
    #[error("the bytes start {over} bytes past a multiple of {alignment}; the elements must start on one")]
    Alignment {
        /// The alignment of the elements, in bytes.
        alignment: u64,
        /// The remainder, in bytes.
        over: u64,
    },
    /// The host has another number of elements than the range, or one range another than the other.
    #[error("{given} elements for a range of {len}; take a slice of the same length")]
    Length {
        /// The number of elements that were given.
        given: u64,
        /// The number of elements of the range.
        len: u64,
    },
}
