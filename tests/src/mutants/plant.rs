//! Putting faults into a text, each behind its switch.

use std::fmt::Write as _;
use std::ops::Range;

use super::{Fault, WORD};

/// A part of a text with the faults that replace just this part.
struct Site<'a> {
    range: Range<usize>,
    faults: Vec<&'a Fault>,
}

/// Returns the text of a file with all of these faults in it. Faults may replace the same text, and one may lie inside
/// what another replaces.
///
/// # Errors
///
/// Returns what cannot be planted, and why.
pub fn planted(path: &str, text: &str, faults: &[&Fault]) -> Result<String, Vec<String>> {
    let (mut sites, mut wrong): (Vec<Site<'_>>, Vec<String>) = (Vec::new(), Vec::new());
    for fault in faults {
        let found: Vec<usize> = text.match_indices(&fault.find).map(|(at, _)| at).collect();
        let [begin] = found[..] else {
            let count = found.len();
            wrong.push(format!("{}: its text occurs {count} times in {path}, and must once", fault.name));
            continue;
        };
        // What follows a dot is a part of an expression.
        let is_whole = is_expression(&fault.find) && is_expression(&fault.put) && !text[..begin].ends_with('.');
        if !fault.put.contains(WORD) && !is_whole {
            wrong.push(format!("{}: its texts are no whole expressions: use {WORD}", fault.name));
            continue;
        }
        let range = begin..begin + fault.find.len();
        match sites.iter_mut().find(|site| site.range == range) {
            Some(site) => site.faults.push(fault),
            None => sites.push(Site { range, faults: vec![fault] }),
        }
    }
    // An outer site comes before those inside it.
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    wrong.extend(crossings(&sites));
    if wrong.is_empty() { Ok(rendered(text, 0..text.len(), &sites)) } else { Err(wrong) }
}

/// Returns whether a text may stand where an expression does: it names nothing, does not end as a statement or an arm
/// of a `match` does, and closes as many brackets of each kind as it opens.
fn is_expression(text: &str) -> bool {
    let closes = |[open, close]: &[char; 2]| text.matches(*open).count() == text.matches(*close).count();
    let is_more = text.starts_with("let ") || text.ends_with([';', ',']);
    !is_more && [['(', ')'], ['[', ']'], ['{', '}']].iter().all(closes)
}

/// Returns messages on sites that overlap while neither lies in the other, and on sites inside a text that is replaced
/// as it stands.
fn crossings(sites: &[Site<'_>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, outer) in sites.iter().enumerate() {
        for inner in sites[at + 1..].iter().filter(|inner| inner.range.start < outer.range.end) {
            let is_inside = inner.range.end <= outer.range.end;
            let stands = outer.faults.iter().any(|fault| fault.put.contains(WORD));
            if !is_inside || stands {
                let (one, other) = (&outer.faults[0].name, &inner.faults[0].name);
                wrong.push(format!("{one} and {other} change the same text: make one of them smaller"));
            }
        }
        let stands = outer.faults.iter().filter(|fault| fault.put.contains(WORD)).count();
        if stands > 0 && outer.faults.len() > 1 {
            wrong.push(format!("{} is not alone at its text and holds the word {WORD}", outer.faults[0].name));
        }
    }
    wrong
}

/// Returns a part of the text with the sites in it, which are in order.
fn rendered(text: &str, part: Range<usize>, sites: &[Site<'_>]) -> String {
    let (mut out, mut at, mut rest) = (String::new(), part.start, sites);
    while let Some((site, behind)) = rest.split_first() {
        let inside = behind.iter().take_while(|inner| inner.range.end <= site.range.end).count();
        out.push_str(&text[at..site.range.start]);
        out.push_str(&switched(text, site, &behind[..inside]));
        at = site.range.end;
        rest = &behind[inside..];
    }
    out.push_str(&text[at..part.end]);
    out
}

fn switched(text: &str, site: &Site<'_>, inside: &[Site<'_>]) -> String {
    let is_on = |fault: &Fault| format!("crate::mutant({})", fault.number);
    if let [fault] = site.faults[..]
        && fault.put.contains(WORD)
    {
        return fault.put.replace(WORD, &is_on(fault));
    }
    let mut out = String::from("(");
    for fault in &site.faults {
        let _ = write!(out, "if {} {{ {} }} else ", is_on(fault), fault.put);
    }
    let _ = write!(out, "{{ {} }})", rendered(text, site.range.clone(), inside));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(number: u32, find: &str, put: &str) -> Fault {
        let [name, room, path, breaks] = ["a-fault", "a-room", "a.rs", "A rule."].map(str::to_owned);
        Fault { number, name, room, path, breaks, find: find.to_owned(), put: put.to_owned(), harmless: None }
    }

    fn plant(text: &str, faults: &[Fault]) -> Result<String, Vec<String>> {
        planted("a.rs", text, &faults.iter().collect::<Vec<_>>())
    }

    #[test]
    fn an_expression_stands_behind_its_switch() {
        let text = plant("let a = b.max(c);", &[fault(7, "b.max(c)", "b")]);
        let expected = "let a = (if crate::mutant(7) { b } else { b.max(c) });";
        assert_eq!(text, Ok(expected.to_owned()));
    }

    #[test]
    fn a_text_with_the_word_stands_as_it_is() {
        let text = plant("if a { b() }", &[fault(2, "if a {", "if !MUTANT && a {")]);
        assert_eq!(text, Ok("if !crate::mutant(2) && a { b() }".to_owned()));
    }

    #[test]
    fn faults_share_a_text_or_lie_in_one() {
        let faults = [fault(1, "a || b", "b"), fault(2, "a || b", "a"), fault(3, "b", "true")];
        let text = plant("f(a || b)", &faults);
        let inner = "(if crate::mutant(3) { true } else { b })";
        let (one, two) = ("crate::mutant(1)", "crate::mutant(2)");
        assert_eq!(text, Ok(format!("f((if {one} {{ b }} else if {two} {{ a }} else {{ a || {inner} }}))")));
    }

    #[test]
    fn what_cannot_be_planted_is_told() {
        let cases: [(&str, &[Fault]); 11] = [
            ("a", &[fault(1, "b", "c")]),
            ("if (a) {", &[fault(1, "(a) {", "(b) {")]),
            ("a", &[fault(1, "a", "(b")]),
            ("let a = b;", &[fault(1, "let a = b;", "let a = c;")]),
            ("a;", &[fault(1, "a;", "b;")]),
            ("a => b,", &[fault(1, "b,", "c,")]),
            ("a.b()", &[fault(1, "b()", "c()")]),
            ("a a", &[fault(1, "a", "c")]),
            ("a b c", &[fault(1, "a b", "d"), fault(2, "b c", "d")]),
            ("a b c", &[fault(1, "a b c", "MUTANT"), fault(2, "b", "d")]),
            ("a b c", &[fault(1, "b", "MUTANT"), fault(2, "b", "d")]),
        ];
        for (text, faults) in cases {
            let told = plant(text, faults).expect_err(text);
            assert_eq!(told.len(), 1, "{text}: {told:?}");
        }
    }
}
