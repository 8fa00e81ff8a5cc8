//! Which settings a replay runs under: the configuration, the policy on top, or every policy side by side.

use clap::builder::{PossibleValue, PossibleValuesParser};
use millpond::ENVIRONMENT;
use millpond::conf::{self, ConfError, ConfErrorKind};
use millpond::settings::{Choice, Options, Policy, Scrub, Settings};
use millpond::summary::split_note;

use super::ReplayArgs;
use crate::failure::Failure;
use crate::names::suggestion;
use crate::output::tell;

/// The policies, each with what it is, in the order of help, errors and the table of `--compare`.
const POLICIES: [(&str, &str); 5] = [
    ("paged", "Remap free pages of all streams into one range for a request"),
    ("tight", "paged that waits for other streams before it creates pages: growth:tight"),
    ("classic", "PyTorch's native allocator, down to its counters"),
    (EXPANDABLE, "classic with expandable_segments:True"),
    ("direct", "No caching: every allocation calls the driver"),
];

/// The policies that are put side by side where neither arguments nor the environment say anything.
const BY_DEFAULT: [&str; 2] = ["paged", "classic"];

/// The variant that driver times are compared with.
pub(super) const EXPANDABLE: &str = "expandable";

/// Returns the settings to replay under, in order. `has_pages` is whether the device has virtual memory.
///
/// # Errors
///
/// Returns [`Failure::Input`] for a malformed configuration and an unknown policy.
pub(super) fn choose(args: &ReplayArgs, has_pages: bool) -> Result<Vec<Settings>, Failure> {
    let base = configured(Options::default(), args.conf.as_deref(), |name| std::env::var(name).ok())?;
    let base = if args.as_recorded { Options { rest: base.rest.as_recorded(), ..base } } else { base };
    let modes = args.scrub.iter().map(|mode| scrub(mode)).collect::<Result<Vec<_>, _>>()?;
    if args.compare {
        return Ok(scrubbed(compared(&base, has_pages), &modes));
    }
    let options = match &args.policy[..] {
        [] if has_pages && !is_configured(args) => BY_DEFAULT.map(|name| with_policy(base.clone(), name)).into(),
        [] => vec![base],
        names => names.iter().map(|name| with_policy(base.clone(), name)).collect(),
    };
    if let Some(unused) = options.iter().map(|options| keys_without_effect(options, has_pages)).find(|u| !u.is_empty())
    {
        let keys = unused.join(", ");
        tell(&format!("note: without effect under paged: {keys}; PyTorch's allocator, which heeds them, is classic"));
    }
    let settings: Vec<_> = options.into_iter().map(|options| options.resolve(has_pages)).collect();
    if let Some(note) = settings.iter().find_map(|settings| split_note(settings, &[])) {
        tell(&format!("note: {note}"));
    }
    Ok(scrubbed(settings, &modes))
}

/// Returns whether a configuration is given, be it an empty one. A snapshot is of one replay.
fn is_configured(args: &ReplayArgs) -> bool {
    args.snapshot.is_some() || args.conf.is_some() || ENVIRONMENT.into_iter().any(|name| std::env::var(name).is_ok())
}

/// Returns each of the settings in each of the modes, or the settings unchanged if no mode was given.
fn scrubbed(settings: Vec<Settings>, modes: &[Scrub]) -> Vec<Settings> {
    if modes.is_empty() {
        return settings;
    }
    let with = |settings: &Settings| modes.iter().map(|&scrub| Settings { scrub, ..settings.clone() }).collect();
    settings.iter().flat_map(|settings| -> Vec<Settings> { with(settings) }).collect()
}

fn scrub(mode: &str) -> Result<Scrub, Failure> {
    let modes = [Scrub::Off, Scrub::OtherStreams, Scrub::Always];
    modes.into_iter().find(|known| known.name() == mode).ok_or_else(|| {
        Failure::Input(format!(
            "--scrub: `{mode}` is no mode; write off, other_streams or always, or several with commas"
        ))
    })
}

/// Returns what reads a policy: one of the five, or `auto`.
pub(crate) fn policy_names() -> PossibleValuesParser {
    let auto = ("auto", "paged where the device has virtual memory, or else classic");
    let value = |(name, help)| PossibleValue::new(name).help(help);
    PossibleValuesParser::new(POLICIES.into_iter().chain([auto]).map(value))
}

/// Returns the options with the policy of that name, which [`policy_names`] has read. The slack stays.
fn with_policy(base: Options, name: &str) -> Options {
    let slack = base.policy.slack;
    let choice = match Policy::variant(name) {
        Some(variant) if variant.name() != name => Choice { slack, ..Choice::from(variant) },
        variant => Choice { policy: variant.map(Policy::key), ..base.policy },
    };
    Options { policy: choice, ..base }
}

/// Returns the name of the settings for readers: the variant of the policy, and which memory it overwrites.
pub(super) fn label(settings: &Settings) -> String {
    let scrub = match settings.scrub {
        Scrub::Off => "",
        Scrub::OtherStreams => ", scrub others",
        Scrub::Always => ", scrub always",
    };
    format!("{}{scrub}", settings.policy.variant_name())
}

/// Returns the configuration that gives these settings on any device. The policy is always in it, as the default is
/// another one where there is virtual memory.
pub(super) fn conf_text(settings: &Settings) -> String {
    conf::write(&settings.clone().into())
}

/// Returns the keys that are set but have no effect on these options, as they shape `classic` and there are pages here.
fn keys_without_effect(options: &Options, has_pages: bool) -> Vec<&'static str> {
    let keys = [
        ("expandable_segments", options.policy.expandable_segments),
        ("max_split_size_mb", options.rest.max_split_bytes.is_some()),
        ("max_non_split_rounding_mb", options.rest.max_non_split_rounding_bytes.is_some()),
    ];
    let moves_pages = options.policy.resolve(has_pages).moves_pages();
    keys.into_iter().filter(|(_, is_set)| *is_set && moves_pages).map(|(key, _)| key).collect()
}

/// Returns the options of the text, or else those of the environment. Keys without effect are reported in a note.
fn configured(base: Options, text: Option<&str>, look_up: impl Fn(&str) -> Option<String>) -> Result<Options, Failure> {
    let given = text.map(|text| ("--conf", text.to_string()));
    let found = || ENVIRONMENT.into_iter().find_map(|variable| Some((variable, look_up(variable)?)));
    let Some((origin, text)) = given.or_else(found) else { return Ok(base) };
    let parsed = conf::parse_over(base, &text);
    let parsed = parsed.map_err(|error| Failure::Input(explain(origin, &text, &error)))?;
    if !parsed.ignored.is_empty() {
        tell(&format!("note: {origin}: accepted, and without effect here: {}", parsed.ignored.join(", ")));
    }
    Ok(parsed.options)
}

/// Returns the mistake, the text with a mark below the mistake, and the keys where the mistake does not list them.
fn explain(origin: &str, text: &str, error: &ConfError) -> String {
    let before = text.get(..error.position).unwrap_or(text).chars().count();
    let mut message = format!("{origin}: {error}");
    match &error.kind {
        ConfErrorKind::UnknownKey { key, .. } => message += &suggestion(key, conf::keys()),
        ConfErrorKind::NotAccepted { key: "policy", value, .. } => {
            if let Some(variant) = Policy::variant(value) {
                let meant = conf_text(&Settings { policy: variant, ..Settings::default() });
                message += &format!("; here `{value}` is written {meant}");
            }
        }
        _ => {}
    }
    if !text.contains(char::is_control) {
        message += &format!("\n  {text}\n  {:before$}^", "");
    }
    if !matches!(error.kind, ConfErrorKind::UnknownKey { .. }) {
        let keys: Vec<&str> = conf::keys().collect();
        message += &format!("\nThe keys are {}", keys.join(", "));
    }
    message
}

fn compared(base: &Options, has_pages: bool) -> Vec<Settings> {
    let policies = POLICIES.into_iter().filter_map(|(name, _)| Policy::variant(name));
    let (possible, impossible): (Vec<_>, Vec<_>) = policies.partition(|policy| has_pages || !policy.needs_pages());
    if !impossible.is_empty() {
        let names: Vec<_> = impossible.into_iter().map(Policy::variant_name).collect();
        tell(&format!("note: left out, as the device has no virtual memory: {}", names.join(", ")));
    }
    let configured = |policy: Policy| match policy {
        Policy::Paged { growth, .. } => {
            Policy::Paged { growth, slack: base.policy.slack.unwrap_or(Policy::DEFAULT_SLACK) }
        }
        policy => policy,
    };
    let with = |policy: Policy| Settings { policy: configured(policy), ..base.rest.clone() };
    possible.into_iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_counts_alone() {
        let environment = |name: &str| match name {
            "PYTORCH_ALLOC_CONF" => Some("policy:direct".to_string()),
            "PYTORCH_CUDA_ALLOC_CONF" => Some("expandable_segments:True".to_string()),
            _ => None,
        };
        let both = configured(Options::default(), None, environment).unwrap();
        assert_eq!(label(&both.resolve(false)), EXPANDABLE);
        let given = configured(Options::default(), Some(""), environment).unwrap();
        assert_eq!(given, Options::default());
        assert_eq!(configured(Options::default(), None, |_| None), Ok(Options::default()));
    }

    #[test]
    fn a_mistake_is_marked_where_it_is() {
        let Err(Failure::Input(message)) =
            configured(Options::default(), Some("max_split_size_mb:64,expandable_segments:yes"), |_| None)
        else {
            panic!("accepted");
        };
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].starts_with("--conf: at byte 41: `expandable_segments` is `yes`"), "{message}");
        assert_eq!(lines[2].find('^'), Some(2 + 41), "{message}");
        assert!(lines[3].contains("garbage_collection_threshold"), "{message}");
    }

    #[test]
    fn the_written_configuration_means_the_same_on_every_device() {
        for text in [
            "policy:classic",
            "policy:paged,growth:tight",
            "policy:paged,slack:0.2",
            "policy:classic,max_split_size_mb:64",
            "policy:direct",
        ] {
            let options = conf::parse(text).expect(text);
            assert_eq!(conf_text(&options.resolve(true)), text);
        }
    }

    #[test]
    fn what_shapes_segments_has_no_effect_where_pages_move() {
        let parsed = |text: &str| conf::parse(text).expect(text);
        let given = "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.8";
        assert_eq!(
            keys_without_effect(&parsed(&format!("policy:paged,{given}")), true),
            ["expandable_segments", "max_split_size_mb"]
        );
        assert!(
            keys_without_effect(&parsed(given), false).is_empty()
                && keys_without_effect(&parsed("policy:paged"), true).is_empty()
        );
    }

    #[test]
    fn a_policy_is_chosen_by_the_name_of_its_variant() {
        for policy in Policy::VARIANTS {
            let options = with_policy(Options::default(), policy.variant_name());
            assert_eq!(options.resolve(false).policy, policy, "{}", policy.variant_name());
        }
        assert_eq!(POLICIES.map(|(name, _)| name).len(), Policy::VARIANTS.len());
        assert!(POLICIES.into_iter().all(|(name, _)| Policy::variant(name).is_some()));
        let options = with_policy(conf::parse("policy:direct").expect("a policy"), "auto");
        assert_eq!(options.resolve(true).policy.name(), "paged");
    }

    #[test]
    fn a_slack_is_kept_under_every_variant_of_paged() {
        let base = conf::parse("slack:0.2").expect("a slack");
        let slack = Some(0.2);
        for name in ["paged", "tight"] {
            let settings = with_policy(base.clone(), name).resolve(true);
            assert_eq!((settings.policy.slack(), label(&settings).as_str()), (slack, name));
        }
        for settings in compared(&base, true).iter().filter(|settings| settings.policy.moves_pages()) {
            assert_eq!(settings.policy.slack(), slack, "{}", label(settings));
        }
    }

    #[test]
    fn modes_of_scrubbing_are_put_side_by_side() {
        let modes: Vec<_> = ["off", "other_streams", "always"].map(|mode| scrub(mode).unwrap()).into();
        let labels: Vec<_> = scrubbed(vec![Settings::default()], &modes).iter().map(label).collect();
        assert_eq!(labels, ["classic", "classic, scrub others", "classic, scrub always"]);
        assert_eq!(scrubbed(vec![Settings::default()], &[]), [Settings::default()]);
        let Err(Failure::Input(message)) = scrub("never") else { panic!("accepted") };
        assert!(message.contains("`never` is no mode"), "{message}");
    }

    #[test]
    fn a_device_without_virtual_memory_compares_less() {
        let labels =
            |has_pages| -> Vec<String> { compared(&Options::default(), has_pages).iter().map(label).collect() };
        assert_eq!(labels(true), POLICIES.map(|(name, _)| name));
        assert_eq!(labels(false), ["classic", "direct"]);
    }
}
