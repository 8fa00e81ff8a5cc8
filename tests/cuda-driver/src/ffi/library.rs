//! Loads the built library under the driver's name.

use std::mem;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::install::Absent;
use crate::table::{ENTRY, Table, VERSION};

/// The name inside the library, which is the first that the bindings ask for. The loader resolves it to the loaded
/// library that has it.
const DRIVER: &str = "libcuda.so";

/// Loads the library for good, and checks that a request for the driver now returns it.
pub(crate) fn load(path: &Path) -> Result<&'static Table, Absent> {
    let unloadable = |error: libloading::Error| Absent::Unloadable { path: path.to_owned(), reason: error.to_string() };
    // SAFETY: the library is this package's: loading it runs no code of its own.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(unloadable)?;
    let table = table(&library).ok_or_else(|| Absent::Stale { path: path.to_owned() })?;
    // SAFETY: this returns either the library above or another driver, of which only the initialisation runs when it is
    // loaded.
    let driver = unsafe { Library::open(Some(DRIVER), RTLD_NOW) }.map_err(unloadable)?;
    let same = self::table(&driver).is_some_and(|found| std::ptr::eq(found, table));
    // The table lies in the library, so neither handle may unload it.
    mem::forget(library);
    mem::forget(driver);
    if same { Ok(table) } else { Err(Absent::TooLate) }
}

fn table(library: &Library) -> Option<&'static Table> {
    // SAFETY: a library that exports this name is a build of this package, where the function has this type.
    let entry: Symbol<extern "C" fn() -> &'static Table> = unsafe { library.get(ENTRY) }.ok()?;
    let table = entry();
    (table.version == VERSION).then_some(table)
}
