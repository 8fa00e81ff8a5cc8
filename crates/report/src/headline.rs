//! The sentence that a report opens with: what became of a program, and which setting would have fitted.

use millpond::conf;
use millpond::settings::{Policy, Scrub, Segments, Settings};
use millpond_replay::{Fit, Fits};

use crate::data::{RefusalData, Run};
use crate::recorded::Recorded;
use crate::text::{bytes, count};

/// The variable that PyTorch reads its allocator's settings from.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// Up to how many runs are all named in the sentence.
const NAMED: usize = 3;

/// A limit that a replay has shown to be enough, where a request was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enough {
    /// The name of the policy, as in [`Run::policy`].
    pub policy: String,
    /// The limit in MiB.
    pub limit_mib: u64,
    /// How many bytes that is more than what was given.
    pub more: u64,
}

/// What is known of a program once it was replayed under some policies. All of it comes from replays.
#[derive(Clone, Copy, Debug)]
pub struct Headline<'a> {
    /// The settings of each run, in the order of `runs`.
    pub settings: &'a [Settings],
    /// The runs.
    pub runs: &'a [Run],
    /// Which policies fit, where a request was refused.
    pub fits: Option<&'a Fits>,
    /// Limits that fit, where a request was refused.
    pub enough: &'a [Enough],
    /// What the recorded program itself was refused.
    pub recorded: Option<&'a Recorded>,
    /// The limit of the replays, in bytes.
    pub limit: Option<u64>,
    /// Whether it is a PyTorch program, which PyTorch's own settings may serve.
    pub is_of_torch: bool,
}

impl Headline<'_> {
    /// Returns one sentence, or two where a request was refused, after one on what the recorded program was refused.
    /// What can be typed is between backticks.
    pub fn text(&self) -> String {
        let refused = self.pairs().find(|(_, run)| run.passes.iter().any(|pass| pass.refused > 0));
        let Some((settings, run)) = refused else { return self.unrefused() };
        let mut text = self.refusal(settings, run);
        let at = run.refusal.as_ref().map(|refusal| refusal.at);
        if let Some(recorded) = self.recorded.filter(|recorded| at != Some(recorded.at())) {
            text = format!("{} In the replay, {text}{}", recorded.sentence(), recorded.why_elsewhere());
        }
        self.advice(settings).map_or(text.clone(), |advice| format!("{text} {advice}"))
    }

    /// Returns what there is to say where no replay was refused anything.
    fn unrefused(&self) -> String {
        let spared = self.spared();
        let Some(recorded) = self.recorded else { return spared };
        let hint = match self.limit {
            None => "To see why, give the replay the memory that it had, such as `--limit 3GiB`.".to_owned(),
            Some(limit) => {
                format!("In a replay within {}, nothing is refused.{}", bytes(limit), recorded.why_elsewhere())
            }
        };
        format!("{} {hint} {spared}", recorded.sentence())
    }

    fn pairs(&self) -> impl Iterator<Item = (&Settings, &Run)> {
        self.settings.iter().zip(self.runs)
    }

    /// Returns what each run reserves beyond what is live, where nothing was refused.
    fn spared(&self) -> String {
        let Some((settings, first)) = self.pairs().next() else { return String::new() };
        let mut text = format!("{} reserves {}", self.subject(settings, first), beyond(first, true));
        let others = &self.runs[1..];
        // What keeps no cache reserves nothing beyond, and is too slow to be advised.
        let caches = |run: &&Run| !run.policy.starts_with(Policy::Direct.name());
        if self.runs.len() <= NAMED {
            for run in others {
                text += &format!("; `{}` reserves {}", run.policy, beyond(run, false));
            }
        } else if let Some(least) = others.iter().filter(caches).min_by_key(|run| run.life.1) {
            text += &format!("; of the others, `{}` reserves the least: {}", least.policy, beyond(least, false));
        }
        text + "."
    }

    /// Returns what fits, PyTorch's own settings first, or how much is missing.
    fn advice(&self, refusing: &Settings) -> Option<String> {
        let fits = self.fits?;
        let fitting = |is_it: fn(&Policy) -> bool| {
            fits.policies.iter().filter(|fit| fit.fits()).find(|fit| is_it(&fit.settings.policy))
        };
        let torch = fitting(is_plain).or_else(|| fitting(is_expandable));
        let paged = fitting(|policy| policy.moves_pages());
        match (torch, paged.or_else(|| fitting(|_| true))) {
            (Some(torch), _) => {
                // A twentieth less is worth another allocator.
                let saves = |paged: &&Fit| paged.reserved_peak < torch.reserved_peak / 20 * 19;
                let paged = paged
                    .filter(saves)
                    .map(|paged| format!("; Millpond's `{}` takes {}", conf_of(paged), bytes(paged.reserved_peak)));
                let own = self.setting(torch);
                Some(format!("{own} fits, with {} reserved{}.", bytes(torch.reserved_peak), paged.unwrap_or_default()))
            }
            (None, Some(fit)) => {
                let expandable = fits.policies.iter().any(|fit| is_expandable(&fit.settings.policy));
                let (setting, reserved) = (self.setting(fit), bytes(fit.reserved_peak));
                let least = self.least().map(|least| format!("; {least}")).unwrap_or_default();
                Some(if fit.settings.policy == Policy::Direct {
                    format!("Only {setting} fits, which keeps no cache and so is slow{least}.")
                } else if is_plain(&refusing.policy) && expandable {
                    format!("Expandable segments do not fit either; {setting} does, with {reserved} reserved.")
                } else {
                    format!("{setting} fits, with {reserved} reserved.")
                })
            }
            (None, None) => Some(self.missing(fits)),
        }
    }

    /// Returns the least limit that fits, of those that are known.
    fn least(&self) -> Option<String> {
        let least = self.enough.iter().min_by_key(|enough| enough.limit_mib);
        least.map(|Enough { policy, limit_mib, more }| {
            format!("`{policy}` fits with `--limit {limit_mib}MiB`, {} more", bytes(*more))
        })
    }

    /// Returns how much is missing where no policy fits.
    fn missing(&self, fits: &Fits) -> String {
        // A limit may come from the configuration, too.
        let limit = fits.limit_bytes.or_else(|| self.runs.iter().find_map(|run| Some(run.refusal.as_ref()?.limit)));
        let within = limit.map_or("the device's memory".to_owned(), bytes);
        let over = limit.is_some_and(|limit| fits.live_peak > limit);
        let live = bytes(fits.live_peak);
        match (over, self.least()) {
            (true, None) => format!("No policy fits in {within}: the program has {live} live at once."),
            (true, Some(enough)) => {
                format!("No policy fits in {within}, as the program has {live} live at once; {enough}.")
            }
            (false, Some(enough)) => format!("No policy fits in {within}; {enough}."),
            (false, None) => format!("No policy fits in {within}, although no more than {live} are live at once."),
        }
    }

    /// Returns the name of a run that begins a sentence, for those who know PyTorch.
    fn subject(&self, settings: &Settings, run: &Run) -> String {
        let name = &run.policy;
        let others_are_default = Settings { policy: Policy::default(), ..settings.clone() } == Settings::default();
        match &settings.policy {
            _ if !self.is_of_torch => format!("`{name}`"),
            policy if is_plain(policy) && others_are_default => format!("PyTorch's default allocator (`{name}`)"),
            policy if is_plain(policy) => format!("PyTorch's allocator (`{name}`)"),
            policy if is_expandable(policy) => format!("PyTorch's allocator with expandable segments (`{name}`)"),
            _ => format!("`{name}`"),
        }
    }

    /// Returns where and why a run refused its first request.
    fn refusal(&self, settings: &Settings, run: &Run) -> String {
        let who = self.subject(settings, run);
        let Some(refusal) = &run.refusal else {
            let pass = run.passes.iter().take_while(|pass| pass.refused == 0).count() + 1;
            return format!("{who} runs out of memory in pass {pass} of {}.", run.passes.len());
        };
        let (event, requested) = (count(refusal.at as u64 + 1), bytes(refusal.requested));
        format!(
            "{who} runs out of memory at event {event}: the program asks for {requested}{}.",
            reason(refusal, run, settings)
        )
    }

    /// Returns what to set for a policy that fits: PyTorch's own variable where that is enough.
    fn setting(&self, fit: &Fit) -> String {
        let conf = conf_of(fit);
        let is_torch = self.is_of_torch
            && matches!(fit.settings.policy, Policy::Classic(_))
            && fit.settings.scrub == Scrub::default();
        match conf.strip_prefix("policy:classic") {
            Some("") if is_torch => "PyTorch's default allocator (`classic`)".to_owned(),
            Some(own) if is_torch => format!("`{VARIABLE}={}`", own.trim_start_matches(',')),
            _ => format!("Millpond's `{conf}`"),
        }
    }
}

fn is_plain(policy: &Policy) -> bool {
    *policy == Policy::Classic(Segments::Plain)
}

fn is_expandable(policy: &Policy) -> bool {
    *policy == Policy::Classic(Segments::Expandable)
}

/// Returns how much a run reserves beyond the most that is live, over all passes.
fn beyond(run: &Run, is_first: bool) -> String {
    let (live, reserved) = run.life;
    let than = if is_first { " than this program ever uses at once" } else { "" };
    match reserved.saturating_sub(live) {
        0 => format!("no more{than}"),
        more => format!("{} more{than} ({:.2} times)", bytes(more), reserved as f64 / live.max(1) as f64),
    }
}

fn reason(refusal: &RefusalData, run: &Run, settings: &Settings) -> String {
    let &RefusalData { requested, tried, free, limit, reserved, hole, .. } = refusal;
    let room = limit.saturating_sub(reserved);
    let largest = hole.map_or(0, |(_, bytes)| bytes);
    match () {
        () if free.saturating_add(room) < requested => {
            let left = free.saturating_add(room);
            if bytes(left) == bytes(requested) {
                return format!(", which is {} more than is left of {}", bytes(requested - left), bytes(limit));
            }
            format!(", and only {} of {} are left", bytes(left), bytes(limit))
        }
        () if largest >= requested => {
            format!(
                " on stream {}, while {} are reserved and free, but not for that stream",
                refusal.stream,
                bytes(free)
            )
        }
        () if free >= requested => format!(" while {} are reserved and free in pieces too small", bytes(free)),
        // The request would fit, and what the policy takes from the driver for it does not.
        () if room >= requested && tried > room => {
            let kind = if is_plain(&settings.policy) { "a segment of " } else { "" };
            let (policy, tried) = (&run.policy, bytes(tried));
            format!(", for which `{policy}` needs {kind}{tried}, and {} more may be reserved", bytes(room))
        }
        () => {
            format!(" while {} are reserved and free in pieces, and {} more may be reserved", bytes(free), bytes(room))
        }
    }
}

fn conf_of(fit: &Fit) -> String {
    conf::write(&fit.settings.clone().into())
}

#[cfg(test)]
mod tests {
    use millpond::settings::Growth;

    use super::*;
    use crate::data::{PassData, Pinned};

    const MIB: u64 = 1 << 20;

    fn settings(policy: Policy) -> Settings {
        Settings { policy, ..Settings::default() }
    }

    /// Returns a run of one pass that has up to 100 MiB live.
    fn run(policy: Policy, reserved: u64, refusal: Option<RefusalData>) -> Run {
        let pass = PassData {
            live: 100 * MIB,
            reserved,
            calls: 1,
            micros: 0,
            waits: 0,
            stalls: 0,
            refused: u64::from(refusal.is_some()),
            pinned: Pinned::default(),
        };
        Run {
            policy: policy.variant_name().into(),
            live: 100 * MIB,
            reserved,
            life: (100 * MIB, reserved),
            life_ratio: 1.0,
            columns: Default::default(),
            parts: Vec::new(),
            at: Default::default(),
            mapped: Default::default(),
            differs: 0,
            moments: Vec::new(),
            passes: vec![pass],
            verdict: String::new(),
            refusal,
        }
    }

    /// Returns a refused request for 40 MiB. Of 128 reserved MiB, `free` bytes are free, in pieces of at most 9 MiB.
    fn refused(free: u64) -> Option<RefusalData> {
        Some(RefusalData {
            at: 1233,
            requested: 40 * MIB,
            tried: 40 * MIB,
            stream: 0,
            reserved: 128 * MIB,
            limit: 128 * MIB,
            parts: Vec::new(),
            free,
            hole: Some((0, 9 * MIB)),
            usable: Some((0, 9 * MIB)),
            pins: Vec::new(),
            message: String::new(),
        })
    }

    fn fits(policies: &[(Policy, u64, u64)]) -> Fits {
        let fit = |&(policy, refused, mib): &_| Fit { settings: settings(policy), refused, reserved_peak: mib * MIB };
        let policies = policies.iter().map(fit).collect();
        Fits { limit_bytes: Some(128 * MIB), live_peak: 100 * MIB, policies, recorded: None }
    }

    fn text(runs: &[(Policy, Run)], fits: Option<&Fits>, enough: &[Enough]) -> String {
        let (settings, runs): (Vec<_>, Vec<_>) = runs.iter().map(|(p, run)| (settings(*p), run.clone())).unzip();
        headline(&settings, &runs, fits, enough).text()
    }

    fn headline<'a>(
        settings: &'a [Settings],
        runs: &'a [Run],
        fits: Option<&'a Fits>,
        enough: &'a [Enough],
    ) -> Headline<'a> {
        Headline { settings, runs, fits, enough, recorded: None, limit: None, is_of_torch: true }
    }

    fn setting(fit: &Fit) -> String {
        headline(&[], &[], None, &[]).setting(fit)
    }

    const CLASSIC: Policy = Policy::Classic(Segments::Plain);
    const EXPANDABLE: Policy = Policy::Classic(Segments::Expandable);
    const PAGED: Policy = Policy::paged(Growth::Balanced);
    const TIGHT: Policy = Policy::paged(Growth::Tight);

    fn spared(runs: &[(Policy, u64)]) -> String {
        let runs: Vec<_> = runs.iter().map(|&(policy, mib)| (policy, run(policy, mib * MIB, None))).collect();
        text(&runs, None, &[])
    }

    fn classic_refuses(policies: &[(Policy, u64, u64)], enough: &[Enough]) -> String {
        let runs = [(CLASSIC, run(CLASSIC, 128 * MIB, refused(60 * MIB))), (PAGED, run(PAGED, 104 * MIB, None))];
        text(&runs, Some(&fits(policies)), enough)
    }

    #[test]
    fn what_is_reserved_beyond_the_peak_is_said_of_each_policy() {
        assert_eq!(
            spared(&[(CLASSIC, 138), (PAGED, 102)]),
            "PyTorch's default allocator (`classic`) reserves 38.0 MiB more than this program ever uses at once (1.38 \
             times); `paged` reserves 2.00 MiB more (1.02 times)."
        );
        assert_eq!(spared(&[(PAGED, 100)]), "`paged` reserves no more than this program ever uses at once.");
        let four = spared(&[(CLASSIC, 138), (EXPANDABLE, 120), (PAGED, 102), (TIGHT, 101)]);
        assert!(four.ends_with("; of the others, `tight` reserves the least: 1.00 MiB more (1.01 times)."), "{four}");
        assert!(!four.contains("`paged`"), "{four}");
        let direct = spared(&[(CLASSIC, 138), (EXPANDABLE, 120), (PAGED, 102), (Policy::Direct, 100)]);
        assert!(
            direct.ends_with("; of the others, `paged` reserves the least: 2.00 MiB more (1.02 times)."),
            "{direct}"
        );
        let expandable = spared(&[(EXPANDABLE, 120)]);
        assert!(
            expandable.starts_with("PyTorch's allocator with expandable segments (`expandable`) reserves 20.0 MiB")
        );
    }

    #[test]
    fn the_setting_of_pytorch_that_fits_comes_first() {
        let first = "PyTorch's default allocator (`classic`) runs out of memory at event 1,234: the program asks for \
                     40.0 MiB while 60.0 MiB are reserved and free in pieces too small.";
        let own = "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` fits, with 106 MiB reserved";
        let near = [(CLASSIC, 1, 128), (EXPANDABLE, 0, 106), (PAGED, 0, 104), (TIGHT, 0, 101)];
        assert_eq!(classic_refuses(&near, &[]), format!("{first} {own}."));
        let far = [(CLASSIC, 1, 128), (EXPANDABLE, 0, 120), (PAGED, 0, 104)];
        let saves = "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` fits, with 120 MiB reserved; Millpond's \
                     `policy:paged` takes 104 MiB.";
        assert_eq!(classic_refuses(&far, &[]), format!("{first} {saves}"));
    }

    /// Nothing is reserved that could be free in pieces: the segment is what does not fit.
    #[test]
    fn a_segment_that_is_larger_than_the_limit_is_named() {
        let refusal = refused(0).map(|refusal| RefusalData {
            requested: 2 * MIB,
            tried: 20 * MIB,
            reserved: 0,
            limit: 10 * MIB,
            hole: None,
            usable: None,
            ..refusal
        });
        let text = |policy: Policy| {
            let runs = [(policy, run(policy, 0, refusal.clone()))];
            text(&runs, None, &[])
        };
        let classic = text(CLASSIC);
        let end = "for 2.00 MiB, for which `classic` needs a segment of 20.0 MiB, and 10.0 MiB more may be reserved.";
        assert!(classic.contains(end), "{classic}");
        let expandable = text(EXPANDABLE);
        assert!(expandable.contains("for which `expandable` needs 20.0 MiB, and 10.0 MiB more"), "{expandable}");
    }

    #[test]
    fn what_only_millpond_fits_is_named_as_such() {
        let only = classic_refuses(&[(CLASSIC, 1, 128), (EXPANDABLE, 2, 128), (PAGED, 0, 104)], &[]);
        let end = "Expandable segments do not fit either; Millpond's `policy:paged` does, with 104 MiB reserved.";
        assert!(only.ends_with(end), "{only}");
        let tight = classic_refuses(&[(CLASSIC, 1, 128), (PAGED, 1, 128), (TIGHT, 0, 101)], &[]);
        assert!(tight.ends_with("Millpond's `policy:paged,growth:tight` fits, with 101 MiB reserved."), "{tight}");
        let enough = [Enough { policy: "paged".into(), limit_mib: 140, more: 12 * MIB }];
        let direct = classic_refuses(&[(CLASSIC, 1, 128), (EXPANDABLE, 1, 128), (Policy::Direct, 0, 100)], &enough);
        let end = "Only Millpond's `policy:direct` fits, which keeps no cache and so is slow; `paged` fits with \
                   `--limit 140MiB`, 12.0 MiB more.";
        assert!(direct.ends_with(end), "{direct}");
        let runs = [(PAGED, run(PAGED, 128 * MIB, refused(60 * MIB)))];
        let classic = text(&runs, Some(&fits(&[(CLASSIC, 0, 110), (PAGED, 1, 128)])), &[]);
        assert!(classic.starts_with("`paged` runs out of memory at event 1,234"), "{classic}");
        assert!(classic.ends_with("PyTorch's default allocator (`classic`) fits, with 110 MiB reserved."), "{classic}");
    }

    #[test]
    fn where_none_fits_the_least_limit_is_named_or_what_is_live() {
        let none = [(CLASSIC, 1, 128), (PAGED, 1, 128)];
        let enough =
            |policy: &str, limit_mib| Enough { policy: policy.into(), limit_mib, more: (limit_mib - 128) * MIB };
        let limits = [enough("classic", 160), enough("paged", 140)];
        let told = classic_refuses(&none, &limits);
        assert!(
            told.ends_with("No policy fits in 128 MiB; `paged` fits with `--limit 140MiB`, 12.0 MiB more."),
            "{told}"
        );
        let told = classic_refuses(&none, &[]);
        assert!(told.ends_with("No policy fits in 128 MiB, although no more than 100 MiB are live at once."), "{told}");
        let over = Fits { live_peak: 200 * MIB, ..fits(&none) };
        let runs = [(CLASSIC, run(CLASSIC, 128 * MIB, refused(10 * MIB)))];
        let told = text(&runs, Some(&over), &[]);
        assert!(told.contains("the program asks for 40.0 MiB, and only 10.0 MiB of 128 MiB are left."), "{told}");
        assert!(told.ends_with("No policy fits in 128 MiB: the program has 200 MiB live at once."), "{told}");
    }

    #[test]
    fn a_setting_of_millpond_is_no_setting_of_pytorch() {
        let scrubbed = Settings { scrub: Scrub::Always, ..settings(EXPANDABLE) };
        let fit = Fit { settings: scrubbed, refused: 0, reserved_peak: 1 };
        assert_eq!(setting(&fit), "Millpond's `policy:classic,expandable_segments:True,scrub:always`");
        let split = Settings { max_split_bytes: Some(64 * MIB), ..settings(EXPANDABLE) };
        let fit = Fit { settings: split, refused: 0, reserved_peak: 1 };
        assert_eq!(setting(&fit), "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64`");
    }

    #[test]
    fn a_refusal_after_the_first_pass_is_of_its_pass() {
        let mut late = run(CLASSIC, 128 * MIB, None);
        let first = late.passes[0].clone();
        late.passes = vec![first.clone(), PassData { refused: 2, ..first }];
        let told = text(&[(CLASSIC, late)], None, &[]);
        assert_eq!(told, "PyTorch's default allocator (`classic`) runs out of memory in pass 2 of 2.");
    }

    /// Returns a request that the recorded program was refused, after `at` events. `older` blocks precede its history.
    fn recorded(at: usize, older: u64) -> Recorded {
        let begin = format!("# {{\"refused_blocks\":[0],\"blocks_before\":{older}}}\n");
        let text = format!("{begin}{}a 0 {} 0\nf 0\n", "e\n".repeat(at), 41 * MIB);
        let trace = millpond_trace::Trace::parse(text.as_bytes()).expect("a trace");
        Recorded::of(&trace, &crate::blocks(&trace)).expect("a refused request")
    }

    #[test]
    fn what_the_recorded_program_was_refused_comes_first() {
        let (settings, runs) = ([settings(CLASSIC)], [run(CLASSIC, 128 * MIB, refused(60 * MIB))]);
        let fits = fits(&[(CLASSIC, 1, 128), (EXPANDABLE, 0, 106)]);
        let told = |recorded: &Recorded| {
            Headline { recorded: Some(recorded), ..headline(&settings, &runs, Some(&fits), &[]) }.text()
        };
        let elsewhere = told(&recorded(1999, 564));
        let begins = "The recorded program ran out of memory at event 2,000, when it asked for 41.0 MiB. In the \
                      replay, PyTorch's default allocator (`classic`) runs out of memory at event 1,234";
        assert!(elsewhere.starts_with(begins), "{elsewhere}");
        assert!(elsewhere.contains("begins after 564 blocks were allocated"), "{elsewhere}");
        assert!(elsewhere.ends_with("`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` fits, with 106 MiB reserved."));
        let same = told(&recorded(1233, 0));
        assert!(same.starts_with("PyTorch's default allocator (`classic`) runs out"), "{same}");
    }

    #[test]
    fn where_no_replay_is_refused_what_the_program_was_the_limit_is_asked_for() {
        let (settings, runs) = ([settings(CLASSIC)], [run(CLASSIC, 138 * MIB, None)]);
        let recorded = recorded(1999, 0);
        let told =
            |limit| Headline { recorded: Some(&recorded), limit, ..headline(&settings, &runs, None, &[]) }.text();
        assert!(told(None).contains("asked for 41.0 MiB. To see why, give the replay the memory"), "{}", told(None));
        let within = told(Some(200 * MIB));
        assert!(within.contains("41.0 MiB. In a replay within 200 MiB, nothing is refused. PyTorch's"), "{within}");
    }

    #[test]
    fn a_program_without_pytorch_is_not_told_of_its_settings() {
        let (settings, runs) = ([settings(CLASSIC)], [run(CLASSIC, 128 * MIB, refused(60 * MIB))]);
        let fits = fits(&[(CLASSIC, 1, 128), (EXPANDABLE, 0, 106)]);
        let told = Headline { is_of_torch: false, ..headline(&settings, &runs, Some(&fits), &[]) }.text();
        assert!(told.starts_with("`classic` runs out of memory"), "{told}");
        assert!(
            told.ends_with("Millpond's `policy:classic,expandable_segments:True` fits, with 106 MiB reserved."),
            "{told}"
        );
    }
}
