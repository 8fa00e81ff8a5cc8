//! The committed chart is what the program makes of the committed records, and its caption says what they say.

use std::fs;
use std::path::{Path, PathBuf};

use millpond_benches::chart::{CONDITIONS, PICTURE, RECORD, Row, make, rows};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn the_committed_chart_is_made_of_the_committed_record() {
    let made = make(&root()).unwrap();
    assert!(made == read(PICTURE), "{PICTURE} differs: cargo run -p millpond-benches --bin chart");
}

#[test]
fn the_caption_repeats_the_conditions_of_the_record() {
    let record = read(RECORD);
    for words in CONDITIONS {
        assert!(record.lines().take_while(|line| line.starts_with('#')).any(|line| line.contains(words)), "{words}");
    }
}

#[test]
fn all_ten_programs_are_drawn() {
    let rows = rows(&read(RECORD)).unwrap();
    assert_eq!(rows.len(), 10);
    assert!(rows.is_sorted_by(|a, b| a.over_live[0] >= b.over_live[0]));
    let picture = read(PICTURE);
    for Row { program, over_live } in &rows {
        assert!(picture.contains(&format!("\n{program}\n")), "{program}");
        for ratio in over_live {
            assert!(picture.contains(&format!("\n{ratio:.2}\n")), "{program}: {ratio:.2}");
        }
    }
}

const HEAD: &str = "program,allocator,reserved_bytes,live_bytes\n";

#[test]
fn ratios_are_reserved_over_live() {
    let lines = "a,native,30,10\na,async,15,10\na,control,9,3\na,expandable,20,10\na,millpond,11,10\n";
    let row = Row { program: "a".to_owned(), over_live: [3.0, 2.0, 1.5, 1.1] };
    assert_eq!(rows(&format!("# A machine\n{HEAD}{lines}")).unwrap(), [row]);
}

#[test]
fn a_record_with_something_missing_is_refused() {
    let cases = [
        ("", "empty"),
        ("program,allocator,reserved_bytes\n", "no column live_bytes"),
        (HEAD, "no program"),
        (&format!("{HEAD}a,native,30,10\n"), "a: an allocator is missing"),
        (&format!("{HEAD}a,native,,10\n"), "a, reserved_bytes: cannot parse float from empty string"),
    ];
    for (text, expected) in cases {
        assert_eq!(rows(text).unwrap_err(), expected);
    }
}
