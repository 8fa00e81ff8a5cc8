//! Files of every writer and reader: what is written appears whole, what was cut is known, and what is printed of a
//! file acts on nothing.

use std::fs;
use std::path::PathBuf;

use millpond_import::{Options, import_content};
use millpond_snapshot::Snapshot;
use millpond_trace::{Event, Trace, TraceError, WholeFile, printable};

/// A folder of one test, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A trace that turns out to be wrong while it is written leaves what was there.
#[test]
fn a_file_that_cannot_be_written_to_its_end_is_not_replaced() {
    let folder = Folder::new("whole");
    let good = Trace::parse(b"a 0 512 0\nf 0\n").expect("a trace");
    let events =
        (0..50_000).map(|id| Event::Allocate { id, bytes: 512, stream: 0 }).chain([Event::Free { id: 60_000 }]);
    let wrong = Trace { events: events.collect(), ..Trace::default() };
    for name in ["a.trace", "a.trace.gz", "a.trace.zst"] {
        let path = folder.0.join(name);
        good.write(&path).expect("room");
        assert!(matches!(wrong.write(&path), Err(TraceError::Event { event: 50_000, .. })));
        assert_eq!(Trace::read(&path).expect("the old file"), good, "{name}");
    }
    let path = folder.0.join("a.json");
    Snapshot::default().write(&path).expect("room");
    assert_eq!(Snapshot::read(&path).expect("a snapshot"), Snapshot::default());
    assert_eq!(folder.names(), ["a.json", "a.trace", "a.trace.gz", "a.trace.zst"]);
    assert!(WholeFile::check(folder.0.join("none/a")).is_err() && WholeFile::check(&folder.0).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_permissions_and_links_to_it_stay() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = Folder::new("links");
    let (real, link, plain) = (folder.0.join("real"), folder.0.join("link"), folder.0.join("plain"));
    let mode = |path: &PathBuf| fs::metadata(path).expect("a file").permissions().mode() & 0o7777;
    symlink(&real, &link).expect("a link");
    let trace = Trace::parse(b"e\n").expect("a trace");
    trace.write(&link).expect("room");
    fs::write(&plain, "").expect("room");
    assert!(link.is_symlink() && mode(&real) == mode(&plain));
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("our file");
    trace.write(&link).expect("room");
    assert!(link.is_symlink() && mode(&real) == 0o640);
    assert_eq!(Trace::read(&real).expect("a trace"), trace);
    trace.write("/dev/null").expect("a device");
    assert!(!fs::symlink_metadata("/dev/null").expect("a device").is_file());
}

/// The end of a trace counts its events: whatever of the text is missing, it is known.
#[test]
fn a_trace_that_was_cut_is_known() {
    let text = Trace::parse(b"a 0 512 0\nf 0\ne\n").expect("a trace").write_to(Vec::new()).expect("memory");
    for end in 1..text.len() {
        assert!(Trace::parse(&text[..end]).is_err(), "{end} of {} bytes", text.len());
    }
    assert!(Trace::parse(&[&text[..], b"e\n"].concat()).is_err());
    assert_eq!(Trace::parse(&text).expect("a trace").events.len(), 3);
}

#[test]
fn a_log_that_was_cut_is_told() {
    let options = Options { refused: true, ..Options::default() };
    let whole = "Action,Pointer,Size,Stream\nallocate,0x10,512,0\nallocate failure,(nil),9999,0\n";
    let second = "Action,Pointer,Size,Stream\nfree,0x10,64,0\nallocate,0x20,4096,0\n";
    let text = format!("{whole}{second}");
    let count = |text: &str| {
        let imported = import_content(text.as_bytes(), &options).expect("a log");
        (imported.trace.events.len(), imported.left.iter().any(|left| left.what.contains("cut off")))
    };
    assert_eq!(count(&text), (4, false));
    for cut in 1..9 {
        assert_eq!(count(&text[..text.len() - cut]), (3, true), "{cut}");
    }
    let huge = whole.replace("512", "1152921504606846976");
    assert!(import_content(huge.as_bytes(), &options).is_err());
    // One that was refused may have had any size.
    assert_eq!(count(&whole.replace("9999", "1152921504606846976")), (1, false));
}

#[test]
fn a_file_of_zstd_may_begin_with_a_frame_that_is_skipped() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/readers/skippable.csv.zst");
    let imported = millpond_import::import_file(file, &Options::default()).expect("a table");
    assert_eq!(imported.trace.events.len(), 2);
}

#[test]
fn what_a_file_says_is_printed_and_not_acted_on() {
    assert_eq!(printable("a\u{1b}[2J\u{9b}\n\u{2028}\u{fffe}"), "a\\u{1b}[2J\\u{9b}\\n\\u{2028}\\u{fffe}");
    let error = Trace::parse(b"\x1b[2J\r\n").expect_err("no event").to_string();
    assert!(!error.contains(char::is_control), "{error:?}");
}
