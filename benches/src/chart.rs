//! The chart of the front page: what allocators reserve for PyTorch programs, drawn from a committed record.
//!
//! It knows no device and measures nothing. The same record gives the same picture, byte for byte, and a test compares
//! that with the committed one.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle};

/// The record of all allocators, relative to the repository.
pub const RECORD: &str = "benches/record/nvidia-h200/programs.csv";
/// The picture, relative to the repository.
pub const PICTURE: &str = "docs/reserved.svg";
/// What the record says of its machine and date, as the caption repeats it.
pub const CONDITIONS: [&str; 3] = ["NVIDIA H200", "PyTorch 2.11.0", "2026-11-29"];

/// The number of allocators that are compared.
pub const ALLOCATORS: usize = 4;

/// The allocators of the record, with their names and colours in the picture.
const SUBJECTS: [(&str, &str, RGBColor); ALLOCATORS] = [
    ("native", "PyTorch", RGBColor(0x9A, 0xA4, 0xB2)),
    ("expandable", "PyTorch, expandable segments", RGBColor(0x54, 0x8A, 0xD0)),
    ("async", "cudaMallocAsync", RGBColor(0xC9, 0x8A, 0x3C)),
    ("millpond", "Millpond", RGBColor(0x1A, 0xA0, 0x6D)),
];

/// A program and its peak reserved bytes over its peak live bytes, in the order of `SUBJECTS`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The program's name.
    pub program: String,
    /// Peak reserved bytes over peak live bytes, by allocator.
    pub over_live: [f64; ALLOCATORS],
}

/// Makes the picture from the record below `root`, the repository's folder.
///
/// # Errors
///
/// Fails if the record cannot be read, or lacks a column, an allocator or a figure.
pub fn make(root: &Path) -> Result<String, Box<dyn Error>> {
    let csv = fs::read_to_string(root.join(RECORD)).map_err(|error| format!("{RECORD}: {error}"))?;
    draw(&rows(&csv).map_err(|what| format!("{RECORD}: {what}"))?)
}

/// Returns a row for each program in a record of comma-separated values, in the order of what PyTorch reserves, the
/// most first.
///
/// # Errors
///
/// Fails if a column is missing, a field is not a number, or one of the allocators is missing for a program.
pub fn rows(csv: &str) -> Result<Vec<Row>, String> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().ok_or("empty")?;
    let column = |name: &str| head.iter().position(|column| *column == name).ok_or(format!("no column {name}"));
    let (program, allocator) = (column("program")?, column("allocator")?);
    let (reserved, live) = (column("reserved_bytes")?, column("live_bytes")?);

    let mut found: BTreeMap<String, [Option<f64>; ALLOCATORS]> = BTreeMap::new();
    for fields in lines {
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        let program = field(program).to_owned();
        let bytes = |index| field(index).parse::<f64>().map_err(|error| format!("{program}, {}: {error}", head[index]));
        let over_live = bytes(reserved)? / bytes(live)?;
        if let Some(place) = SUBJECTS.iter().position(|(name, ..)| *name == field(allocator)) {
            found.entry(program).or_default()[place] = Some(over_live);
        }
    }
    let whole = |(program, over_live): (String, [Option<f64>; ALLOCATORS])| {
        let missing = || format!("{program}: an allocator is missing");
        let figures: Option<Vec<f64>> = over_live.into_iter().collect();
        let over_live = figures.and_then(|figures| figures.try_into().ok()).ok_or_else(missing)?;
        Ok(Row { program, over_live })
    };
    let mut rows = found.into_iter().map(whole).collect::<Result<Vec<_>, String>>()?;
    if rows.is_empty() {
        return Err("no program".to_owned());
    }
    rows.sort_by(|a, b| b.over_live[0].total_cmp(&a.over_live[0]));
    Ok(rows)
}

/// Returns the geometric means of all rows' figures.
fn mean(rows: &[Row]) -> Row {
    let mean = |place: usize| {
        let logarithms: f64 = rows.iter().map(|row| row.over_live[place].ln()).sum();
        (logarithms / rows.len() as f64).exp()
    };
    Row { program: "geometric mean".to_owned(), over_live: std::array::from_fn(mean) }
}

// Lengths are in units of the picture, of which it is `WIDTH` wide.
const WIDTH: i32 = 860;
const LEFT: i32 = 150;
const RIGHT: i32 = 800;
const TOP: i32 = 92;
const BAR: i32 = 12;
const GROUP: i32 = ALLOCATORS as i32 * BAR + 12;

const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
const FAINT: RGBColor = RGBColor(0x59, 0x63, 0x6E);
const GRID: RGBColor = RGBColor(0xD8, 0xDE, 0xE4);

/// Replaces the colours of paper, ink and grid where the reader prefers a dark page. The rules name the colours above.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {
rect[fill=\"#FFFFFF\"] { fill: #0D1117; }
text[fill=\"#1F2328\"] { fill: #E6EDF3; }
text[fill=\"#59636E\"] { fill: #9DA7B3; }
polyline[stroke=\"#D8DEE4\"] { stroke: #30363D; }
polyline[stroke=\"#1F2328\"] { stroke: #E6EDF3; }
}</style>";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a group of bars for each row, and one for their geometric means.
///
/// # Errors
///
/// Fails if the library that draws does.
pub fn draw(rows: &[Row]) -> Result<String, Box<dyn Error>> {
    let mean = mean(rows);
    let bottom = TOP + GROUP * (rows.len() as i32 + 1) + 6;
    let size = (WIDTH as u32, (bottom + 82) as u32);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&PAPER)?;

    write(&area, "Peak reserved memory over peak live memory", (20, 28), (19.0, INK, HPos::Left, FontStyle::Bold))?;
    legend(&area)?;
    // The axis ends at the next half behind the longest bar.
    let most = (rows.iter().flat_map(|row| row.over_live).fold(1.0, f64::max) * 2.0).ceil() / 2.0;
    axis(&area, most, bottom)?;
    for (index, row) in rows.iter().chain([&mean]).enumerate() {
        let own = index == rows.len();
        group(&area, row, most, TOP + GROUP * index as i32 + if own { 6 } else { 0 }, own)?;
    }
    caption(&area, rows.len(), bottom)?;
    area.present()?;
    drop(area);

    let end = svg.find('>').map_or(0, |at| at + 1);
    let style = svg[..end].starts_with("<svg").then_some(DARK).ok_or("the picture does not begin with its size")?;
    Ok(format!("{}\n{style}{}", &svg[..end], &svg[end..]))
}

/// Writes a line of text. Its place is vertically in its middle.
fn write(area: &Area, text: &str, at: (i32, i32), look: (f64, RGBColor, HPos, FontStyle)) -> Drawn {
    let (size, colour, side, weight) = look;
    let font = ("sans-serif", size).into_font().style(weight).color(&colour);
    area.draw(&Text::new(text.to_owned(), at, font.pos(Pos::new(side, VPos::Center))))
}

fn bar(area: &Area, corners: [(i32, i32); 2], colour: RGBColor) -> Drawn {
    area.draw(&Rectangle::new(corners, colour.filled()))
}

fn line(area: &Area, ends: [(i32, i32); 2], style: ShapeStyle) -> Drawn {
    area.draw(&PathElement::new(ends.to_vec(), style))
}

/// Returns the place on the axis of a ratio; `most` is where the axis ends.
fn along(ratio: f64, most: f64) -> i32 {
    LEFT + (f64::from(RIGHT - LEFT) * ratio / most).round() as i32
}

fn legend(area: &Area) -> Drawn {
    for ((_, name, colour), x) in SUBJECTS.iter().zip([LEFT, LEFT + 95, LEFT + 340, LEFT + 500]) {
        bar(area, [(x, 51), (x + 14, 63)], *colour)?;
        write(area, name, (x + 21, 57), (15.5, INK, HPos::Left, FontStyle::Normal))?;
    }
    Ok(())
}

fn axis(area: &Area, most: f64, bottom: i32) -> Drawn {
    for step in 0..=most as i32 {
        let x = along(f64::from(step), most);
        let style = if step == 1 { INK.stroke_width(1) } else { GRID.stroke_width(1) };
        line(area, [(x, TOP - 10), (x, bottom)], style)?;
        write(area, &format!("{step}.0"), (x, bottom + 13), (14.0, FAINT, HPos::Center, FontStyle::Normal))?;
    }
    let best = "1.0: nothing reserved beyond what is live";
    write(area, best, (along(1.0, most) + 8, TOP - 8), (13.5, FAINT, HPos::Left, FontStyle::Normal))
}

fn group(area: &Area, row: &Row, most: f64, top: i32, emphasized: bool) -> Drawn {
    let weight = if emphasized { FontStyle::Bold } else { FontStyle::Normal };
    write(area, &row.program, (LEFT - 10, top + BAR * ALLOCATORS as i32 / 2 + 5), (15.5, INK, HPos::Right, weight))?;
    for (place, ((_, _, colour), ratio)) in SUBJECTS.iter().zip(row.over_live).enumerate() {
        let (y, end) = (top + 5 + BAR * place as i32, along(ratio, most));
        bar(area, [(LEFT, y), (end, y + BAR - 2)], *colour)?;
        // A figure that the line at 1.0 would cross begins to the right of that line.
        let x = (end + 6).max(along(1.0, most) + 6);
        let figure_weight = if place + 1 == ALLOCATORS { FontStyle::Bold } else { weight };
        write(area, &format!("{ratio:.2}"), (x, y + BAR / 2 - 1), (12.5, INK, HPos::Left, figure_weight))?;
    }
    Ok(())
}

fn caption(area: &Area, programs: usize, bottom: i32) -> Drawn {
    let [device, torch, date] = CONDITIONS;
    let lines = [
        format!("{programs} PyTorch programs, 24 steps each, on one {device}, {torch}, {date}. Each allocator has a"),
        "process of its own, and an empty cache for each program. Shorter bars are better.".to_owned(),
    ];
    for (index, text) in lines.iter().enumerate() {
        write(area, text, (20, bottom + 44 + 20 * index as i32), (14.5, FAINT, HPos::Left, FontStyle::Normal))?;
    }
    Ok(())
}
