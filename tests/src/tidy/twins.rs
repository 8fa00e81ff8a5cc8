//! The device that is chosen at run time has what the devices have that are chosen at build time.
//!
//! `millpond-any` has the types of `millpond` on its own device, so their methods are the same by construction. What
//! can still be missing is an alias of a type, a method of the contract that would silently get its default, a method
//! that the handles of all backends have, and the way of an error into `AnyError`.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::purity::without_tests;
use crate::lexer::{closing_brace, line_of, words};
use crate::workspace::TextFile;

const CONTRACT: &str = "crates/backend/src/";
/// The sources of the types that both sides have.
const TYPED: &str = "crates/millpond/src/";
/// The sources of the device that is chosen at run time.
const ANY: &str = "crates/any/src/";
/// All backends around another one, which must pass every call on.
const AROUND: [&str; 2] = [ANY, "crates/capi/src/table/told.rs"];

/// The types of `millpond-any` around a type of each backend, and the names of these.
const HANDLES: [(&str, [(&str, &str); 4]); 3] = [
    ("AnyDevice", [("sim", "Sim"), ("cuda", "CudaWith"), ("vulkan", "Vulkan"), ("wgpu", "Wgpu")]),
    ("AnySegment", [("sim", "Segment"), ("cuda", "Segment"), ("vulkan", "Segment"), ("wgpu", "Segment")]),
    ("AnyPage", [("sim", "Page"), ("cuda", "Page"), ("vulkan", "Page"), ("wgpu", "Page")]),
];

/// What is on one side only, and why.
const APART: [(&str, &str); 7] = [
    ("AnyDevice::builder", "each backend has options of its own, which follow the name of the device"),
    ("AnyDevice::held_bytes", "counts for tests: real devices have it under the feature `testing` alone"),
    ("Error", "generic: `AnyError::Allocator` has it"),
    ("PauseError", "`Error::NotPaused` has it"),
    ("ResumeError", "`Error::NotResumed` has it"),
    ("Told::open_tick", "its file says why: `growth:balanced` is to spend little there"),
    ("Told::work_clock", "its file says why: `growth:balanced` is to spend little there"),
];

/// A file's path and its code without tests.
type Source<'f> = (&'f str, String);

/// An `impl` or a `trait`: what stands before its brace, and its functions.
struct Block {
    at: usize,
    head: String,
    functions: BTreeSet<String>,
    public: BTreeSet<String>,
}

/// Checks that the device that is chosen at run time lacks nothing that all others have, and that the list of what is
/// apart has no entry without need.
pub fn twins_have_the_same(files: &[TextFile]) -> Vec<Finding> {
    let of = |prefix: &str| -> Vec<Source<'_>> {
        let own = files.iter().filter(|file| file.is_rust() && file.path.starts_with(prefix));
        own.map(|file| (file.path.as_str(), without_tests(&file.code))).collect()
    };
    let (typed, any) = (of(TYPED), of(ANY));
    let mut lacking = types_without_alias(&typed, &any);
    lacking.extend(errors_without_way(&typed, &any));
    lacking.extend(methods_lacking(&of, &any));
    lacking.extend(calls_not_passed_on(&of(CONTRACT), &AROUND.map(&of)));
    let (mut findings, mut apart) = (Vec::new(), BTreeSet::new());
    for (name, finding) in lacking {
        match APART.iter().find(|(listed, _)| *listed == name) {
            Some((listed, _)) => drop(apart.insert(*listed)),
            None => findings.push(finding),
        }
    }
    let unused = APART.iter().filter(|(name, _)| !apart.contains(name));
    findings.extend(unused.map(|(name, _)| {
        Finding::new("tests/src/tidy/twins.rs", 0, format!("{name} is listed as apart, and lacks nothing: take it off"))
    }));
    findings
}

/// Returns the public types on a backend that have no alias on the device that is chosen at run time. An alias has
/// every method of the type; a wrapper would have to repeat them.
fn types_without_alias(typed: &[Source<'_>], any: &[Source<'_>]) -> Vec<(String, Finding)> {
    let any: Vec<String> = any.iter().map(|(_, code)| code.split_whitespace().collect()).collect();
    let aliases: BTreeMap<&str, &str> = any
        .iter()
        .flat_map(|code| code.split("pubtype").skip(1))
        .filter_map(|alias| alias.split(';').next()?.split_once('='))
        .map(|(name, to)| (name.split('<').next().unwrap_or(name), to))
        .collect();
    let mut lacking = Vec::new();
    for (path, code) in typed {
        for (at, name, generics) in public_types(code) {
            let mut parameters = generics.split(',').map(|it| it.split(':').next().unwrap_or(it).trim());
            let is_aliased = aliases.get(format!("Any{name}").as_str()).is_some_and(|to| {
                to.starts_with("millpond::") && to.contains(&format!("::{name}<")) && to.contains("AnyDevice>")
            });
            if parameters.any(|parameter| parameter == "B") && !is_aliased {
                let what = format!("millpond-any has no `Any{name}`: add an alias of `{name}` on an `AnyDevice`");
                lacking.push((name.to_owned(), Finding::new(path, line_of(code, at), what)));
            }
        }
    }
    lacking
}

/// Returns the public errors that `?` does not turn into an `AnyError`.
fn errors_without_way(typed: &[Source<'_>], any: &[Source<'_>]) -> Vec<(String, Finding)> {
    let any: String = any.iter().flat_map(|(_, code)| code.split_whitespace()).collect();
    let mut lacking = Vec::new();
    for (path, code) in typed {
        for (at, name, _) in public_types(code).into_iter().filter(|(_, name, _)| name.ends_with("Error")) {
            if !any.contains(&format!("#[from]{name})")) && !any.contains(&format!("From<{name}>forAnyError")) {
                let what = format!("`?` does not turn `{name}` into an `AnyError`: add a conversion");
                lacking.push((name.to_owned(), Finding::new(path, line_of(code, at), what)));
            }
        }
    }
    lacking
}

/// Returns the public methods that a kind of handle has on every backend, and its twin lacks.
fn methods_lacking<'f>(of: &dyn Fn(&str) -> Vec<Source<'f>>, any: &[Source<'_>]) -> Vec<(String, Finding)> {
    let methods = |sources: &[Source<'_>], of_type: &str| -> BTreeSet<String> {
        let blocks = sources.iter().flat_map(|(_, code)| blocks(code, "impl"));
        let own =
            blocks.filter(|block| !names_a_trait(&block.head) && last_name(without_generics(&block.head)) == of_type);
        own.flat_map(|block| block.public).collect()
    };
    let mut lacking = Vec::new();
    for (twin, typed) in HANDLES {
        let each = typed.map(|(backend, name)| methods(&of(&format!("backends/{backend}/src/")), name));
        let own = methods(any, twin);
        let on_all = each[0].iter().filter(|method| each.iter().all(|methods| methods.contains(*method)));
        for method in on_all.filter(|method| !own.contains(*method)) {
            let what = format!("`{twin}` has no `{method}`, which it has on every backend: add it");
            lacking.push((format!("{twin}::{method}"), Finding::new(ANY, 0, what)));
        }
    }
    lacking
}

/// Returns the methods of the contract that a backend around another one leaves to their defaults, and the traits of
/// the contract that the first of these backends lacks.
fn calls_not_passed_on(contract: &[Source<'_>], around: &[Vec<Source<'_>>; 2]) -> Vec<(String, Finding)> {
    let traits = contract.iter().flat_map(|(_, code)| blocks(code, "trait"));
    let traits: BTreeMap<String, BTreeSet<String>> =
        traits.map(|block| (words(&block.head).next().map_or("", |word| word.1).to_owned(), block.functions)).collect();
    let (mut lacking, mut carried_out) = (Vec::new(), BTreeSet::new());
    for (nth, sources) in around.iter().enumerate() {
        for (path, code) in sources {
            for block in blocks(code, "impl").into_iter().filter(|block| names_a_trait(&block.head)) {
                let Some((name, of)) = without_generics(&block.head).split_once(" for ") else { continue };
                let (name, of) = (last_name(name), last_name(of));
                let Some(wanted) = traits.get(name) else { continue };
                for method in wanted.difference(&block.functions) {
                    let what = format!("`{of}` does not pass `{name}::{method}` on, and gets the default: write it");
                    lacking.push((format!("{of}::{method}"), Finding::new(path, line_of(code, block.at), what)));
                }
                if nth == 0 {
                    carried_out.insert(name.to_owned());
                }
            }
        }
    }
    let left = traits.keys().filter(|name| !carried_out.contains(*name));
    lacking.extend(left.map(|name| {
        let what = format!("nothing implements `{name}` of the contract: pass it on");
        (name.clone(), Finding::new(ANY, 0, what))
    }));
    lacking
}

/// Returns the public structs, enums and aliases of code: where, the name, and the generic parameters as text.
fn public_types(code: &str) -> Vec<(usize, &str, &str)> {
    let all: Vec<(usize, &str)> = words(code).collect();
    let declared = all.windows(3).filter(|three| {
        let between = code[three[0].0 + three[0].1.len()..three[1].0].trim();
        three[0].1 == "pub" && between.is_empty() && ["struct", "enum", "type"].contains(&three[1].1)
    });
    let found = declared.map(|three| {
        let (at, name) = three[2];
        let behind = &code[at + name.len()..];
        let generics = behind.strip_prefix('<').and_then(|rest| rest.split('>').next()).unwrap_or("");
        (at, name, generics)
    });
    found.collect()
}

/// Returns the items of code that begin with a word, `impl` or `trait`, and have braces.
fn blocks(code: &str, lead: &str) -> Vec<Block> {
    let (mut found, mut behind) = (Vec::new(), 0);
    for (at, word) in words(code) {
        // What stands inside an item is no item: `impl Trait` among its types.
        if word != lead || at < behind {
            continue;
        }
        let begin = at + lead.len();
        let Some(open) = code[begin..].find(['{', ';']).map(|open| begin + open) else { break };
        if code.as_bytes()[open] == b';' {
            continue;
        }
        behind = closing_brace(code, open);
        let (functions, public) = functions(&code[open + 1..behind.saturating_sub(1)]);
        found.push(Block { at, head: code[begin..open].trim().to_owned(), functions, public });
    }
    found
}

/// Returns the names of the functions of a block, without those inside their bodies, and of these the public ones.
fn functions(body: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut all, mut public, mut behind, mut is_public) = (BTreeSet::new(), BTreeSet::new(), 0, false);
    let words: Vec<(usize, &str)> = words(body).collect();
    for two in words.windows(2) {
        let ((at, word), (name_at, name)) = (two[0], two[1]);
        if at < behind {
            continue;
        }
        match word {
            "pub" => is_public = !body[at + word.len()..].starts_with('('),
            "fn" => {
                let end = body[name_at..].find(['{', ';']).map_or(body.len(), |end| name_at + end);
                behind = if body[end..].starts_with('{') { closing_brace(body, end) } else { end };
                all.insert(name.to_owned());
                if is_public {
                    public.insert(name.to_owned());
                }
                is_public = false;
            }
            _ => {}
        }
    }
    (all, public)
}

/// Returns the head of an `impl` without its own parameters.
fn without_generics(head: &str) -> &str {
    let Some(inside) = head.strip_prefix('<') else { return head };
    let mut depth = 1;
    for (at, mark) in inside.char_indices() {
        match mark {
            '<' => depth += 1,
            '>' if depth == 1 => return inside[at + 1..].trim_start(),
            '>' => depth -= 1,
            _ => {}
        }
    }
    head
}

fn names_a_trait(head: &str) -> bool {
    without_generics(head).contains(" for ")
}

/// Returns the last name of the path with which a text begins.
fn last_name(text: &str) -> &str {
    let path = text.trim().split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().unwrap_or(text);
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files in which nothing is missing but what is apart.
    fn sound() -> Vec<(&'static str, String)> {
        let handle = |kind: &str| {
            format!(
                "impl {kind} {{ pub fn builder() {{}} pub fn held_bytes(&self) {{}} pub fn only_here(&self) {{}} }}"
            )
        };
        let both =
            |own: &str| format!("{own}\nimpl<T> Segment {{ pub fn bytes(&self) -> u64 {{ 1 }} fn own(&self) {{}} }}");
        let contract = "pub unsafe trait Backend: Sized { type Page; fn open_tick(&self) {}\n fn work_clock(&self); }
            pub trait Budget { fn budget(&self) -> impl Sized { fn inner() {} } }";
        let any = "pub type AnyPool = millpond::Pool<AnyDevice>;
            pub type AnyDownload<T> = millpond::later::Download<T, AnyDevice>;
            enum AnyError { A(#[from] BuildError) } impl From<ConfError> for AnyError {}
            unsafe impl Backend for AnyDevice { fn open_tick(&self) {}\n fn work_clock(&self) {} }
            impl<T: Into<U>> millpond_backend::Budget for AnyDevice { fn budget(&self) {} }
            impl AnySegment { pub fn bytes(&self) -> u64 { 1 } }";
        let typed = "pub struct Pool<B: Backend> {}\npub struct Download<T, B: Backend> {}\npub(crate) struct Own<B> {}
            pub struct Plain<E: Into<B>> {}\npub enum Error<E> {}\npub enum PauseError {}\npub struct ResumeError;
            pub struct BuildError;\npub struct ConfError;\n#[cfg(test)]\nmod tests { pub struct Toy<B>; }";
        vec![
            ("crates/backend/src/a.rs", contract.to_owned()),
            ("crates/millpond/src/a.rs", typed.to_owned()),
            ("crates/any/src/a.rs", any.to_owned()),
            ("crates/capi/src/table/told.rs", "impl<D> Backend for Told<D> {}".to_owned()),
            ("backends/sim/src/a.rs", both(&handle("Sim"))),
            ("backends/cuda/src/a.rs", both(&handle("<G: Gear> CudaWith<G>").replace("only_here", "only_there"))),
            ("backends/vulkan/src/a.rs", both(&handle("Vulkan"))),
            ("backends/wgpu/src/a.rs", both(&handle("Wgpu"))),
        ]
    }

    fn found(from: &str, to: &str) -> Vec<String> {
        let change = |(path, text): (&str, String)| TextFile::new(path, &text.replace(from, to));
        let files: Vec<TextFile> = sound().into_iter().map(change).collect();
        twins_have_the_same(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn whatever_is_missing_is_found() {
        assert_eq!(found("", ""), [""; 0]);
        let no_pool = "millpond-any has no `AnyPool`: add an alias of `Pool` on an `AnyDevice`";
        assert_eq!(found("pub type AnyPool = millpond::Pool<AnyDevice>;", ""), [no_pool]);
        assert_eq!(found("pub type AnyPool = millpond::Pool<AnyDevice>;", "pub struct AnyPool;"), [no_pool]);
        assert_eq!(found("millpond::Pool<AnyDevice>", "millpond::Pool<Sim>"), [no_pool]);
        let no_way = |name| format!("`?` does not turn `{name}` into an `AnyError`: add a conversion");
        assert_eq!(found("impl From<ConfError> for AnyError {}", ""), [no_way("ConfError")]);
        assert_eq!(found("#[from] ", ""), [no_way("BuildError")]);
        let no_call = "`AnyDevice` does not pass `Budget::budget` on, and gets the default: write it";
        assert_eq!(found("for AnyDevice { fn budget(&self) {} }", "for AnyDevice {}"), [no_call]);
        let nothing = "nothing implements `Budget` of the contract: pass it on";
        assert_eq!(found("impl<T: Into<U>> millpond_backend::Budget for AnyDevice", "impl AnyDevice"), [nothing]);
        let no_method = "`AnySegment` has no `bytes`, which it has on every backend: add it";
        assert_eq!(found("impl AnySegment { pub fn bytes", "impl AnySegment { pub(crate) fn bytes"), [no_method]);
    }

    #[test]
    fn what_is_apart_lacks_something() {
        let has = "impl<D> Backend for Told<D> { fn open_tick(&self) {} }";
        let what = "Told::open_tick is listed as apart, and lacks nothing: take it off";
        assert_eq!(found("impl<D> Backend for Told<D> {}", has), [what]);
    }
}
