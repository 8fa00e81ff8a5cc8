//! The program `scale`, as it is called: its page, its record and its mistakes.

use std::process::{Command, Output};

fn scale(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scale"));
    command.args(arguments).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

#[test]
fn the_page_has_the_rows_of_all_processes_and_is_recorded_as_it_is_printed() {
    let folder = std::env::temp_dir().join(format!("millpond-scale-{}", std::process::id()));
    let record = folder.join("new/scale.md");
    let path = record.to_str().expect("the folder's name is text");
    let output = scale(&["churn/pools/in-turn", "--churn", "3", "--machine", "mine", "--record", path]);
    let recorded = std::fs::read_to_string(&record);
    _ = std::fs::remove_dir_all(&folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert_eq!(recorded.expect("it was written"), page);
    assert!(page.starts_with("# Streams, threads, pools and age: mine, "), "{page}");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| pools | in turn |")).collect();
    let names: Vec<_> = rows.iter().map(|row| row.split(" | ").nth(2).unwrap_or_default()).collect();
    assert_eq!(names, ["classic", "paged"], "{page}");
    assert!(rows.iter().all(|row| row.contains("| 3 of 3 |")), "{page}");
    assert_eq!(page.matches("\n## ").count(), 1, "tables without a case are left out: {page}");
}

#[test]
fn a_part_that_names_nothing_and_a_case_that_fails_are_errors() {
    let nothing = scale(&["nothing"]);
    assert!(!nothing.status.success() && text(&nothing.stderr).contains("--list names them all"));
    let listed = text(&scale(&["--list", "threads/gpt2_train"]).stdout);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    // Before anything is measured.
    let unwritten = scale(&["churn", "--record", "."]);
    assert!(!unwritten.status.success() && !text(&unwritten.stderr).contains("churn/"), "{}", text(&unwritten.stderr));
    // Its rows are missing, and the page is whole otherwise.
    let failed = scale(&["threads/gpt2_train/1", "--traces", "nowhere"]);
    assert!(!failed.status.success());
    assert!(text(&failed.stderr).contains("threads/gpt2_train/1: exit status"), "{}", text(&failed.stderr));
    assert!(text(&failed.stdout).contains("## Threads"), "{}", text(&failed.stdout));
}
