//! The files that a command reads and writes: which they are, checked before anything is read, and how all of them are
//! written.
//!
//! A file appears whole or not at all ([`WholeFile`]). `-` is standard input or standard output.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use millpond_trace::{TraceError, WholeFile, printable};

use crate::failure::Failure;

/// Returns a path for people to read.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Returns whether a path stands for standard input.
pub(crate) fn is_input(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Returns whether a path stands for standard output.
pub(crate) fn is_output(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Returns the failure of a file that cannot be written.
pub(crate) fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::Input(format!("{}: cannot be written: {error}; give another path", shown(path)))
}

/// What makes two paths one. Pipes and devices have none of it: they can be written twice.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Input,
    Output,
    /// A place in a folder, with links followed.
    Place(PathBuf),
    /// A file, by its device and its number, whatever its names.
    File(u64, u64),
}

#[cfg(unix)]
fn number(found: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    found.is_file().then(|| Identity::File(found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> Option<Identity> {
    None
}

/// Returns the identity of the file that a stream of this process is, if it is one.
fn of_stream(path: &str) -> Option<Identity> {
    fs::metadata(path).ok().as_ref().and_then(number)
}

/// Returns what an input is. One that is not there is nothing, which is found out when it is read.
fn of_input(path: &Path) -> Vec<Identity> {
    if is_input(path) {
        return [Some(Identity::Input), of_stream("/dev/stdin")].into_iter().flatten().collect();
    }
    let Ok(found) = fs::metadata(path) else { return Vec::new() };
    let place = fs::canonicalize(path).ok().filter(|_| found.is_file()).map(Identity::Place);
    [place, number(&found)].into_iter().flatten().collect()
}

/// Returns what an output is, once it is known that it can be written.
fn of_output(path: &Path) -> Result<Vec<Identity>, Failure> {
    if is_output(path) {
        return Ok([Some(Identity::Output), of_stream("/dev/stdout")].into_iter().flatten().collect());
    }
    let place = WholeFile::check(path).map_err(|error| cannot(path, &error))?;
    // What is written directly may be an open file, by its number.
    let old = fs::metadata(place.as_deref().unwrap_or(path)).ok().as_ref().and_then(number);
    Ok([place.map(Identity::Place), old].into_iter().flatten().collect())
}

/// Checks the files of a command before it reads the first: each output can be written, and is neither an input nor
/// another output under any name, and standard input is read once. Costs a few calls of the system for each file.
///
/// # Errors
///
/// Returns [`Failure::Input`] that names the file and says what to do.
pub(crate) fn check(inputs: &[PathBuf], outputs: &[PathBuf]) -> Result<(), Failure> {
    let mut known: HashMap<Identity, (String, bool)> = HashMap::new();
    for path in inputs {
        for identity in of_input(path) {
            let is_stream = identity == Identity::Input;
            if known.insert(identity, (shown(path), false)).is_some() && is_stream {
                return Err(Failure::Input("standard input is named twice, and can be read once".into()));
            }
        }
    }
    for path in outputs {
        let name = shown(path);
        let identities = of_output(path)?;
        for identity in &identities {
            if let Some((other, is_written)) = known.get(identity) {
                let both = if *other == name { format!("`{name}`") } else { format!("`{name}` is `{other}`, which") };
                let what = if *is_written { "is written twice" } else { "is read and would be replaced" };
                return Err(Failure::Input(format!("{both} {what}: give another path for the output")));
            }
        }
        for identity in identities {
            if let Entry::Vacant(entry) = known.entry(identity) {
                entry.insert((name.clone(), true));
            }
        }
    }
    Ok(())
}

/// Checks that files can be written into a folder, which need not be there, and that neither it nor a folder that has
/// it will be another output. Returns whether it is there.
///
/// # Errors
///
/// Returns [`Failure::Input`] if it cannot be made.
pub(crate) fn check_folder(folder: &Path, outputs: &[PathBuf]) -> Result<bool, Failure> {
    if folder == Path::new("-") {
        return Err(Failure::Input(
            "`-` is standard output, and plots are several files: name a folder for them".into(),
        ));
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let place = absolute(folder);
    if let Some(output) = outputs.iter().find(|output| place.starts_with(absolute(output))) {
        let (folder, output) = (shown(folder), shown(output));
        return Err(Failure::Input(format!("`{output}` is to be a file, and `{folder}` a folder: give another path")));
    }
    if folder.is_dir() {
        return Ok(true);
    }
    let is_missing = |at: &&Path| !at.as_os_str().is_empty() && fs::symlink_metadata(at).is_err();
    let first = folder.ancestors().take_while(is_missing).last();
    match first.map_or(Err(ErrorKind::NotADirectory.into()), WholeFile::check) {
        Ok(_) => Ok(false),
        Err(error) => Err(cannot(folder, &error)),
    }
}

/// A file that is being written, or standard output.
pub(crate) enum Sink {
    Standard(Standard),
    File(WholeFile),
}

/// Standard output as a file. A reader that goes away is no error: what follows is dropped.
pub(crate) struct Standard {
    is_open: bool,
}

impl Standard {
    pub(crate) fn new() -> Self {
        Self { is_open: true }
    }
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_open {
            return Ok(bytes.len());
        }
        match io::stdout().lock().write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_open = false;
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match io::stdout().lock().flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

impl Sink {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        if is_output(path) { Ok(Self::Standard(Standard::new())) } else { WholeFile::create(path).map(Self::File) }
    }

    /// Ends the file, which is at its path from then on.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Standard(mut standard) => standard.flush(),
            Self::File(file) => file.finish(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(standard) => standard.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(standard) => standard.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

/// Writes a file.
///
/// # Errors
///
/// Returns [`Failure::Input`] that names it.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let written = Sink::create(path).and_then(|mut sink| sink.write_all(content).and_then(|()| sink.finish()));
    written.map_err(|error| cannot(path, &error))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn error(inputs: &[&Path], outputs: &[&Path]) -> String {
        let owned = |paths: &[&Path]| paths.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>();
        match check(&owned(inputs), &owned(outputs)) {
            Ok(()) => String::new(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn one_file_under_any_names_is_read_or_written_and_not_both() {
        let folder = std::env::temp_dir().join(format!("millpond-files-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).expect("a folder");
        let at = |name: &str| folder.join(name);
        fs::write(at("in"), "").expect("a file");
        std::os::unix::fs::symlink(at("in"), at("soft")).expect("a link");
        std::os::unix::fs::symlink("later", at("dangling")).expect("a link");
        fs::hard_link(at("in"), at("hard")).expect("a link");
        for name in ["in", "sub/../in", "soft", "hard"] {
            let error = error(&[&at("in")], &[&at(name)]);
            assert!(error.contains("is read and would be replaced: give another path"), "{name}: {error}");
        }
        for (one, other) in [("new", "new"), ("new", "sub/../new"), ("later", "dangling"), ("hard", "in")] {
            let error = error(&[], &[&at(one), &at(other)]);
            assert!(error.contains("is written twice"), "{one} {other}: {error}");
        }
        assert!(error(&[], &[&at("none/new")]).contains("none/new: cannot be written: No such file"));
        assert!(error(&[], &[&folder]).contains("cannot be written"));
        assert_eq!(error(&[&at("in"), &at("in")], &[&at("a"), &at("b")]), "");
        let (null, dash) = (Path::new("/dev/null"), Path::new("-"));
        assert_eq!(error(&[null], &[null, null]), "");
        assert!(error(&[dash, Path::new("/dev/stdin")], &[]).contains("standard input is named twice"));
        assert!(error(&[], &[dash, Path::new("/dev/stdout")]).contains("is written twice"));
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd as _;
            let open = fs::File::open(at("in")).expect("a file");
            let by_number = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
            assert!(error(&[&at("in")], &[&by_number]).contains("is read and would be replaced"));
            assert!(error(&[dash, Path::new("/dev/fd/0")], &[]).contains("standard input is named twice"));
        }
        let folder_of =
            |folder: &Path, outputs: &[PathBuf]| check_folder(folder, outputs).map_err(|failure| failure.to_string());
        assert_eq!(folder_of(&at("sub"), &[at("a")]), Ok(true));
        assert_eq!(folder_of(&at("x/y/z"), &[at("x/y/zz")]), Ok(false));
        assert!(folder_of(&at("in/x"), &[]).is_err() && folder_of(&at("in"), &[]).is_err());
        for output in ["x", "x/y/z"] {
            assert!(folder_of(&at("x/y/z"), &[at(output)]).is_err_and(|error| error.contains("is to be a file")));
        }
        assert!(folder_of(dash, &[]).is_err_and(|error| error.contains("name a folder")));
        let names = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(names, 5, "a check leaves nothing");
        fs::remove_dir_all(&folder).expect("our folder");
    }
}
/// Returns the text of an error of a trace. `option` is the one by which a command raises a limit.
pub(crate) fn advised(error: &TraceError, option: &str) -> String {
    match error {
        &TraceError::Limit { limit, enough, .. } => {
            format!("{error}: {}, or `none`", raised(option, limit.name(), enough))
        }
        error => format!("{error}; docs/reference/trace-format.md describes the format"),
    }
}

/// Returns an option with a limit and the value that is enough, or N where it is not known.
pub(crate) fn raised(option: &str, limit: &str, enough: Option<u64>) -> String {
    let value = enough.map_or("N".into(), |enough| enough.to_string());
    format!("{option} {limit}={value}")
}
