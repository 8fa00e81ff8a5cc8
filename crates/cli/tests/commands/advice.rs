//! Advice where memory is refused, taken as it is printed: what it says to do works.

use crate::common::{Folder, corpus, run};

fn trace(name: &str) -> String {
    corpus(&format!("traces/{name}.trace.gz"))
}

/// What a replay advises of a program: limits with the policy that each is for, and policies that fit.
#[derive(Debug)]
struct Advice {
    limits: Vec<(String, String)>,
    policies: Vec<String>,
}

impl Advice {
    /// Reads what standard error says.
    fn of(stderr: &str) -> Self {
        let limit = |line: &str| {
            let (before, after) = line.split_once(": fits with --limit ")?;
            let policy = before.rsplit(' ').next()?;
            Some((policy.to_owned(), after.split(',').next()?.to_owned()))
        };
        let policy = |line: &str| {
            let (policy, what) = line.trim_start().split_once("  ")?;
            (line.starts_with("  ") && what.trim_start().starts_with("fits, and reserves")).then(|| policy.to_owned())
        };
        Self {
            limits: stderr.lines().filter_map(limit).collect(),
            policies: stderr.lines().filter_map(policy).collect(),
        }
    }
}

/// Replays a recording within as much as is live, takes the advice that is printed, and checks that it works.
fn follow(name: &str, more: &[&str]) {
    let file = trace(name);
    let base = [&["replay", "--device", "sim", "--passes", "0", &file], more].concat();
    let ran = run(&[&base[..], &["--policy", "classic,paged", "--limit", "1.0x"]].concat());
    assert_eq!(ran.code, Some(4), "{name} {more:?} is to be refused something: {}", ran.stderr);
    assert!(!ran.stderr.contains("What to do") && !ran.stderr.contains("raise the limit"), "{}", ran.stderr);
    let advice = Advice::of(&ran.stderr);
    assert!(!advice.limits.is_empty(), "{name} {more:?}: {}", ran.stderr);
    for (policy, limit) in &advice.limits {
        let followed = run(&[&base[..], &["--policy", policy, "--limit", limit]].concat());
        assert_eq!(followed.code, Some(0), "{name} {more:?}, --policy {policy} --limit {limit}: {advice:?}");
    }
    for policy in &advice.policies {
        let followed = run(&[&base[..], &["--policy", policy, "--limit", "1.0x"]].concat());
        assert_eq!(followed.code, Some(0), "{name} {more:?}, --policy {policy}: {advice:?}");
    }
}

/// The device is always done.
#[test]
fn what_is_advised_where_memory_is_refused_works() {
    ["gnn", "prefetch", "llm_generate", "serving_kv"].iter().for_each(|name| follow(name, &[]));
}

/// Work is under way.
#[test]
fn what_is_advised_with_work_in_flight_works() {
    ["gnn", "prefetch", "serving_kv"].iter().for_each(|name| follow(name, &["--in-flight", "200"]));
}

/// The page says no more than the notes: its message has no advice of its own.
#[test]
fn a_report_advises_what_a_replay_has_shown() {
    let folder = Folder::new("advice");
    let (page, file) = (folder.path("page.html"), trace("gnn"));
    let told = run(&["report", "--passes", "0", "--limit", "1.0x", "--policy", "classic", &file, "-o", &page]);
    told.fails(4, &["gnn under classic: fits with --limit "]);
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(!text.contains("What to do:") && !text.contains("raise the limit by"), "the page advises by itself");
    let (policy, limit) = &Advice::of(&told.stderr).limits[0];
    let limited = ["--passes", "0", "--policy", policy, "--limit", limit, &file];
    assert_eq!(run(&[&["report", "-o", &page], &limited[..]].concat()).code, Some(0));
}

/// Where a device is too small, no limit helps, and none is advised.
#[test]
fn no_limit_is_advised_beyond_the_device() {
    let ran = run(&["replay", "--device", "sim:bytes=2GiB", "--passes", "0", "--limit", "1GiB", &trace("prefetch")]);
    ran.fails(4, &["No policy fits in 1024.00 MiB"]);
    assert!(!ran.stderr.contains("--limit "), "{}", ran.stderr);
    let tuned = run(&["tune", "--budget", "5", "--device", "sim:bytes=2GiB", &trace("prefetch")]);
    tuned.fails(4, &["nothing fits", "must be live at once"]);
    assert!(!tuned.stderr.contains("--device"), "{}", tuned.stderr);
}

/// Threads come together in another order in each replay, and a time has as many passes as the host gets done: what
/// fitted once says nothing of the next time.
#[test]
fn nothing_is_advised_where_replays_differ() {
    let file = trace("serving_kv");
    let base = ["replay", "--device", "sim", "--policy", "classic", "--limit", "1.0x", &file];
    for more in [&["--threads", "2", "--passes", "0"][..], &["--for", "100ms"]] {
        let ran = run(&[&base[..], more].concat());
        assert_eq!(ran.code, Some(4), "{more:?}: {}", ran.stderr);
        let advice = Advice::of(&ran.stderr);
        assert!(advice.limits.is_empty() && advice.policies.is_empty(), "{more:?}: {}", ran.stderr);
    }
}
