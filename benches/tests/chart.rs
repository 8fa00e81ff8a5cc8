//! The committed chart is what the program makes of the committed records, and its caption says what they say.

use std::fs;
use std::path::{Path, PathBuf};

use millpond_benches::chart::{BUSY_RECORD, CONDITIONS, PICTURE, RECORD, Row, busiest, make, rows};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn the_committed_chart_is_made_of_the_committed_records() {
    let made = make(&root()).unwrap();
    assert!(made == read(PICTURE), "{PICTURE} differs: cargo run -p millpond-benches --bin chart");
}

#[test]
fn the_caption_repeats_the_conditions_of_the_records() {
    let page = read(&RECORD.replace(".csv", ".md"));
    let above = page.split("\n### ").next().unwrap();
    for words in CONDITIONS {
        assert!(above.contains(words), "{words}");
    }
    let (program, ratio) = busiest(&read(BUSY_RECORD)).unwrap();
    assert_eq!((program.as_str(), ratio), ("bert_multistream", 2.186));
    let vulkan = read(BUSY_RECORD).split("On vulkan").nth(1).map(busiest).unwrap();
    assert_eq!(vulkan, Some((program, ratio)), "the caption says that it is on Vulkan");
}

#[test]
fn all_seven_programs_are_drawn() {
    let rows = rows(&read(RECORD)).unwrap();
    assert_eq!(rows.len(), 7);
    assert!(rows.is_sorted_by(|a, b| a.over_live[0] >= b.over_live[0]));
    let picture = read(PICTURE);
    for Row { program, over_live } in &rows {
        assert!(picture.contains(&format!("\n{program}\n")), "{program}");
        for ratio in over_live {
            assert!(picture.contains(&format!("\n{ratio:.3}\n")), "{program}: {ratio:.3}");
        }
    }
}

const HEAD: &str = "case,threads,subject,reserved_bytes,live_bytes\n";

#[test]
fn ratios_are_reserved_over_live() {
    let lines = "hit/4KiB,1,torch,2,1\ntrace/a,1,torch,30,10\ntrace/a,1,rmm-pool,,\n\
                 trace/a,1,torch-expandable,20,10\ntrace/a,1,millpond paged,11,10\n";
    let row = Row { program: "a".to_owned(), over_live: [3.0, 2.0, 1.1] };
    assert_eq!(rows(&format!("{HEAD}{lines}")).unwrap(), [row]);
}

#[test]
fn a_record_with_something_missing_is_refused() {
    let cases = [
        ("", "empty"),
        ("case,subject,reserved_bytes\n", "no column live_bytes"),
        (HEAD, "no recorded program"),
        (&format!("{HEAD}trace/a,1,torch,30,10\n"), "a: a subject is missing"),
        (&format!("{HEAD}trace/a,1,torch,,10\n"), "a, reserved_bytes: cannot parse float from empty string"),
    ];
    for (text, expected) in cases {
        assert_eq!(rows(text).unwrap_err(), expected);
    }
    assert_eq!(busiest("| trace | policy | res/live |\n| a | classic | 2.0 |\n"), None);
}
