//! Live buffers, grouped by what is noted of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::note::{Note, Site};
use crate::tag::{Names, TagId};
use crate::text::format_bytes;

/// A label, shared by the buffers that have it.
pub(crate) type Label = Arc<str>;

/// Buffers with the same label, or with none, and from the same place in the program if places are tracked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveGroup {
    /// The label; `None` for buffers that were given none.
    pub label: Option<Label>,
    /// The place at which the buffers were allocated, or were given their label, with
    /// [`Tracking::Sites`](crate::live::Tracking::Sites).
    pub site: Option<Site>,
    /// The number of buffers.
    pub count: u64,
    /// The bytes of their blocks, after rounding.
    pub bytes: u64,
    /// The bytes that were asked for.
    pub requested_bytes: u64,
}

/// Prints what a group is of.
pub(crate) fn name_of(f: &mut fmt::Formatter<'_>, label: Option<&Label>, site: Option<Site>) -> fmt::Result {
    f.write_str(label.map_or("(no label)", |label| label))?;
    site.map_or(Ok(()), |site| write!(f, " at {site}"))
}

impl fmt::Display for LiveGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} of ", format_bytes(self.bytes), self.count)?;
        name_of(f, self.label.as_ref(), self.site)
    }
}

/// Returns the groups of some buffers, the one with the most bytes first; equal ones in the order of label and place.
pub(crate) fn groups_of<'a>(notes: impl Iterator<Item = &'a Note>) -> Vec<LiveGroup> {
    let mut by_name: HashMap<(TagId, Option<Site>), [u64; 3]> = HashMap::new();
    for note in notes {
        let sums = by_name.entry((note.label, note.site)).or_default();
        for (sum, more) in sums.iter_mut().zip([1, note.size, note.requested]) {
            *sum += more;
        }
    }
    let names = Names::now();
    let group = |((label, site), [count, bytes, requested_bytes]): ((_, _), [u64; 3])| LiveGroup {
        label: names.of(label),
        site,
        count,
        bytes,
        requested_bytes,
    };
    let mut groups: Vec<_> = by_name.into_iter().map(group).collect();
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)).then_with(|| a.site.cmp(&b.site)));
    groups
}
