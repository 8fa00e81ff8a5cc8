//! The page: one file of HTML, which loads nothing.

use std::fmt::Write as _;

use crate::data::{Program, Run};
use crate::shared::Data;
use crate::text::{bytes, count, escaped};

const FRAME: &str = include_str!("../assets/report.html");
const STYLES: [&str; 2] = [include_str!("../assets/report.css"), include_str!("../assets/who.css")];
/// The scripts, in order: a later one uses what is in those before it.
const SCRIPTS: [&str; 11] = [
    include_str!("../assets/base.js"),
    include_str!("../assets/glossary.js"),
    include_str!("../assets/axis.js"),
    include_str!("../assets/zoom.js"),
    include_str!("../assets/timeline.js"),
    include_str!("../assets/stacks.js"),
    include_str!("../assets/blocks.js"),
    include_str!("../assets/map.js"),
    include_str!("../assets/life.js"),
    include_str!("../assets/tables.js"),
    include_str!("../assets/main.js"),
];

/// Makes the page about these programs. `conditions` says on what they were replayed, and how.
///
/// # Panics
///
/// If there is no program.
pub fn page(programs: &[Program], conditions: &str) -> String {
    assert!(!programs.is_empty(), "a report is about a program");
    let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
    let title = match names[..] {
        [name] => name.to_owned(),
        _ => format!("{} programs", names.len()),
    };
    let data = match serde_json::to_string(&Data::new(programs)) {
        // In JSON this character is only in strings, and without it no tag begins.
        Ok(data) => data.replace('<', "\\u003c"),
        Err(error) => panic!("the data of a report has no JSON form: {error}"),
    };
    let parts = [
        ("title", escaped(&title)),
        ("conditions", escaped(conditions)),
        ("headlines", headlines(programs)),
        ("overview", overview(programs)),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("style", STYLES.concat()),
        ("script", SCRIPTS.concat()),
        ("data", data),
    ];
    fill(FRAME, &parts)
}

/// Replaces each `{{name}}` of the frame. What is put in is not searched again.
fn fill(frame: &str, parts: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(frame.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = frame;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out.push_str(before);
        match parts.iter().find(|(part, _)| *part == name) {
            Some((_, text)) => out.push_str(text),
            None => panic!("the frame asks for {name}, which is not there"),
        }
        rest = after;
    }
    out + rest
}

/// Returns the sentences that the page opens with: one paragraph, or a list where there are several programs.
fn headlines(programs: &[Program]) -> String {
    match programs {
        [program] => format!("<p class=\"headline\">{}</p>", typed(&program.headline)),
        _ => {
            let item = |program: &Program| {
                format!("<li><strong>{}</strong>: {}</li>", escaped(&program.name), typed(&program.headline))
            };
            format!("<ul class=\"headline\">{}</ul>", programs.iter().map(item).collect::<String>())
        }
    }
}

/// Returns a text as HTML, with what is between backticks as what can be typed.
fn typed(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for (place, part) in text.split('`').enumerate() {
        let part = escaped(part);
        if place % 2 == 0 { html += &part } else { html += &format!("<code>{part}</code>") }
    }
    html
}

/// The heads of the table of numbers, each with what it means.
const HEADS: [(&str, &str); 8] = [
    ("peak live", "The most bytes in use at one time of the first pass."),
    ("peak reserved", "The most bytes taken from the driver at one time of the first pass."),
    ("reserved / live", "Peak reserved divided by peak live, first pass. The best is 1."),
    ("over all passes", "Peak reserved so far divided by peak live so far, after the worst pass."),
    ("driver calls", "Calls of the driver in the first pass."),
    ("last pass", "Calls of the driver in the last pass. There are none once the program has settled."),
    ("waits", "Waits of the host, and of streams for each other, in all passes."),
    ("refused, all passes", "Requests that failed for lack of memory, in all passes."),
];

/// Returns the table of the numbers that matter.
fn overview(programs: &[Program]) -> String {
    let mut html =
        String::from("<table class=\"numbers\"><caption class=\"hidden\">Results by policy</caption><thead><tr>");
    if programs.len() > 1 {
        html += "<th scope=\"col\">program</th>";
    }
    html += "<th scope=\"col\">policy</th>";
    for (head, meaning) in HEADS {
        let _ = write!(html, "<th scope=\"col\" class=\"n\" title=\"{meaning}\">{head}</th>");
    }
    html += "</tr></thead><tbody>";
    for program in programs {
        // What refuses requests reserves less for it, and is not the best.
        let served = program.runs.iter().filter(|run| run.passes.iter().all(|pass| pass.refused == 0));
        let least = served.map(|run| run.reserved).min();
        for (place, run) in program.runs.iter().enumerate() {
            html += if place == 0 { "<tr class=\"first\">" } else { "<tr>" };
            if programs.len() > 1 && place == 0 {
                let _ = write!(html, "<th scope=\"rowgroup\" rowspan=\"{}\">", program.runs.len());
                let _ = write!(html, "{}</th>", escaped(&program.name));
            }
            let best = program.runs.len() > 1 && Some(run.reserved) == least;
            row(&mut html, run, best);
        }
    }
    html + "</tbody></table>"
}

fn row(html: &mut String, run: &Run, best: bool) {
    let last = run.passes.last().map_or(0, |pass| pass.calls);
    let first = run.passes.first().map_or(0, |pass| pass.calls);
    let sum = |value: fn(&crate::data::PassData) -> u64| run.passes.iter().map(value).sum::<u64>();
    let cells = [
        bytes(run.live),
        bytes(run.reserved),
        format!("{:.3}", run.ratio()),
        format!("{:.3}", run.life_ratio),
        count(first),
        if run.passes.len() > 1 { count(last) } else { "–".to_owned() },
        count(sum(|pass| pass.waits + pass.stalls)),
        count(sum(|pass| pass.refused)),
    ];
    let _ = write!(html, "<th scope=\"row\">{}</th>", escaped(&run.policy));
    for ((head, _), (place, cell)) in HEADS.iter().zip(cells.iter().enumerate()) {
        let class = if place == 2 && best { "n best" } else { "n" };
        let _ = write!(html, "<td class=\"{class}\" data-head=\"{head}\">{cell}</td>");
    }
    *html += "</tr>";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_scripts_declare_the_same_name() {
        let mut names = BTreeSet::new();
        for line in SCRIPTS.iter().flat_map(|script| script.lines()) {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if matches!(words.next(), Some("function" | "const" | "let")) {
                let name = words.next().unwrap_or_default();
                assert!(name.is_empty() || names.insert(name), "{name} is declared twice: the later one replaces it");
            }
        }
        assert!(names.len() > 50, "{names:?}");
    }
}
