//! What the command names of the backends: each is a file of its own and a line of one table, and nothing else.

use super::Finding;
use super::purity::without_tests;
use crate::lexer::words;
use crate::workspace::TextFile;

/// The sources of the command, and the folder in which each backend has its file or folder.
const COMMAND: &str = "crates/cli/src/";
const DEVICES: &str = "crates/cli/src/devices/";

/// Checks that the command names a backend in code only in the backend's own file in `devices`, in its line of the
/// table and where its file is declared. Unit tests and the prose of help texts may name any.
pub fn backends_in_one_table(files: &[TextFile]) -> Vec<Finding> {
    let manifests = files.iter().filter_map(|file| file.path.strip_prefix("backends/")?.strip_suffix("/Cargo.toml"));
    let backends: Vec<&str> = manifests.collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with(COMMAND)) {
        let own = file.path.strip_prefix(DEVICES).map_or("", |path| path.split(['/', '.']).next().unwrap_or(path));
        let (code, literals) = (without_tests(&file.code), without_tests(&file.uncommented));
        for (at, (code, line)) in code.lines().zip(literals.lines()).enumerate() {
            for &backend in backends.iter().filter(|&&backend| backend != own) {
                if names(code, line, backend) && !is_its_line(&file.path, line.trim(), backend) {
                    let what = format!("{backend} is named outside its own file: let its line of the table say it");
                    findings.push(Finding::new(&file.path, at + 1, what));
                }
            }
        }
    }
    findings
}

/// Returns whether a line names a backend in a part of an identifier, or in a literal that starts as `--device` does.
fn names(code: &str, line: &str, backend: &str) -> bool {
    let is_part = |word: &str| {
        let mut snake = String::new();
        word.chars().for_each(|c| snake.extend((c.is_uppercase().then_some('_')).into_iter().chain(c.to_lowercase())));
        snake.split('_').any(|part| part == backend)
    };
    let is_literal = ['"', ':'].into_iter().any(|end| line.contains(&format!("\"{backend}{end}")));
    is_literal || words(code).any(|(_, word)| is_part(word))
}

/// Returns whether the line is the backend's in the table, or declares its file.
fn is_its_line(path: &str, line: &str, backend: &str) -> bool {
    let feature = format!("#[cfg(feature = \"{backend}\")]");
    let rest = line.strip_prefix(&feature).unwrap_or(line).trim_start();
    match path.strip_prefix(DEVICES) {
        Some("table.rs") => rest.starts_with(&format!("\"{backend}\": ")),
        Some("mod.rs") => line == feature || line == format!("mod {backend};"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let manifests = ["cuda", "sim", "wgpu", "vulkan"].map(|name| format!("backends/{name}/Cargo.toml"));
        let mut files: Vec<TextFile> = manifests.iter().map(|path| TextFile::new(path, "")).collect();
        files.push(TextFile::new(path, text));
        backends_in_one_table(&files).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn its_own_file_its_line_of_the_table_and_its_declaration_may_name_a_backend() {
        let own = "use millpond_cuda::Cuda;\nfn a() { find(\"cuda\"); }\n";
        assert_eq!(found("crates/cli/src/devices/cuda.rs", own), [0_usize; 0]);
        let table = "    #[cfg(feature = \"cuda\")] \"cuda\": Cuda(super::cuda::CudaOptions),\n    \"sim\": Sim(S),\n";
        assert_eq!(found("crates/cli/src/devices/table.rs", table), [0_usize; 0]);
        let declared = "#[cfg(feature = \"cuda\")]\nmod cuda;\nmod sim;\n";
        assert_eq!(found("crates/cli/src/devices/mod.rs", declared), [0_usize; 0]);
        let prose = "// Not cuda.\nconst HELP: &str = \"--device cuda:0, or sim\";\nfn similar() {}\n\
                     #[cfg(test)]\nmod tests { use millpond_sim::Sim; const A: &str = \"sim\"; }\n";
        assert_eq!(found("crates/cli/src/commands/replay/args.rs", prose), [0_usize; 0]);
    }

    #[test]
    fn a_backend_that_is_named_elsewhere_is_found() {
        let cases = [
            "match name { \"cuda\" => 1, _ => 0 }",
            "if text.starts_with(\"cuda:\") {}",
            "Target::Cuda(_) => {}",
            "use millpond_cuda::Alloc;",
            "#[cfg(feature = \"cuda\")]",
            "fn open_cuda() {}",
            "struct CudaRow;",
        ];
        for text in cases {
            for file in ["commands/replay/mod.rs", "devices/table.rs", "devices/sim.rs", "quantity.rs"] {
                assert_eq!(found(&format!("crates/cli/src/{file}"), &format!("\n{text}\n")), [2], "{file}: {text}");
            }
        }
        assert_eq!(found("crates/cli/src/devices/mod.rs", "mod cuda;\nuse cuda::CudaOptions;\n"), [2]);
        assert_eq!(found("crates/cli/src/devices/wgpu.rs", "vulkan::has_gpu();\nwgpu::has_gpu();\n"), [1]);
    }
}
