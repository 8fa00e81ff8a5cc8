//! Links: each link of a page leads to a file, a folder or a heading that exists.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use crate::lexer::line_of;
use crate::workspace::TextFile;

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Records of measurements keep the links that they had on their day.
const RECORDS: &str = "benches/record/";

/// Checks that links within the repository lead somewhere. Costs a look at each byte of each page.
pub fn links_resolve(files: &[TextFile]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let pages = || files.iter().filter(|file| file.path.ends_with(".md"));
    let headings: BTreeMap<&str, BTreeSet<String>> =
        pages().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let is_there = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || paths.contains(path)
            || paths.range(folder.as_str()..).next().is_some_and(|p| p.starts_with(&folder))
    };
    let mut findings = Vec::new();
    for page in pages().filter(|page| !page.path.starts_with(RECORDS)) {
        for (target, at) in links(&page.text).into_iter().filter(|(target, _)| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').map_or((target.as_str(), None), |(p, a)| (p, Some(a)));
            let path = if path.is_empty() { Some(page.path.clone()) } else { resolve(&page.path, path) };
            let line = line_of(&page.text, at);
            let Some(path) = path.filter(|path| is_there(path)) else {
                findings.push(Finding::new(&page.path, line, format!("{target} leads to no file")));
                continue;
            };
            let known = headings.get(path.as_str());
            if anchor.is_some_and(|anchor| known.is_some_and(|known| !known.contains(anchor))) {
                findings.push(Finding::new(&page.path, line, format!("{target} leads to no heading of {path}")));
            }
        }
    }
    findings
}

/// Checks that the book's table of contents names each page of `docs/`.
pub fn pages_are_in_the_book(files: &[TextFile]) -> Vec<Finding> {
    let summary = files.iter().find(|file| file.path == SUMMARY);
    let named: BTreeSet<String> = summary
        .map(|summary| links(&summary.text).into_iter().filter_map(|(target, _)| resolve(SUMMARY, &target)).collect())
        .unwrap_or_default();
    let is_page = |path: &str| path.starts_with("docs/") && path.ends_with(".md") && path != SUMMARY;
    let pages = files.iter().map(|file| file.path.as_str()).filter(|path| is_page(path));
    let missing = pages.filter(|path| !named.contains(*path));
    missing.map(|path| Finding::new(path, 0, format!("{SUMMARY} does not name it: readers do not find it"))).collect()
}

/// Returns the targets of the links and pictures of a page, and where they stand in it.
fn links(text: &str) -> Vec<(String, usize)> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let target = |(event, range): (Event<'_>, std::ops::Range<usize>)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some((dest_url.into_string(), range.start))
        }
        _ => None,
    };
    // A name with `::` is for rustdoc, which checks it.
    let is_path = |target: &str| !target.starts_with("mailto:") && !target.contains("::");
    events.filter_map(target).filter(|(target, _)| is_path(target)).collect()
}

/// Returns the anchors of the headings of a page, as mdBook and code hosts make them: small letters, digits, hyphens
/// and underscores, and a number behind the second of two that are equal.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => heading.iter_mut().for_each(|heading| heading.push_str(&part)),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor_of(&heading.take().unwrap_or_default());
                let numbered = (1..).map(|number| format!("{anchor}-{number}"));
                let free = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
                anchors.extend(free);
            }
            _ => {}
        }
    }
    anchors
}

fn anchor_of(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ');
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the path from the root of what a page's link leads to, unless that is outside the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('#').next()?.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "" | "." => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> TextFile {
        TextFile::new(path, text)
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let files = |link: &str| {
            let text = format!("# A page\n\n[it]({link})\n\n```text\n[no](link)\n```\n");
            [page("docs/how-to/a.md", &text), page("docs/b.md", "# B\n\n## Why, and `how`\n\n## B\n")]
        };
        for good in
            ["../b.md", "a::B::c", "../b.md#why-and-how", "../b.md#b-1", "#a-page", "..", "https://example.org/x"]
        {
            assert_eq!(links_resolve(&files(good)), [], "{good}");
        }
        for bad in ["b.md", "../b.md#how", "#b", "../../../x", "../c/"] {
            let findings = links_resolve(&files(bad));
            assert_eq!((findings.len(), findings[0].line), (1, 3), "{bad}: {findings:?}");
        }
    }

    #[test]
    fn a_page_that_the_book_does_not_name_is_found() {
        let files = [page(SUMMARY, "- [A](how-to/a.md)\n"), page("docs/how-to/a.md", ""), page("docs/b.md", "")];
        let findings = pages_are_in_the_book(&files);
        assert_eq!(findings.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["docs/b.md"]);
    }
}
