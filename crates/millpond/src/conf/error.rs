//! The errors that a configuration text can have.

/// An error in a configuration text, with its position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("at byte {position}: {kind}")]
pub struct ConfError {
    /// The number of bytes before the offending word or separator.
    pub position: usize,
    /// The kind of error.
    pub kind: ConfErrorKind,
}

impl ConfError {
    pub(super) fn new(position: usize, kind: ConfErrorKind) -> Self {
        Self { position, kind }
    }
}

/// The kind of an error in a configuration text. Values are shown shortened to 40 characters.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfErrorKind {
    /// A key that neither PyTorch nor Millpond has.
    #[error("unknown key `{key}`{}; the keys are {}", meant(key, known), known.join(", "))]
    UnknownKey {
        /// The word found.
        key: String,
        /// All keys.
        known: Vec<&'static str>,
    },
    /// A key named twice, so that the text would contradict itself.
    #[error("`{key}` is set a second time (first at byte {first}); set it once")]
    DuplicateKey {
        /// The key.
        key: &'static str,
        /// The position of its first mention.
        first: usize,
    },
    /// A separator where a pair should begin: what was found.
    #[error("found {0} where a key should be; a pair is `key:value`")]
    MissingKey(String),
    /// A key that no `:` follows.
    #[error("`{key}` must be followed by `:` and its value, found {found}")]
    MissingColon {
        /// The word before.
        key: String,
        /// The token found instead.
        found: String,
    },
    /// A `:` that no value follows.
    #[error("`{key}:` has no value, found {found}")]
    EmptyValue {
        /// The word before the `:`.
        key: String,
        /// The token found instead.
        found: String,
    },
    /// Two pairs, or two words, without a `,` between them: what was found instead.
    #[error("found {0} after a complete pair; separate pairs with `,`")]
    MissingComma(String),
    /// A `,` at the end of the text or of a list.
    #[error("nothing follows this `,`; remove it")]
    TrailingComma,
    /// A bracket at a place where none is allowed: which.
    #[error("stray `{0}`; brackets enclose one list, as in `key:[1:2,>:4]`")]
    StrayBracket(char),
    /// A list without its `]`: the key it belongs to.
    #[error("this list of `{0}` is never closed; end it with `]`")]
    UnclosedList(String),
    /// `[]`, a list without an entry: the key it belongs to.
    #[error("the list of `{0}` is empty; leave the key out instead")]
    EmptyList(String),
    /// A list for a key that takes a single value: that key.
    #[error("`{0}` takes a single value, not a list")]
    ListNotAccepted(&'static str),
    /// A value that the key does not accept.
    #[error("`{key}` is `{value}`, must be {accepted}")]
    NotAccepted {
        /// The key.
        key: &'static str,
        /// The word found.
        value: String,
        /// What is accepted, in words.
        accepted: &'static str,
    },
    /// A whole number beyond 64 bits.
    #[error("`{key}` is `{value}`, which does not fit in 64 bits")]
    Overflow {
        /// The key.
        key: &'static str,
        /// The word found.
        value: String,
    },
    /// A number that must be a power of two and is not.
    #[error("`{key}` is {value}, must be a power of two")]
    NotAPowerOfTwo {
        /// The key.
        key: &'static str,
        /// The number.
        value: u64,
    },
    /// A limit below the large segment size.
    #[error("`{key}` is {mib} MiB, must be at least the large segment size, {large_mib} MiB")]
    BelowLargeSegment {
        /// The key.
        key: &'static str,
        /// Its value in MiB.
        mib: u64,
        /// `large_segment_size_mb`, from this text or the base, in MiB.
        large_mib: u64,
    },
    /// A large segment size above a limit that the base sets and the text does not name.
    #[error("`large_segment_size_mb` is {large_mib}, above `{key}`, set before to {bytes} bytes; set both")]
    LargeSegmentAbove {
        /// The key of the limit.
        key: &'static str,
        /// `large_segment_size_mb`, in MiB.
        large_mib: u64,
        /// The limit in bytes.
        bytes: u64,
    },
    /// A list whose sizes do not rise.
    #[error("`{key}` names {mib} MiB after {previous_mib} MiB; name each size once, in rising order")]
    ListOrder {
        /// The key.
        key: &'static str,
        /// The size in MiB.
        mib: u64,
        /// The size before it, in MiB.
        previous_mib: u64,
    },
    /// An entry after `>` in a list: the key.
    #[error("`{0}` goes on after `>`, which stands for all the rest and must be last")]
    AfterRest(&'static str),
    /// A class named twice in one list.
    #[error("`{key}` names `{name}` a second time; name each class once")]
    DuplicateEntry {
        /// The key.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// The value `backend:cudaMallocAsync`.
    #[error(
        "`backend:cudaMallocAsync` hands all caching to the driver, which leaves Millpond nothing to decide; \
         use `backend:native`, or `policy:direct` for no caching"
    )]
    DriverBackend,
}

/// Returns a question that names the key most like this one, or nothing if none is much like it.
fn meant(key: &str, known: &[&'static str]) -> String {
    let like = known.iter().map(|name| (strsim::jaro_winkler(key, name), name));
    match like.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((likeness, name)) if likeness > 0.85 => format!(", did you mean `{name}`"),
        _ => String::new(),
    }
}

/// Returns at most 40 characters of a word, for messages.
pub(super) fn shorten(word: &str) -> String {
    match word.char_indices().nth(40) {
        None => word.to_string(),
        Some((end, _)) => format!("{}...", &word[..end]),
    }
}
