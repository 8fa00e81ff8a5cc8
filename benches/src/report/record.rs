//! The files of the results.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Run, csv, summary};

/// Returns the folder of all records.
pub fn record_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("record")
}

/// Writes a run to `<dir>/<machine>/<date>.csv` and `.md`, and returns the path of the latter. Never replaces a record:
/// a later run of the same day gets a number behind the date.
///
/// # Errors
///
/// Returns the error of the system.
pub fn record(run: &Run, dir: &Path) -> io::Result<PathBuf> {
    let dir = dir.join(&run.machine.name);
    fs::create_dir_all(&dir)?;
    let mut name = run.date.clone();
    let mut later = 1;
    let mut table = loop {
        match fs::File::create_new(dir.join(format!("{name}.csv"))) {
            Ok(file) => break file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                later += 1;
                name = format!("{}-{later}", run.date);
            }
            Err(error) => return Err(error),
        }
    };
    table.write_all(csv(run).as_bytes())?;
    let page = dir.join(format!("{name}.md"));
    fs::write(&page, summary(run))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::{Run, record};
    use crate::report::Machine;

    #[test]
    fn a_later_run_is_a_new_file() {
        let dir = std::env::temp_dir().join(format!("millpond-record-{}", std::process::id()));
        let machine = Machine { name: "m".to_owned(), processor: "p".to_owned(), cores: 2, mhz: None };
        let date = "2026-01-31".to_owned();
        let load = [None, None];
        let run = Run { machine, date, rounds: 1, clock_ns: 1.0, load, cases: vec![], threads: vec![] };
        let pages = [record(&run, &dir), record(&run, &dir)].map(|page| page.expect("the folder can be written"));
        let names = pages.map(|page| page.strip_prefix(&dir).expect("below the folder").display().to_string());
        let files = std::fs::read_dir(dir.join("m")).expect("it was made").count();
        std::fs::remove_dir_all(&dir).expect("it was made");
        assert_eq!((names, files), (["m/2026-01-31.md".to_owned(), "m/2026-01-31-2.md".to_owned()], 4));
    }
}
