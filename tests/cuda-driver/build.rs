//! Gives the library the driver's name inside, and only there: a file of that name beside the build's outputs would
//! take the place of the real driver on machines that have one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    }
}
