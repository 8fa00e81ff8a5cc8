//! The C programs of `tests/c`, compiled with the system's compiler under an address sanitizer, on the simulated device
//! and on the simulated driver of CUDA; and the example, linked both ways.

#![cfg(target_os = "linux")] // How libraries are linked and found is the system's own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use millpond_capi::api::ABI;

/// Returns the folder of this package.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns what Cargo has built beside this test.
fn built(file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test");
    let path = test.with_file_name(file);
    assert!(path.is_file(), "{} is missing: it is built with the tests", path.display());
    path
}

/// Returns a folder with the library under the name by which programs link it.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the programs");
        // The linker looks for the first, and a program that starts for the second.
        for name in ["libmillpond.so".to_owned(), format!("libmillpond.so.{ABI}")] {
            let link = folder.join(name);
            // A process of the same number may have left one.
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(built("libmillpond_capi.so"), link).expect("the shared library");
        }
        folder
    })
}

/// Runs a command to its end, and fails with what it printed unless it succeeds.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// Returns the compiler with the flags that every program is compiled with: all warnings are errors.
fn compiler(source: &Path) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here().join("include"));
    cc.arg(source);
    cc
}

/// Compiles a program against the shared library. Returns the path of the program.
fn compile(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = library().join(name);
    let mut cc = compiler(source);
    cc.args(flags).arg("-o").arg(&program).arg("-L").arg(library()).args(["-lmillpond", "-lpthread", "-ldl"]);
    run(cc.arg(format!("-Wl,-rpath,{}", library().display())));
    program
}

/// Compiles a program of `tests/c`, under the address sanitizer. Each test has a program of its own, because one that
/// runs cannot be written.
fn watched(name: &str, program: &str) -> PathBuf {
    let source = here().join("tests/c").join(format!("{name}.c"));
    compile(&source, program, sanitizers())
}

/// Returns the flags of the sanitizers, or none where the compiler has none.
fn sanitizers() -> &'static [&'static str] {
    const FLAGS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    static FOUND: OnceLock<bool> = OnceLock::new();
    let has = *FOUND.get_or_init(|| {
        let source = library().join("nothing.c");
        fs::write(&source, "int main(void) { return 0; }\n").expect("a file for the compiler");
        let mut cc = compiler(&source);
        let output = cc.args(FLAGS).arg("-o").arg(library().join("nothing")).output().expect("cc starts");
        output.status.success()
    });
    if has {
        return FLAGS;
    }
    eprintln!("SKIPPED: the compiler has no sanitizers, so the programs run without");
    &[]
}

/// Returns a run of a program in an environment that configures nothing and where no real driver is found.
fn on(program: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("CUDA_VISIBLE_DEVICES", "-1");
    command.env("ASAN_OPTIONS", "abort_on_error=0:detect_stack_use_after_return=1");
    for variable in millpond::ENVIRONMENT {
        command.env_remove(variable);
    }
    command
}

/// Runs a program on the simulated device.
fn on_sim(program: &Path) -> Command {
    on(program, &[OsStr::new("sim")])
}

/// Runs a program on the simulated driver of CUDA.
fn on_cuda(program: &Path) -> Command {
    let driver = built("libmillpond_cuda_driver.so");
    let mut command = on(program, &[OsStr::new("cuda:0"), driver.as_os_str()]);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    command
}

/// Runs a program of `tests/c` on both.
fn on_both(name: &str) {
    let program = watched(name, name);
    run(&mut on_sim(&program));
    run(&mut on_cuda(&program));
}

#[test]
fn basics() {
    on_both("basics");
}

#[test]
fn growth() {
    on_both("growth");
}

#[test]
fn aligned() {
    on_both("aligned");
}

#[test]
fn errors() {
    on_both("errors");
}

#[test]
fn groups() {
    on_both("groups");
}

#[test]
fn pools() {
    on_both("pools");
}

#[test]
fn destroy() {
    on_both("destroy");
}

#[test]
fn threads() {
    on_both("threads");
}

#[test]
fn shortage() {
    let program = watched("shortage", "shortage");
    for (mut command, device) in [(on_sim(&program), "sim"), (on_cuda(&program), "cuda")] {
        run(command.env("MILLPOND_TORCH_DEVICE", device));
    }
}

/// Children of a process, which cannot use what it has made. Leaks are not looked for: they copy what their parent has.
#[test]
fn fork() {
    let program = watched("fork", "fork");
    for (mut command, device) in [(on_sim(&program), "sim"), (on_cuda(&program), "cuda")] {
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        run(command.env("MILLPOND_TORCH_DEVICE", device));
    }
}

/// A process that has loaded the library twice.
#[test]
fn copies() {
    let copy = library().join("another-copy.so");
    fs::copy(built("libmillpond_capi.so"), &copy).expect("a copy of the library");
    let program = watched("copies", "copies");
    run(on_sim(&program).env("COPY", &copy));
    run(on_cuda(&program).env("COPY", &copy));
}

#[test]
fn torch() {
    let program = watched("torch", "torch");
    for (mut command, device) in [(on_sim(&program), "sim"), (on_cuda(&program), "cuda")] {
        command.env("MILLPOND_CONF", "policy:classic").env("MILLPOND_TORCH_DEVICE", device);
        let printed = String::from_utf8(run(&mut command).stderr).expect("UTF-8");
        let said: Vec<&str> = printed.lines().filter(|line| line.starts_with("millpond: ")).collect();
        let expected = [
            "0x2000 is not",
            "freed before",
            "freed before",
            "out of memory",
            "-1 bytes",
            "99 is no device",
            "out of memory",
            "the share 1.5",
            "-7 is no device",
        ];
        assert_eq!(said.len(), expected.len(), "{printed}");
        assert!(said.iter().zip(expected).all(|(line, part)| line.contains(part)), "{printed}");
    }
}

#[test]
fn the_table() {
    for name in ["core", "devices", "pages", "settings", "shared"] {
        let program = watched(name, name);
        for (mut command, device) in [(on_sim(&program), "sim"), (on_cuda(&program), "cuda")] {
            run(command.env("MILLPOND_TORCH_DEVICE", device));
        }
    }
}

#[test]
fn pages_of_two_processes() {
    let program = watched("share", "share");
    for mode in ["pages", "classic", "off", "sim"] {
        let (mut command, device) = if mode == "sim" { (on_sim(&program), "sim") } else { (on_cuda(&program), "cuda") };
        if mode == "off" {
            command.env("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0");
        }
        let output = run(command.env("MILLPOND_TORCH_DEVICE", device).env("MODE", mode));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn recordings() {
    let program = watched("record", "record");
    for (mut command, device) in [(on_sim(&program), "sim"), (on_cuda(&program), "cuda")] {
        run(command.env("MILLPOND_TORCH_DEVICE", device).env("FOLDER", env!("CARGO_TARGET_TMPDIR")));
    }
}

#[test]
fn torch_says_what_is_wrong_with_the_environment() {
    let program = watched("torch", "torch-environment");
    for (variable, value, word) in
        [("MILLPOND_CONF", "policy:best", "`best`"), ("MILLPOND_TORCH_DEVICE", "toaster", "`toaster`")]
    {
        let mut command = on_sim(&program);
        let output = command.env("MILLPOND_TORCH_DEVICE", "sim").env(variable, value).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(variable) && printed.contains(word), "{printed}");
    }
}

/// Without a driver the library loads, and a CUDA device is an error that says what is missing.
#[test]
fn no_driver_is_needed_until_a_gpu_is_asked_for() {
    let program = compile(&example(), "first-without-a-driver", &[]);
    let output = on(&program, &[OsStr::new("cuda:0")]).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && printed.contains("CUDA"), "{printed}");
}

/// A C compiler finds each type of the table as long as the library does.
#[test]
fn the_tables_types_have_the_headers_lengths() {
    use millpond_capi::shortage;
    use millpond_capi::table::{Core, types};
    let lengths = [
        ("block", size_of::<types::Block>()),
        ("pool", size_of::<types::Pool>()),
        ("place", size_of::<types::Place>()),
        ("stat", size_of::<types::Stat>()),
        ("stats", size_of::<types::Stats>()),
        ("limits", size_of::<types::Limits>()),
        ("oom", size_of::<types::Oom>()),
        ("segment", size_of::<types::Segment>()),
        ("tile", size_of::<types::Tile>()),
        ("sink", size_of::<types::Sink>()),
        ("event", size_of::<types::Event>()),
        ("host", size_of::<types::Host>()),
        ("source", size_of::<types::Source>()),
        ("delta", size_of::<types::Delta>()),
        ("page", size_of::<types::Page>()),
        ("pages", size_of::<types::Pages>()),
        ("dma_buf", size_of::<types::DmaBuf>()),
        ("v1", size_of::<Core>()),
    ];
    let lengths = lengths.map(|(name, bytes)| (format!("core_{name}"), bytes)).into_iter();
    let of_programs = [
        ("shortage".to_owned(), size_of::<shortage::CShortage>()),
        ("hook".to_owned(), size_of::<shortage::CHook>()),
        ("fit".to_owned(), size_of::<shortage::CFit>()),
    ];
    let assert = |(name, bytes)| format!("_Static_assert(sizeof(millpond_{name}) == {bytes}, \"{name}\");");
    let asserts: Vec<_> = lengths.chain(of_programs).map(assert).collect();
    let source = library().join("lengths.c");
    fs::write(&source, format!("#include \"millpond_core.h\"\n{}\n", asserts.join("\n"))).expect("a file");
    run(compiler(&source).arg("-fsyntax-only"));
}

fn example() -> PathBuf {
    here().join("../../examples/c/first.c")
}

/// The page shows what the example prints.
#[test]
fn the_example_prints_what_its_page_says() {
    let page = fs::read_to_string(here().join("../../docs/how-to/c.md")).expect("the page");
    let linked = compile(&example(), "first", &["-pedantic"]);
    let output = String::from_utf8(run(&mut on_sim(&linked)).stdout).expect("UTF-8");
    assert!(page.contains(&output), "docs/how-to/c.md does not show what the example prints:\n{output}");
    run(&mut on_cuda_preloaded(&linked));

    let program = library().join("first-static");
    let mut cc = compiler(&example());
    cc.arg(built("libmillpond_capi.a")).args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    run(&mut cc);
    assert_eq!(String::from_utf8(run(&mut on_sim(&program)).stdout).expect("UTF-8"), output);
}

/// An installed library is found by pkg-config, and by programs under the name that has the interface's number.
#[test]
fn the_library_is_installed_with_what_finds_it() {
    let root = here().join("../..");
    let (stage, prefix) = (library().join("stage"), "/opt/a pond");
    let mut script = Command::new("bash");
    let folder = built("libmillpond_capi.a").parent().expect("a folder").to_owned();
    run(script.arg(root.join("scripts/capi.sh")).arg(prefix).env("DESTDIR", &stage).env("BUILT", folder));
    let installed = stage.join(prefix.trim_start_matches('/'));
    let link = fs::read_link(installed.join("lib/libmillpond.so")).expect("a link");
    assert_eq!(link, Path::new(&format!("libmillpond.so.{ABI}")));

    let asked = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("millpond").env("PKG_CONFIG_PATH", installed.join("lib/pkgconfig"));
        command.output()
    };
    let Ok(flags) = asked(&["--variable=libdir"]) else {
        return eprintln!("SKIPPED: there is no pkg-config");
    };
    assert_eq!(String::from_utf8_lossy(&flags.stdout).trim(), format!("{prefix}/lib"));
    assert_eq!(String::from_utf8_lossy(&asked(&["--modversion"]).expect("it starts").stdout).trim(), version());
    // Moved to where it lies, as where a package is unpacked elsewhere.
    let program = library().join("first-installed");
    let moved = format!("--define-variable=prefix={}", installed.display());
    let flags = String::from_utf8(asked(&[&moved, "--cflags", "--libs"]).expect("it starts").stdout).expect("UTF-8");
    let mut cc = Command::new("cc");
    let flags = flags.replace("\\ ", "\0");
    cc.arg(example()).arg("-o").arg(&program).args(flags.split_whitespace().map(|flag| flag.replace('\0', " ")));
    run(cc.arg(format!("-Wl,-rpath,{}", installed.join("lib").display())));
    fs::remove_file(installed.join("lib/libmillpond.so")).expect("programs do without it");
    run(&mut on_sim(&program));
    fs::rename(installed.join("lib").join(link), installed.join("lib/libmillpond.so.0")).expect("another interface");
    let output = on_sim(&program).output().expect("the loader starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains(&format!("libmillpond.so.{ABI}")), "{printed}");
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Runs a program that knows nothing of the simulated driver on it.
fn on_cuda_preloaded(program: &Path) -> Command {
    let mut command = on(program, &[OsStr::new("cuda:0")]);
    command.env("LD_PRELOAD", built("libmillpond_cuda_driver.so")).env_remove("CUDA_VISIBLE_DEVICES");
    command
}

/// The headers are C99 and C++, for programs that are.
#[test]
fn the_header_is_for_other_languages_too() {
    for header in ["millpond.h", "millpond_core.h"] {
        compiles_as_other_languages(&here().join("include").join(header));
    }
}

fn compiles_as_other_languages(header: &Path) {
    for (language, standard) in [("c", "-std=c99"), ("c++", "-std=c++11")] {
        let mut cc = Command::new("cc");
        cc.args(["-x", language, standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).arg(header);
        let output = cc.output().expect("cc starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        // A compiler for C alone says that it does not know the other language.
        if language == "c++" && (printed.contains("not recognized") || printed.contains("cc1plus")) {
            eprintln!("SKIPPED: the compiler knows no C++");
            continue;
        }
        assert!(output.status.success(), "{language}: {printed}");
    }
}
