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

    const PLOT: &str = r##"<svg width="200" height="100" viewBox="0 0 200 100" xmlns="http://www.w3.org/2000/svg">
<style>@media (prefers-color-scheme: dark) {
rect[fill="#FFFFFF"] { fill: #0D1117; }
}</style>
<rect x="0" y="0" width="200" height="100" fill="#FFFFFF" stroke="none"/>
<rect x="50" y="50" width="20" height="10" fill="#2C6FB0" stroke="none"/>
<text x="10" y="20" font-family="sans-serif" font-size="16" fill="#1F2328">reserved memory</text>
</svg>"##;

    #[test]
    fn bands_and_text_are_in_the_picture_of_a_light_page() {
        let file = match png(PLOT) {
            Ok(file) => file,
            Err(error) if error.to_string().contains("has no font") => return,
            Err(error) => panic!("{error}"),
        };
        let picture = Pixmap::decode_png(&file).expect("a picture");
        assert_eq!((picture.width(), picture.height()), (400, 200));
        let of = |colour: [u8; 3]| {
            picture.pixels().iter().filter(|pixel| [pixel.red(), pixel.green(), pixel.blue()] == colour).count()
        };
        assert_eq!(of([0x2C, 0x6F, 0xB0]), 20 * 10 * 4, "the band, four pixels for each unit");
        assert!(of([0x1F, 0x23, 0x28]) > 200, "the text");
        assert!(of([0xFF, 0xFF, 0xFF]) > 60_000, "the paper is white");
    }
}
