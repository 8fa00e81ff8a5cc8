//! Builds the pages of `docs/` as one site, in `target/book`, and prints where it begins.
//!
//! It is mdBook with one addition: links from a page to the rest of the checkout lead there. `docs/SUMMARY.md` is the
//! table of contents.

use std::path::{Component, Path, PathBuf};

use mdbook_driver::MDBook;
use mdbook_driver::book::{Book, Chapter};
use mdbook_driver::errors::Result;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

/// The folder of the site, from the root of the checkout.
const SITE: &str = "target/book";

fn main() -> Result<()> {
    let root = root();
    let site = root.join(SITE);
    build(&root, &site)?;
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// Returns the root of the checkout, which is two folders above this package.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or_else(|| panic!("{} is not in a checkout", here.display())).to_owned()
}

/// Builds the site of a checkout in a folder, which is created or replaced.
///
/// # Errors
///
/// If the table of contents names a page that does not exist, or a page cannot be read or written.
fn build(root: &Path, site: &Path) -> Result<()> {
    let mut book = MDBook::load(root.join("docs"))?;
    book.config.build.build_dir = site.to_owned();
    book.with_preprocessor(Checkout);
    book.build()
}

/// Has links that leave `docs/` lead to the checkout that the site was built in.
struct Checkout;

impl Preprocessor for Checkout {
    fn name(&self) -> &str {
        "checkout"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> Result<Book> {
        book.for_each_chapter_mut(|chapter: &mut Chapter| {
            if let Some(page) = &chapter.source_path {
                chapter.content = relinked(&chapter.content, page);
            }
        });
        Ok(book)
    }
}

/// Returns the text of a page with its links out of `docs/` as they are from the site. `page` is its path in `docs/`.
/// Costs a look at each byte.
fn relinked(text: &str, page: &Path) -> String {
    let mut parts = text.split("](");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_at(part.find(')').unwrap_or(0));
        result.push_str("](");
        result.push_str(&outside(target, page).unwrap_or_else(|| target.to_owned()));
        result.push_str(rest);
    }
    result
}

/// Returns a link of a page as it is from the site, if it leads out of `docs/`.
fn outside(target: &str, page: &Path) -> Option<String> {
    if target.starts_with('#') || target.contains("://") {
        return None;
    }
    let folder = page.parent().unwrap_or(Path::new(""));
    let mut above = 0;
    let mut below: Vec<&str> = Vec::new();
    for component in folder.components().chain(Path::new(target).components()) {
        match component {
            Component::ParentDir if below.pop().is_none() => above += 1,
            Component::Normal(name) => below.push(name.to_str()?),
            _ => {}
        }
    }
    let to_root = "../".repeat(folder.components().count() + Path::new(SITE).components().count());
    // One step up from `docs` is the root.
    (above == 1).then(|| format!("{to_root}{}", below.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_builds_with_all_its_pages() {
        let site = tempfile::tempdir().expect("a folder");
        build(&root(), site.path()).expect("the book builds");
        for page in ["index.html", "how-to/pytorch.html", "explanation/paging.html"] {
            let text = std::fs::read_to_string(site.path().join(page)).expect(page);
            assert!(text.contains("<main>"), "{page} has no text");
        }
    }

    #[test]
    fn links_out_of_the_book_lead_to_the_checkout() {
        let page = Path::new("how-to/c.md");
        let text = "[a](../../crates/core/README.md#time) [b](pools.md) [c](../README.md) [d](#e) [f](https://g.h/i)";
        let expected =
            "[a](../../../crates/core/README.md#time) [b](pools.md) [c](../README.md) [d](#e) [f](https://g.h/i)";
        assert_eq!(relinked(text, page), expected);
        assert_eq!(relinked("[a](../SECURITY.md)", Path::new("README.md")), "[a](../../SECURITY.md)");
    }
}
