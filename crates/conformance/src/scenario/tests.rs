use super::{Action, CORPUS, Expect, POLICIES, Refusal, Relation, Requirement, Step, load};

/// Returns the loader's message about a scenario with these steps.
fn problem(steps: &str) -> String {
    match load(&format!("scenario a\n{steps}\n")) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_corpus_is_read_and_every_group_has_scenarios() {
    for (group, text) in CORPUS {
        let scenarios = load(text).unwrap_or_else(|error| panic!("{group}: {error}"));
        assert!(scenarios.len() >= 3, "{group} has {} scenarios", scenarios.len());
    }
}

#[test]
fn a_scenario_is_read_whole() {
    let text = "# words\nscenario one\nunder expandable direct\nneeds in-order\nconf a:1\nlimited 2MiB\n\
                alloc a 1MiB+1 on s2 # more words\nwrite a on s0\nrefuse 1EiB-1 on s0 oom\n\
                expect segment.all.peak <= 3\n";
    let [one] = &load(text).unwrap()[..] else { panic!("one scenario was written") };
    assert_eq!((one.name.as_str(), one.line, one.streams), ("one", 2, 3));
    assert_eq!(one.policies, POLICIES[1..3]);
    assert_eq!(one.needs, [Requirement::InOrder, Requirement::Transfer]);
    assert_eq!((one.conf.as_str(), one.limit), ("a:1", Some(2 << 20)));
    let expect = Expect::Stat { key: "segment.all.peak".to_owned(), relation: Relation::AtMost, value: 3 };
    let actions = [
        (7, Action::Allocate { name: "a".to_owned(), bytes: (1 << 20) + 1, stream: 2 }),
        (8, Action::Write { name: "a".to_owned(), stream: 0 }),
        (9, Action::Refuse { bytes: (1 << 60) - 1, stream: 0, refusal: Refusal::OutOfMemory }),
        (10, Action::Expect(expect)),
    ];
    assert_eq!(one.steps, actions.map(|(line, action)| Step { line, action }));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_line() {
    let cases = [
        ("free a", "line 2: there is no buffer `a`"),
        ("alloc a 1 on s0\nfree a\nfree a", "line 4: the buffer `a` was freed before"),
        ("alloc a 1 on s0\nalloc a 1 on s0", "line 3: there was a buffer `a` already"),
        ("alloc a 1 on s8", "line 2: `s8` is no stream"),
        ("alloc a 1 in s0", "line 2: `in` stands where `on` should be"),
        ("alloc a 1XiB on s0", "line 2: `1XiB` is no number"),
        ("alloc a 16EiB on s0", "line 2: `16EiB` is no number"),
        ("alloc A 1 on s0", "line 2: `A` is no name"),
        ("alloc a 1 on s0 please", "line 2: `please` stands behind the end"),
        ("alloc a 1", "line 2: the line ends where `on` should be"),
        ("allocate a 1 on s0", "line 2: `allocate` is no step"),
        ("until a p", "line 2: there is no buffer `a`"),
        ("alloc a 1 on s0\nuntil a p", "line 3: there is no point `p`"),
        ("alloc a 1 on s0\nneeds transfer", "line 3: `needs` stands behind the first step"),
        ("needs wings", "line 2: `wings` is nothing that devices have"),
        ("under nobody", "line 2: `nobody` is no policy"),
        ("under", "line 2: `under` names no policy"),
        ("hold s1\nsync", "line 3: s1 is held"),
        ("hold s1\nalloc a 1 on s0", "line 3: s1 is held"),
        ("unhold s1", "line 2: s1 is not held"),
        ("alloc a 1 on s0\nexpect data a", "line 3: nothing was written to `a`"),
        ("expect calls = 0", "line 2: no `count-calls`"),
        ("expect report reserved = 0", "line 2: no `refuse`"),
        ("expect wealth = 1", "line 2: `wealth` is no key"),
        ("expect segment.all.peak < 1", "line 2: `<` stands where"),
        ("", "line 1: the scenario `a` has no steps"),
        ("sync\nscenario a\nsync", "line 3: there is a scenario `a` already"),
    ];
    for (steps, expected) in cases {
        let found = problem(steps);
        assert!(found.starts_with(expected), "{steps:?}: {found:?}, expected {expected:?}");
    }
    assert_eq!(load("sync\n").unwrap_err().to_string(), "line 1: `sync` stands before the first scenario");
}
