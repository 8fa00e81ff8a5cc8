//! Names that were probably meant, for messages about mistyped ones.

/// Returns `; did you mean NAME?` with the known name that is closest to the given one, or nothing where none is close.
pub(crate) fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(given, known).map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// Returns the known name that is closest to the given one: at most a third of its letters differ, and one at least
/// may.
pub(crate) fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (given.chars().count() / 3).max(1);
    let distance = |name: &&str| edits(&given.to_lowercase(), &name.to_lowercase());
    let begins = |name: &str| given.chars().count() >= 3 && name.starts_with(given);
    known.into_iter().filter(|name| distance(name) <= most || begins(name)).min_by_key(distance)
}

/// Returns how many letters have to be inserted, removed, replaced, or swapped with their neighbour.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_close_is_suggested() {
        let known = ["paged", "tight", "classic", "expandable", "direct"];
        for (given, meant) in [
            ("pagd", Some("paged")),
            ("Clasic", Some("classic")),
            ("expandible", Some("expandable")),
            ("expand", Some("expandable")),
            ("tigth", Some("tight")),
            ("fastest", None),
            ("", None),
        ] {
            assert_eq!(closest(given, known), meant, "{given}");
        }
        assert_eq!(suggestion("pagd", known), "; did you mean `paged`?");
        assert_eq!((edits("kitten", "sitting"), edits("ab", "ba"), edits("", "abc")), (3, 1, 3));
    }
}
