//! Plots for papers and front pages, as SVG: the timeline, and the picture of a life.

use std::fmt;
use std::io;

use millpond_trace::printable;
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor};

use crate::data::{Program, Run};
use crate::text::{bytes, count};

/// The failure of the library that draws.
#[derive(Debug)]
pub struct PlotError(pub(crate) String);

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a plot cannot be drawn: {}", self.0)
    }
}

impl std::error::Error for PlotError {}

impl From<DrawingAreaErrorKind<io::Error>> for PlotError {
    fn from(error: DrawingAreaErrorKind<io::Error>) -> Self {
        Self(error.to_string())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The name of a band, its colour, the middle of its end, and the most bytes that it had.
type Label = (&'static str, RGBColor, i32, u64);
type Drawn = Result<(), PlotError>;

// Lengths are in units of the picture, of which it is `WIDTH` wide.
const WIDTH: i32 = 860;
const LEFT: i32 = 76;
const RIGHT: i32 = 700;
const TOP: i32 = 82;
const PANEL: i32 = 150;
const GAP: i32 = 44;
/// The gap below a panel with numbers under its axis.
const WIDE_GAP: i32 = 66;
/// The most points along the axis.
const POINTS: usize = 208;

const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
const FAINT: RGBColor = RGBColor(0x59, 0x63, 0x6E);
const GRID: RGBColor = RGBColor(0xD8, 0xDE, 0xE4);
/// The bands of the stack from the bottom, with the parts of the ledger in each.
const BANDS: [(&str, RGBColor, &[&str]); 4] = [
    ("live", RGBColor(0x2C, 0x6F, 0xB0), &["live"]),
    ("rounding", RGBColor(0x86, 0xBD, 0xF0), &["rounding"]),
    ("in flight", RGBColor(0xDD, 0x7F, 0x10), &["waiting", "guarded"]),
    ("free", RGBColor(0xD0, 0xD5, 0xDA), &["ready", "stranded", "held"]),
];
/// The colours of policies in a life.
const LINES: [RGBColor; 4] =
    [RGBColor(0x2C, 0x6F, 0xB0), RGBColor(0xC2, 0x55, 0x0A), RGBColor(0x12, 0x83, 0x5F), RGBColor(0x4A, 0x52, 0x5B)];

/// Replaces the colours of paper, ink and grid where the reader prefers a dark page. The rules name the colours above.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {
rect[fill=\"#FFFFFF\"] { fill: #0D1117; }
text[fill=\"#1F2328\"] { fill: #E6EDF3; }
text[fill=\"#59636E\"] { fill: #9DA7B3; }
polyline[stroke=\"#D8DEE4\"] { stroke: #30363D; }
polyline[stroke=\"#1F2328\"] { stroke: #E6EDF3; }
polygon[fill=\"#D0D5DA\"] { fill: #4A525C; }
}</style>";

/// Draws what a program reserves over its first pass: a panel for each policy, on one scale.
///
/// # Errors
///
/// Fails if the library that draws does.
pub fn timeline_plot(program: &Program) -> Result<String, PlotError> {
    let most = program.runs.iter().map(|run| run.reserved).max().unwrap_or(0).max(1);
    let height = TOP + program.runs.len() as i32 * (PANEL + GAP) + 4;
    picture(height, |area| {
        let title = format!("{}: reserved memory over one pass", program.name);
        write(area, &title, (20, 26), (18.0, INK, HPos::Left, FontStyle::Bold))?;
        for (place, run) in program.runs.iter().enumerate() {
            let top = TOP + place as i32 * (PANEL + GAP);
            panel(area, run, most, top)?;
        }
        let end = format!("{} events", count(program.events as u64));
        write(area, &end, (RIGHT, height - 22), (13.0, FAINT, HPos::Right, FontStyle::Normal))
    })
}

/// Draws a life: reserved over live bytes, and driver calls, by pass, with a line for each policy.
///
/// # Errors
///
/// Fails if the library that draws does.
pub fn life_plot(program: &Program) -> Result<String, PlotError> {
    let over = |run: &Run| -> Vec<f64> {
        run.passes.iter().map(|pass| pass.reserved as f64 / pass.live.max(1) as f64).collect()
    };
    let calls = |run: &Run| -> Vec<f64> { run.passes.iter().map(|pass| pass.calls as f64).collect() };
    picture(TOP + 2 * (PANEL + WIDE_GAP) - 26, |area| {
        let title = format!("{}: pass by pass", program.name);
        write(area, &title, (20, 26), (18.0, INK, HPos::Left, FontStyle::Bold))?;
        lines(area, program, "reserved over live", TOP, over)?;
        lines(area, program, "driver calls", TOP + PANEL + WIDE_GAP, calls)
    })
}

fn picture(height: i32, draw: impl FnOnce(&Area) -> Drawn) -> Result<String, PlotError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&PAPER)?;
    draw(&area)?;
    area.present()?;
    drop(area);
    match svg.find('>') {
        Some(end) if svg.starts_with("<svg") => Ok(format!("{}\n{DARK}{}", &svg[..=end], &svg[end + 1..])),
        _ => Err(PlotError("the picture does not begin with its size".into())),
    }
}

/// Writes a line of text. Its place is vertically in its middle.
fn write(area: &Area, text: &str, at: (i32, i32), look: (f64, RGBColor, HPos, FontStyle)) -> Drawn {
    let (size, colour, side, weight) = look;
    let font = ("sans-serif", size).into_font().style(weight).color(&colour);
    Ok(area.draw(&Text::new(printable(text).into_owned(), at, font.pos(Pos::new(side, VPos::Center))))?)
}

fn rule(area: &Area, ends: [(i32, i32); 2], colour: RGBColor) -> Drawn {
    Ok(area.draw(&PathElement::new(ends.to_vec(), colour.stroke_width(1)))?)
}

fn across(place: usize, of: usize) -> i32 {
    LEFT + ((RIGHT - LEFT) as f64 * place as f64 / (of.max(2) - 1) as f64).round() as i32
}

fn panel(area: &Area, run: &Run, most: u64, top: i32) -> Drawn {
    let bottom = top + PANEL;
    let up = |bytes: u64| bottom - (f64::from(PANEL) * bytes as f64 / most as f64).round() as i32;
    let note = format!("{:.3} times live", run.ratio());
    write(area, &run.policy, (LEFT, top - 14), (15.0, INK, HPos::Left, FontStyle::Bold))?;
    write(area, &note, (RIGHT, top - 14), (14.0, FAINT, HPos::Right, FontStyle::Normal))?;
    let chosen = chosen(run);
    let mut floor = vec![0; chosen.len()];
    let mut labels = Vec::new();
    for (name, colour, parts) in BANDS {
        let of_band = |at: usize| -> u64 {
            run.parts.iter().filter(|(part, _)| parts.contains(part)).map(|(_, series)| series.0[at]).sum()
        };
        let roof: Vec<u64> = chosen.iter().zip(&floor).map(|(&at, floor)| floor + of_band(at)).collect();
        if roof == floor {
            continue;
        }
        let steps =
            |(place, &bytes): (usize, &u64)| [place, place + 1].map(|at| (across(at, roof.len() + 1), up(bytes)));
        let above = roof.iter().enumerate().flat_map(steps);
        let below = floor.iter().enumerate().flat_map(steps).collect::<Vec<_>>().into_iter().rev();
        let outline: Vec<(i32, i32)> = above.chain(below).collect();
        area.draw(&Polygon::new(straightened(&outline), colour.filled()))?;
        let widest = (0..chosen.len()).max_by_key(|&at| roof[at] - floor[at]).unwrap_or(0);
        labels.push((
            name,
            colour,
            (up(roof[chosen.len() - 1]) + up(floor[chosen.len() - 1])) / 2,
            roof[widest] - floor[widest],
        ));
        floor = roof;
    }
    for share in [0, 1, 2] {
        let value = most / 2 * share;
        rule(area, [(LEFT, up(value)), (RIGHT, up(value))], if share == 0 { INK } else { GRID })?;
        write(area, &bytes(value), (LEFT - 8, up(value)), (13.0, FAINT, HPos::Right, FontStyle::Normal))?;
    }
    // What cannot be seen needs no name.
    labels.retain(|(_, _, _, most_of_band)| most_of_band * 150 > most);
    band_labels(area, labels, bottom)
}

/// Writes the names of the bands beside their ends, none above another, with the most that each had.
fn band_labels(area: &Area, labels: Vec<Label>, bottom: i32) -> Drawn {
    let mut last = bottom + 14;
    for (name, colour, middle, most) in labels {
        let y = middle.min(last - 16);
        area.draw(&Rectangle::new([(RIGHT + 10, y - 5), (RIGHT + 20, y + 5)], colour.filled()))?;
        write(
            area,
            &format!("{name}, up to {}", bytes(most)),
            (RIGHT + 26, y),
            (13.0, INK, HPos::Left, FontStyle::Normal),
        )?;
        last = y;
    }
    Ok(())
}

/// Leaves out the points of an outline between two others of the same height.
fn straightened(outline: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let between = |at: usize| at > 0 && outline.get(at + 1).is_some_and(|next| next.1 == outline[at].1);
    let is_needless = |at: usize| between(at) && outline[at - 1].1 == outline[at].1;
    (0..outline.len()).filter(|&at| !is_needless(at)).map(|at| outline[at]).collect()
}

/// Returns the samples that are drawn: of each group of neighbours, that with the most live bytes.
fn chosen(run: &Run) -> Vec<usize> {
    let samples = run.at.0.len();
    let live = |at: &usize| run.parts.iter().find(|(name, _)| *name == "live").map_or(0, |(_, series)| series.0[*at]);
    let group = samples.div_ceil(POINTS).max(1);
    (0..samples).step_by(group).filter_map(|at| (at..(at + group).min(samples)).max_by_key(live)).collect()
}

fn lines(area: &Area, program: &Program, name: &str, top: i32, values: impl Fn(&Run) -> Vec<f64>) -> Drawn {
    let bottom = top + PANEL;
    let all: Vec<Vec<f64>> = program.runs.iter().map(values).collect();
    let most = all.iter().flatten().fold(1.0_f64, |most, value| most.max(*value));
    let up = |value: f64| bottom - (f64::from(PANEL) * value / most).round() as i32;
    write(area, name, (LEFT, top - 14), (15.0, INK, HPos::Left, FontStyle::Bold))?;
    for share in [0.0, 0.5, 1.0] {
        let (value, y) = (most * share, up(most * share));
        rule(area, [(LEFT, y), (RIGHT, y)], if share == 0.0 { INK } else { GRID })?;
        let text = if value == 0.0 {
            "0".to_owned()
        } else if most < 100.0 {
            format!("{value:.2}")
        } else {
            count(value as u64)
        };
        write(area, &text, (LEFT - 8, y), (13.0, FAINT, HPos::Right, FontStyle::Normal))?;
    }
    let ends: Vec<i32> = all.iter().map(|values| values.last().map_or(bottom, |&value| up(value))).collect();
    for (place, ((run, values), y)) in program.runs.iter().zip(&all).zip(apart(&ends, bottom)).enumerate() {
        let colour = LINES[place % LINES.len()];
        let points: Vec<_> = (0..).zip(values).map(|(pass, &value)| (across(pass, values.len()), up(value))).collect();
        area.draw(&PathElement::new(points.clone(), colour.stroke_width(2)))?;
        for &point in &points {
            area.draw(&Circle::new(point, 3, colour.filled()))?;
        }
        write(area, &run.policy, (RIGHT + 10, y), (13.5, colour, HPos::Left, FontStyle::Normal))?;
    }
    let passes = all.first().map_or(0, Vec::len);
    write(area, "pass 1", (LEFT, bottom + 15), (13.0, FAINT, HPos::Left, FontStyle::Normal))?;
    write(area, &format!("pass {passes}"), (RIGHT, bottom + 15), (13.0, FAINT, HPos::Right, FontStyle::Normal))
}

/// Returns the places of labels beside the ends of lines, moved up so that each has room.
fn apart(ends: &[i32], lowest: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by_key(|&at| -ends[at]);
    let (mut places, mut limit) = (ends.to_vec(), lowest);
    for at in order {
        places[at] = places[at].min(limit);
        limit = places[at] - 16;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XML has no control characters, whatever a name has.
    #[test]
    fn a_text_has_no_control_character() {
        let look = (18.0, INK, HPos::Left, FontStyle::Bold);
        let svg = picture(100, |area| write(area, "a\u{1b}[2J\u{7}b", (20, 26), look)).expect("a picture");
        assert!(!svg.chars().any(|c| c.is_control() && !"\n\t".contains(c)), "{svg:?}");
        assert!(svg.contains("[2J"), "{svg}");
    }
}
