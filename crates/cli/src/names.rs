//! Names that were probably meant, for messages about mistyped ones.

/// Returns `; did you mean NAME?` with the known name that is closest to the given one, or nothing where none is close.
pub(crate) fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(given, known).map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// Returns the known name that is closest to the given one: at most a third of its letters differ, and one at least
/// may.
pub(crate) fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (given.chars().count() / 3).max(1);
    let distance = |name: &&str| strsim::osa_distance(&given.to_lowercase(), &name.to_lowercase());
    let begins = |name: &str| given.chars().count() >= 3 && name.starts_with(given);
    known.into_iter().filter(|name| distance(name) <= most || begins(name)).min_by_key(distance)
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
    }
}
