//! Gives the shared library the name that programs look it up by: the one under which it is installed, with the number
//! of the interface, so that a program never starts with a library that it was not compiled for.

use std::fs;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=include/millpond.h");
    let header = fs::read_to_string("include/millpond.h").expect("the header is part of the package");
    let abi = header.lines().find_map(|line| line.strip_prefix("#define MILLPOND_ABI "));
    let abi = abi.expect("the header defines MILLPOND_ABI");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillpond.so.{abi}");
    }
}
