//! Lists of operations as files, for subjects in other processes.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::workload::{Op, Workload};

/// The first bytes of a file: the format and its version.
const MAGIC: &[u8; 8] = b"MPOPS-01";

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a folder among the system's temporary files. `name` has to be unique within the process.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("millpond-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure is ignored, as the system clears its temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lists of operations, one for each thread, in memory and as files.
#[derive(Clone, Debug)]
pub struct Task {
    /// The lists; the first alone where there is one thread.
    pub lists: Vec<Rc<Workload>>,
    /// The same lists as files.
    pub files: Vec<PathBuf>,
}

impl Task {
    /// Writes the lists into the folder, over files of that name.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    ///
    /// # Panics
    ///
    /// If there is no list.
    pub fn new(folder: &Path, name: &str, lists: Vec<Workload>) -> io::Result<Self> {
        assert!(!lists.is_empty(), "a task without operations");
        let files: Vec<_> = (0..lists.len()).map(|at| folder.join(format!("{name}-{at}.ops"))).collect();
        for (path, list) in files.iter().zip(&lists) {
            write_workload(path, list)?;
        }
        Ok(Self { lists: lists.into_iter().map(Rc::new).collect(), files })
    }

    /// Returns the only list of a task for one thread.
    pub fn list(&self) -> &Rc<Workload> {
        &self.lists[0]
    }

    /// Returns the number of operations in the timed list of the first thread.
    pub fn ops(&self) -> usize {
        self.list().timed.len()
    }

    /// Returns the number of blocks that one pass from an empty state allocates on the first thread.
    pub fn blocks(&self) -> u64 {
        let list = self.list();
        list.prepare.iter().chain(&list.timed).filter(|op| matches!(op, Op::Allocate { .. })).count() as u64
    }
}

/// Writes a workload as `benches/gpu/workload.hpp` reads it: 8 bytes that name the format; the numbers of slots,
/// streams and operations of the three lists, and one that is 0, with 4 bytes each; then the operations: 8 bytes of
/// size, 0 for a free, 4 of slot, 4 of stream. Everything in the machine's own order of bytes.
///
/// # Errors
///
/// Returns the error of the system.
///
/// # Panics
///
/// If an allocation has 0 bytes, or a list has 2^32 operations.
pub fn write_workload(path: &Path, workload: &Workload) -> io::Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    let lists = [&workload.prepare, &workload.timed, &workload.finish];
    out.write_all(MAGIC)?;
    let numbers = [workload.slots, usize::from(workload.streams), lists[0].len(), lists[1].len(), lists[2].len(), 0];
    for number in numbers {
        let number = u32::try_from(number).unwrap_or_else(|_| panic!("{number} is too large for the file"));
        out.write_all(&number.to_ne_bytes())?;
    }
    for op in lists.into_iter().flatten() {
        let (bytes, slot, stream) = match *op {
            Op::Allocate { bytes: 0, slot, .. } => panic!("nothing is asked for in slot {slot}"),
            Op::Allocate { stream, slot, bytes } => (bytes, slot, u32::from(stream)),
            Op::Free { slot } => (0, slot, 0),
        };
        out.write_all(&bytes.to_ne_bytes())?;
        out.write_all(&slot.to_ne_bytes())?;
        out.write_all(&stream.to_ne_bytes())?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::{Scratch, Task};
    use crate::workload::{Op, Workload};

    fn workload() -> Workload {
        let allocate = |slot, stream, bytes| Op::Allocate { stream, slot, bytes };
        Workload {
            prepare: vec![allocate(0, 0, 1 << 40)],
            timed: vec![allocate(1, 2, 7), Op::Free { slot: 0 }, Op::Free { slot: 1 }],
            finish: vec![allocate(0, 1, 9)],
            slots: 2,
            streams: 3,
        }
    }

    #[test]
    fn the_file_has_a_head_and_the_three_lists() {
        let scratch = Scratch::new("file-test").expect("the temporary folder can be written");
        let task = Task::new(scratch.path(), "list", vec![workload(), workload()]).expect("it can be written");
        assert_eq!((task.ops(), task.blocks(), task.files.len()), (3, 2, 2));
        let data = std::fs::read(&task.files[1]).expect("it was written");
        let mut expected = b"MPOPS-01".to_vec();
        expected.extend([2_u32, 3, 1, 3, 1, 0].iter().flat_map(|number| number.to_ne_bytes()));
        for (bytes, slot, stream) in [(1_u64 << 40, 0_u32, 0_u32), (7, 1, 2), (0, 0, 0), (0, 1, 0), (9, 0, 1)] {
            expected.extend(bytes.to_ne_bytes());
            expected.extend(slot.to_ne_bytes());
            expected.extend(stream.to_ne_bytes());
        }
        assert_eq!(data, expected);
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
