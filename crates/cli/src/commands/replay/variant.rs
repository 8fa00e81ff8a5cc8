//! Which settings a replay runs under: the configuration, the policy on top, or every policy side by side.

use millpond::ENVIRONMENT;
use millpond::conf::{self, ConfError, ConfErrorKind};
use millpond::settings::{Growth, Policy, Scrub, Settings};

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output::tell;

/// One variant of `--compare`.
#[derive(Clone, Copy)]
struct Variant {
    policy: Policy,
    expandable_segments: bool,
    /// The growth; as configured if `None`.
    growth: Option<Growth>,
    /// Whether the variant needs a device with virtual memory.
    needs_pages: bool,
}

/// The variants of `--compare`, in the order of the table.
const COMPARED: [Variant; 4] = [
    Variant { policy: Policy::Paged, expandable_segments: false, growth: None, needs_pages: true },
    Variant { policy: Policy::Classic, expandable_segments: false, growth: None, needs_pages: false },
    Variant { policy: Policy::Classic, expandable_segments: true, growth: None, needs_pages: true },
    Variant { policy: Policy::Direct, expandable_segments: false, growth: None, needs_pages: false },
];

/// The variant that `--tight` adds. Plain `paged` is balanced beside it.
const TIGHT: Variant =
    Variant { policy: Policy::Paged, expandable_segments: false, growth: Some(Growth::Tight), needs_pages: true };

/// The label of the variant that driver times are compared with.
pub(super) const EXPANDABLE: &str = "classic+expandable";

/// Returns the settings to replay under, in order. `has_pages` is whether the device has virtual memory.
///
/// # Errors
///
/// Returns [`Failure::Input`] for a malformed configuration and an unknown policy.
pub(super) fn choose(args: &ReplayArgs, has_pages: bool) -> Result<Vec<Settings>, Failure> {
    let policy = Policy::default_for(has_pages);
    let base = Settings { policy, ..Settings::default() };
    let base = configured(base, args.conf.as_deref(), |name| std::env::var(name).ok())?;
    let modes = args.scrub.iter().map(|mode| scrub(mode)).collect::<Result<Vec<_>, _>>()?;
    if args.compare {
        return Ok(scrubbed(compared(&base, has_pages, args.tight), &modes));
    }
    let mut settings = match &args.policy {
        None => base,
        Some(name) => with_policy(base, name)?,
    };
    settings.policy = settings.policy.resolved(has_pages);
    let idle = idle_keys(&settings);
    if !idle.is_empty() {
        let keys = idle.join(", ");
        tell(&format!("note: without effect under paged: {keys}; PyTorch's allocator, which heeds them, is classic"));
    }
    Ok(scrubbed(vec![settings], &modes))
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

fn with_policy(base: Settings, name: &str) -> Result<Settings, Failure> {
    if !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Failure::Input(format!("--policy: `{name}` is no policy; write one such as classic")));
    }
    let parsed = conf::parse_over(base, &format!("policy:{name}"));
    parsed.map(|parsed| parsed.settings).map_err(|error| Failure::Input(format!("--policy: {}", error.kind)))
}

/// Returns the name of the settings for readers: the policy, whether its segments are expandable or its growth is
/// tight, and which memory it overwrites.
pub(super) fn label(settings: &Settings) -> String {
    let suffix = match settings.growth {
        _ if settings.expands() => "+expandable",
        Growth::Tight if settings.is_paged() => "+tight",
        _ => "",
    };
    let scrub = match settings.scrub {
        Scrub::Off => "",
        Scrub::OtherStreams => ", scrub others",
        Scrub::Always => ", scrub always",
    };
    format!("{}{suffix}{scrub}", settings.policy.name())
}

/// Returns the configuration that gives these settings on any device. The policy is always in it, as the default is
/// another one where there is virtual memory.
pub(super) fn conf_text(settings: &Settings) -> String {
    let text = conf::write(settings);
    let policy = format!("policy:{}", settings.policy.name());
    match text.as_str() {
        "" => policy,
        _ if text.starts_with(&policy) => text,
        _ => format!("{policy},{text}"),
    }
}

/// Returns the keys that are set but have no effect on these settings, as they shape `classic` and pages move here.
fn idle_keys(settings: &Settings) -> Vec<&'static str> {
    let keys = [
        ("expandable_segments", settings.expandable_segments),
        ("max_split_size_mb", settings.max_split_bytes.is_some()),
        ("max_non_split_rounding_mb", settings.max_non_split_rounding_bytes.is_some()),
    ];
    keys.into_iter().filter(|(_, is_set)| *is_set && settings.is_paged()).map(|(key, _)| key).collect()
}

/// Returns the settings of the text, or else those of the environment. Keys without effect are reported in a note.
fn configured(
    base: Settings,
    text: Option<&str>,
    look_up: impl Fn(&str) -> Option<String>,
) -> Result<Settings, Failure> {
    let given = text.map(|text| ("--conf", text.to_string()));
    let found = || ENVIRONMENT.into_iter().find_map(|variable| Some((variable, look_up(variable)?)));
    let Some((origin, text)) = given.or_else(found) else { return Ok(base) };
    let parsed = conf::parse_over(base, &text);
    let parsed = parsed.map_err(|error| Failure::Input(explain(origin, &text, &error)))?;
    if !parsed.ignored.is_empty() {
        tell(&format!("note: {origin}: accepted, and without effect here: {}", parsed.ignored.join(", ")));
    }
    Ok(parsed.settings)
}

/// Returns the mistake, the text with a mark below the mistake, and the keys where the mistake does not list them.
fn explain(origin: &str, text: &str, error: &ConfError) -> String {
    let before = text.get(..error.position).unwrap_or(text).chars().count();
    let mut message = format!("{origin}: {error}");
    if !text.contains(char::is_control) {
        message += &format!("\n  {text}\n  {:before$}^", "");
    }
    if !matches!(error.kind, ConfErrorKind::UnknownKey { .. }) {
        let keys: Vec<&str> = conf::keys().collect();
        message += &format!("\nThe keys are {}", keys.join(", "));
    }
    message
}

fn compared(base: &Settings, has_pages: bool, with_tight: bool) -> Vec<Settings> {
    let variants = COMPARED.into_iter().chain(with_tight.then_some(TIGHT));
    let (possible, impossible): (Vec<_>, Vec<_>) = variants.partition(|variant| has_pages || !variant.needs_pages);
    let with = |Variant { policy, expandable_segments, growth, .. }: Variant| {
        let growth = growth.unwrap_or(if with_tight { Growth::Balanced } else { base.growth });
        Settings { policy, expandable_segments, growth, ..base.clone() }
    };
    if !impossible.is_empty() {
        let labels: Vec<_> = impossible.into_iter().map(|variant| label(&with(variant))).collect();
        tell(&format!("note: left out, as the device has no virtual memory: {}", labels.join(", ")));
    }
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
        let both = configured(Settings::default(), None, environment).unwrap();
        assert_eq!(label(&both), EXPANDABLE);
        let given = configured(Settings::default(), Some(""), environment).unwrap();
        assert_eq!(given, Settings::default());
        assert_eq!(configured(Settings::default(), None, |_| None), Ok(Settings::default()));
    }

    #[test]
    fn a_mistake_is_marked_where_it_is() {
        let Err(Failure::Input(message)) =
            configured(Settings::default(), Some("max_split_size_mb:64,expandable_segments:yes"), |_| None)
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
        for text in
            ["policy:classic", "policy:paged,growth:tight", "policy:classic,max_split_size_mb:64", "policy:direct"]
        {
            let settings = conf::parse(text).expect(text);
            assert_eq!(conf_text(&settings), text);
        }
    }

    #[test]
    fn what_shapes_segments_is_idle_where_pages_move() {
        let parsed = |text: &str| conf::parse(text).expect(text);
        let given = "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.8";
        assert_eq!(idle_keys(&parsed(&format!("policy:paged,{given}"))), ["expandable_segments", "max_split_size_mb"]);
        assert!(idle_keys(&parsed(given)).is_empty() && idle_keys(&parsed("policy:paged")).is_empty());
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
        let labels = |has_pages, tight| -> Vec<String> {
            compared(&Settings::default(), has_pages, tight).iter().map(label).collect()
        };
        assert_eq!(labels(true, false), ["paged", "classic", EXPANDABLE, "direct"]);
        assert_eq!(labels(true, true), ["paged", "classic", EXPANDABLE, "direct", "paged+tight"]);
        assert_eq!(labels(false, false), ["classic", "direct"]);
        assert_eq!(labels(false, true), ["classic", "direct"]);
    }
}
