//! Plots as PNG: what a browser makes of their SVG on a light page.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::usvg::{Options, Tree};

use crate::plot::PlotError;

/// The pixels for each unit of a picture in both directions, for screens with small pixels and for papers.
pub const SCALE: f32 = 2.0;

/// The families that text is drawn in, in this order, where they are there.
const FAMILIES: [&str; 6] = ["DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica", "Segoe UI"];

/// Draws a plot, which is SVG, as PNG, [`SCALE`] times as large. Text is drawn with the fonts of this machine.
///
/// # Errors
///
/// Fails if there is no font, or if the text is no SVG.
pub fn png(svg: &str) -> Result<Vec<u8>, PlotError> {
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    let family = family(fonts).ok_or_else(|| {
        PlotError("this machine has no font: install one, such as the package fonts-dejavu-core".into())
    })?;
    fonts.set_sans_serif_family(&family);
    options.font_family = family;
    let failed = |what: String| PlotError(what);
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let pixels = tree.size().to_int_size().scale_by(SCALE);
    let mut picture = pixels
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or_else(|| failed("the picture has no size".into()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
    picture.encode_png().map_err(|error| failed(error.to_string()))
}

/// Returns the first of the families that is there, or any that is.
fn family(fonts: &Database) -> Option<String> {
    let is_there = |name: &&str| fonts.query(&Query { families: &[Family::Name(name)], ..Query::default() }).is_some();
    let known = FAMILIES.iter().find(|name| is_there(name)).map(|name| (*name).to_owned());
    known.or_else(|| fonts.faces().find_map(|face| Some(face.families.first()?.0.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_font_there_is_no_family() {
        assert_eq!(family(&Database::new()), None);
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let error = png("<svg").expect_err("no picture").to_string();
        assert!(error.starts_with("a plot cannot be drawn: "), "{error}");
    }

    /// A picture of the documentation, with text: its pixels are counted by colour where the colour is that of the ink.
    #[test]
    fn bands_and_text_are_in_the_picture() {
        let svg = include_str!("../../../docs/report-timeline.svg");
        let Ok(file) = png(svg) else { return };
        let picture = Pixmap::decode_png(&file).expect("a picture");
        assert_eq!((picture.width(), picture.height()), (2 * 860, 2 * 668));
        let of = |red, green, blue, from: u32, to: u32| {
            let is_it = |pixel: &resvg::tiny_skia::PremultipliedColorU8| {
                (pixel.red(), pixel.green(), pixel.blue()) == (red, green, blue)
            };
            let row = |y: u32| &picture.pixels()[(y * picture.width()) as usize..((y + 1) * picture.width()) as usize];
            (from..to).flat_map(row).filter(|pixel| is_it(pixel)).count()
        };
        assert!(of(0x2C, 0x6F, 0xB0, 0, picture.height()) > 50_000, "what is live");
        assert!(of(0x1F, 0x23, 0x28, 30, 70) > 200, "the title");
        assert!(of(0xFF, 0xFF, 0xFF, 0, picture.height()) > 500_000, "the paper is white");
    }
}
