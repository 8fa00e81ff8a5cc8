//! Files that are written whole: beside their place, and renamed once all of it is written.
//!
//! Whatever ends the process or the writing, a path has the old file or the new one, and never a part. Links are
//! followed, so that the file that they lead to is replaced and they stay. What is no file, such as a pipe or
//! `/dev/null`, is written directly.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

/// The most links that are followed, as on Linux.
const LINKS_MAX: usize = 40;

/// The names by which systems know the open files of a process. What lies there is written directly.
const OPEN_FILES: &str = "/proc";

/// The files that were begun and are neither finished nor removed.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all that [`WholeFile`]s have written and not finished. From then on none begins or finishes: the next call
/// waits for ever. It is for a signal's thread that ends the process next.
pub fn remove_unfinished_files() {
    let files = unfinished();
    for path in files.iter() {
        // What cannot be removed has a name by which it is known.
        let _ = fs::remove_file(path);
    }
    std::mem::forget(files);
}

/// A file that appears whole, when it is [finished](WholeFile::finish). Dropped before that, it leaves nothing.
///
/// Writing costs what it costs elsewhere, so wrap it in a buffer. The file is new: of one that it replaces it takes the
/// permissions and, where that is allowed, the owner; other names of the old file (hard links) keep the old content.
#[derive(Debug)]
pub struct WholeFile(Kind);

#[derive(Debug)]
enum Kind {
    Beside(Beside),
    Direct(File),
}

/// A file beside its place. Its fields are dropped in their order.
#[derive(Debug)]
struct Beside {
    file: NamedTempFile,
    place: PathBuf,
    listed: Listed,
}

/// An entry in the list of files that are not finished.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        unfinished().retain(|path| *path != self.0);
    }
}

/// Where a path leads.
enum Place {
    /// To a file, which may be there already.
    File(PathBuf, Option<Metadata>),
    /// To something else.
    Other(PathBuf),
}

impl WholeFile {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the path leads to no file that may be written, or into no folder that may.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        match place(path.as_ref())? {
            Place::Other(path) => {
                // An open file may have content, which stays.
                let is_file = fs::metadata(&path)?.is_file();
                Ok(Self(Kind::Direct(OpenOptions::new().write(true).append(is_file).open(path)?)))
            }
            Place::File(place, old) => Ok(Self(Kind::Beside(Beside::create(place, old.as_ref())?))),
        }
    }

    /// Checks that a file can be written to a path, without writing it. Returns the path that it would get, with links
    /// followed, or `None` where the path leads to something else than a file, of which nothing is known in advance.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`create`](Self::create).
    pub fn check(path: impl AsRef<Path>) -> io::Result<Option<PathBuf>> {
        match place(path.as_ref())? {
            Place::Other(_) => Ok(None),
            Place::File(place, old) => Beside::create(place, old.as_ref()).map(|beside| Some(beside.place.clone())),
        }
    }

    /// Puts the file into its place, once all of it is on the disk.
    ///
    /// # Errors
    ///
    /// Returns the system's error. What was at the path is there still.
    pub fn finish(self) -> io::Result<()> {
        let Beside { file, place, listed } = match self.0 {
            Kind::Direct(mut file) => return file.flush(),
            Kind::Beside(beside) => beside,
        };
        file.as_file().sync_all()?;
        let mut files = unfinished();
        let renamed = file.persist(place);
        files.retain(|path| *path != listed.0);
        drop(files);
        renamed.map(drop).map_err(|failed| failed.error)
    }
}

impl Beside {
    fn create(place: PathBuf, old: Option<&Metadata>) -> io::Result<Self> {
        if old.is_some() {
            // A file that may not be written is not replaced either.
            OpenOptions::new().write(true).open(&place)?;
        }
        let folder = place.parent().unwrap_or(Path::new("."));
        let mut files = unfinished();
        let file = builder(&mut Builder::new()).tempfile_in(folder)?;
        files.push(file.path().to_owned());
        drop(files);
        let listed = Listed(file.path().to_owned());
        if let Some(old) = old {
            own(file.as_file(), old);
            file.as_file().set_permissions(old.permissions())?;
        }
        Ok(Self { file, place, listed })
    }
}

/// Says how files are called while they are written, and with which permissions they begin: those of any new file.
fn builder<'a, 'b>(builder: &'a mut Builder<'b, 'b>) -> &'a mut Builder<'b, 'b> {
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.prefix(".millpond-").suffix(".part")
}

/// Gives a file to the owner of another, where this process may do that.
#[cfg(unix)]
fn own(file: &File, old: &Metadata) {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    if file.metadata().is_ok_and(|new| (new.uid(), new.gid()) != (old.uid(), old.gid())) {
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
}

#[cfg(not(unix))]
fn own(_: &File, _: &Metadata) {}

/// Follows the links at the end of a path. The folder has to be there, what is in it need not.
fn place(path: &Path) -> io::Result<Place> {
    let is_folder = || io::Error::from(ErrorKind::IsADirectory);
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(is_folder());
        }
        let name = path.file_name().ok_or_else(is_folder)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = fs::canonicalize(folder)?;
        let whole = folder.join(name);
        if folder.starts_with(OPEN_FILES) {
            return Ok(Place::Other(whole));
        }
        match fs::symlink_metadata(&whole) {
            Ok(found) if found.is_symlink() => path = folder.join(fs::read_link(&whole)?),
            Ok(found) if found.is_dir() => return Err(is_folder()),
            Ok(found) if found.is_file() => return Ok(Place::File(whole, Some(found))),
            Ok(_) => return Ok(Place::Other(whole)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::File(whole, None)),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("more than {LINKS_MAX} links lead to each other")))
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Beside(beside) => beside.file.write(bytes),
            Kind::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Beside(beside) => beside.file.flush(),
            Kind::Direct(file) => file.flush(),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use tempfile::TempDir;

    use super::*;

    fn folder() -> TempDir {
        tempfile::tempdir().expect("a folder")
    }

    fn names(folder: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort_unstable();
        names
    }

    fn write(path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = WholeFile::create(path)?;
        file.write_all(content)?;
        file.finish()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = folder();
        let path = folder.path().join("a");
        let mut file = WholeFile::create(&path).expect("a file");
        file.write_all(b"part").expect("room");
        assert!(!path.exists() && names(&folder).len() == 1);
        drop(file);
        assert_eq!(names(&folder), [""; 0]);
        write(&path, b"old").expect("a file");
        let mut file = WholeFile::create(&path).expect("a file");
        file.write_all(b"new").expect("room");
        assert_eq!(fs::read(&path).expect("the old file"), b"old");
        file.finish().expect("a file");
        assert_eq!((fs::read(&path).expect("the new file"), names(&folder)), (b"new".to_vec(), vec!["a".to_owned()]));
        // A check leaves what is there, and nothing else.
        assert_eq!(WholeFile::check(&path).expect("it can be written").as_deref(), Some(&*path));
        assert!(WholeFile::check(folder.path().join("none/a")).is_err());
        assert!(WholeFile::check(folder.path()).is_err());
        assert!(WholeFile::check(folder.path().join("new/")).is_err());
        assert_eq!((fs::read(&path).expect("a file"), names(&folder).len()), (b"new".to_vec(), 1));
        assert!(unfinished().iter().all(|path| !path.starts_with(folder.path())));
    }

    #[test]
    fn permissions_are_those_of_any_new_file_or_of_the_old_one() {
        let folder = folder();
        let (plain, whole) = (folder.path().join("plain"), folder.path().join("whole"));
        fs::write(&plain, "").expect("a file");
        write(&whole, b"1").expect("a file");
        assert_eq!(mode(&whole), mode(&plain));
        fs::set_permissions(&whole, fs::Permissions::from_mode(0o640)).expect("our file");
        write(&whole, b"2").expect("a file");
        assert_eq!((mode(&whole), fs::read(&whole).expect("a file")), (0o640, b"2".to_vec()));
    }

    #[test]
    fn links_stay_and_what_they_lead_to_is_replaced() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("a folder");
        symlink("sub/real", at("first")).expect("a link");
        symlink(at("first"), at("second")).expect("a link");
        for content in [b"one", b"two"] {
            write(&at("second"), content).expect("a file");
            assert_eq!(fs::read(at("sub/real")).expect("the file"), content);
        }
        assert!(at("second").is_symlink() && at("first").is_symlink());
        assert_eq!(WholeFile::check(at("second")).expect("a file"), WholeFile::check(at("sub/real")).expect("a file"));
        symlink("round", at("round")).expect("a link");
        let error = WholeFile::create(at("round")).expect_err("a ring").to_string();
        assert!(error.contains("links lead to each other"), "{error}");
    }

    #[test]
    fn what_is_no_file_is_written_directly() {
        write(Path::new("/dev/null"), b"gone").expect("the null device");
        assert_eq!(WholeFile::check("/dev/null").expect("the null device"), None);
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd as _;
            assert!(write(Path::new("/dev/full"), b"no room").is_err());
            let mut open = tempfile::tempfile().expect("a file");
            open.write_all(b"before ").expect("room");
            write(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd())), b"behind").expect("an open file");
            let mut content = String::new();
            io::Seek::rewind(&mut open).and_then(|()| io::Read::read_to_string(&mut open, &mut content)).expect("text");
            assert_eq!(content, "before behind");
        }
    }
}
