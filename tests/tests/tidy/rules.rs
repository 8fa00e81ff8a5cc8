//! The rules of the repository, applied to all its files. Each rule's own test is beside it, in `src/tidy/`.

use std::process::Command;
use std::sync::LazyLock;

use millpond_tests::tidy::{self, Finding, rooms_left_out};
use millpond_tests::workspace::{self, TextFile};

static FILES: LazyLock<Vec<TextFile>> = LazyLock::new(|| workspace::read(&workspace::root()));

fn holds(rule: fn(&[TextFile]) -> Vec<Finding>) {
    holds_with(&rule(&FILES));
}

fn holds_with(findings: &[Finding]) {
    let list: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "{} findings:{list}", findings.len());
}

#[test]
fn each_layer_names_only_those_below() {
    holds(tidy::layer_order);
}

#[test]
fn backends_have_the_same_rooms() {
    rooms_left_out(&FILES).iter().for_each(|left_out| println!("{left_out}"));
    holds(tidy::backends_have_the_rooms);
}

#[test]
fn rooms_of_a_backend_name_those_above_and_files_no_circle() {
    holds(tidy::rooms_name_those_above);
}

#[test]
fn the_command_names_a_backend_in_one_table() {
    holds(tidy::backends_in_one_table);
}

#[test]
fn links_of_pages_lead_somewhere() {
    holds(tidy::links_resolve);
}

#[test]
fn the_book_has_every_page() {
    holds(tidy::pages_are_in_the_book);
}

#[test]
fn pages_for_users_are_in_plain_prose() {
    holds(tidy::prose_is_plain);
}

#[test]
fn phrases_that_readers_stumble_over_are_rare() {
    holds(tidy::phrases_are_plain);
}

#[test]
fn packages_come_from_the_public_index() {
    holds(tidy::package_origins);
}

#[test]
fn locks_name_what_the_manifests_ask_for() {
    holds(tidy::locks_are_up_to_date);
}

#[test]
fn packages_say_what_the_index_asks_for_and_have_the_licences() {
    holds(tidy::packages_are_complete);
}

#[test]
fn packages_take_in_no_file_from_outside() {
    holds(tidy::packages_stand_alone);
}

#[test]
fn packages_can_be_published_one_after_the_other() {
    holds(tidy::packages_have_an_order);
}

/// The command has a copy of one trace in its package, which holds no files from outside its folder.
#[test]
fn the_built_in_trace_is_that_of_the_corpus() {
    let name = "traces/gpt2_train.trace.gz";
    let read = |path: &str| {
        let path = workspace::root().join(path).join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert!(read("crates/cli") == read("tests/corpus"), "crates/cli/{name} is not that of tests/corpus: copy it");
}

/// Returns the standard output of a command that runs in the root of the repository.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(workspace::root()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} {}: {error}", arguments.join(" ")));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Asks cargo about the packages that are built on this machine, as those of other systems may not be here.
#[test]
fn embedding_needs_no_c_compiler() {
    let version = output_of("rustc", &["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("the host in rustc -vV");
    let metadata = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host];
    let metadata = output_of("cargo", &metadata);
    holds_with(
        &tidy::embedding_needs_no_c_compiler(&metadata).unwrap_or_else(|error| panic!("cargo metadata: {error}")),
    );
}

#[test]
fn the_core_decides_and_does_nothing_else() {
    holds(tidy::core_is_pure);
}

#[test]
fn the_contract_names_no_vendor() {
    holds(tidy::contract_names_no_vendor);
}

#[test]
fn the_contract_can_grow() {
    holds(tidy::contract_can_grow);
}

#[test]
fn a_device_that_is_chosen_at_run_time_lacks_nothing() {
    holds(tidy::twins_have_the_same);
}

#[test]
fn files_are_small() {
    holds(tidy::file_length);
}

#[test]
fn functions_fit_a_screen() {
    holds(tidy::function_length);
}

#[test]
fn lines_are_no_wider_than_agreed() {
    holds(tidy::line_width);
}

#[test]
fn unsafe_stays_in_its_rooms() {
    holds(tidy::unsafe_in_its_rooms);
}

#[test]
fn unsafe_has_its_reason_above() {
    holds(tidy::unsafe_is_justified);
}

#[test]
fn nothing_is_marked_for_later() {
    holds(tidy::no_markers);
}

#[test]
fn no_test_is_switched_off() {
    holds(tidy::no_ignored_tests);
}

#[test]
fn no_text_names_a_machine() {
    holds(tidy::forbidden_words);
}

#[test]
fn one_vocabulary() {
    holds(tidy::one_vocabulary);
}

#[test]
fn the_report_page_explains_words_as_the_glossary_does() {
    holds(tidy::explained_words);
}

#[test]
fn every_crate_has_a_page() {
    holds(tidy::crates_have_readmes);
}
