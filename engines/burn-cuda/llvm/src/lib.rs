//! What the build script of cubecl-llvm asks for, without LLVM: headers that its C++ files compile with, and a library
//! whose functions end the process.
//!
//! It compiles no kernels: they are CUDA C++, which NVRTC compiles at run time.

/// Where LLVM is, and how to compile against it.
pub mod config {
    use std::ffi::OsString;
    use std::io::Result;
    use std::path::PathBuf;

    /// Returns this folder.
    ///
    /// # Errors
    ///
    /// None.
    pub fn llvm_path() -> Result<PathBuf> {
        Ok(PathBuf::from(env!("CARGO_MANIFEST_DIR")))
    }

    /// Returns what finds the headers.
    ///
    /// # Errors
    ///
    /// None.
    pub fn get_cxxflags_args(_: Option<&OsString>) -> Result<Vec<OsString>> {
        Ok(vec!["-std=c++17".into(), concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include").into()])
    }
}

/// Linking.
pub mod llvm_sys {
    use std::collections::BTreeSet;
    use std::io::{Error, ErrorKind, Result};
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    /// Has the build script's package linked with a function of each name that llvm-sys declares. All of them abort.
    ///
    /// # Errors
    ///
    /// If the sources of llvm-sys are not next to those of the package.
    pub fn link() -> Result<()> {
        let folder = |name| env::var_os(name).map(PathBuf::from).ok_or(ErrorKind::NotFound);
        let registry = folder("CARGO_MANIFEST_DIR")?.join("..");
        let sources = fs::read_dir(registry)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm-sys")));
        let sources = sources.ok_or_else(|| Error::new(ErrorKind::NotFound, "llvm-sys is not next to cubecl-llvm"))?;
        let mut names = BTreeSet::new();
        collect(&sources.join("src"), &mut names)?;
        let functions: String = names.iter().map(|name| format!("void {name}(void) {{ abort(); }}\n")).collect();
        let file = folder("OUT_DIR")?.join("no_llvm.c");
        fs::write(&file, format!("#include <stdlib.h>\n{functions}"))?;
        cc::Build::new().file(&file).compile("no_llvm");
        Ok(())
    }

    /// Adds the names of the functions that a folder's files declare.
    fn collect(folder: &Path, names: &mut BTreeSet<String>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                collect(&path, names)?;
                continue;
            }
            for declared in fs::read_to_string(&path)?.split("fn LLVM").skip(1) {
                let end = declared.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                names.insert(format!("LLVM{}", &declared[..end.unwrap_or(declared.len())]));
            }
        }
        Ok(())
    }
}
