//! Settings made in code: those that `build` accepts work, and the others are a typed error. It never panics.

use millpond::backend::{Backend as _, ClassId};
use millpond::settings::{Divisions, Growth, Policy, Segments, Settings, Ties};
use millpond::text::with_causes;
use millpond::{Allocator, BuildError, ENVIRONMENT, Error};
use millpond_sim::Sim;
use millpond_trace::Random;

/// Returns settings with one field outside its range, each with the field's name and its value.
fn refused() -> Vec<(Settings, &'static str, &'static str)> {
    let default = Settings::default;
    let host = Settings::for_host;
    let divisions = |at: usize, number| {
        let mut slots = [0; 16];
        slots[at] = number;
        Settings { divisions: Divisions(slots), ..default() }
    };
    vec![
        (Settings { gc_threshold: 1.0, ..default() }, "gc_threshold", "1"),
        (Settings { gc_threshold: -0.5, ..default() }, "gc_threshold", "-0.5"),
        (Settings { gc_threshold: f64::NAN, ..default() }, "gc_threshold", "NaN"),
        (Settings { memory_fraction: 1.5, ..default() }, "memory_fraction", "1.5"),
        (Settings { memory_fraction: f64::NAN, ..default() }, "memory_fraction", "NaN"),
        (Settings { large_segment_bytes: 512, ..default() }, "large_segment_bytes", "512"),
        (Settings { large_segment_bytes: (20 << 20) + 1, ..default() }, "large_segment_bytes", "20971521"),
        (Settings { large_segment_bytes: u64::MAX - 511, ..default() }, "large_segment_bytes", "18446744073709551104"),
        (Settings { policy: Policy::Classic(Segments::Snug(f64::NAN)), ..host() }, "slack", "NaN"),
        (Settings { policy: Policy::Classic(Segments::Snug(-1.0)), ..host() }, "slack", "-1"),
        (
            Settings { policy: Policy::Classic(Segments::Snug(1e30)), ..host() },
            "slack",
            "1000000000000000000000000000000",
        ),
        (Settings { policy: Policy::Classic(Segments::Snug(f64::INFINITY)), ..default() }, "slack", "inf"),
        (Settings { policy: Policy::Paged { growth: Growth::Tight, slack: f64::NAN }, ..default() }, "slack", "NaN"),
        (Settings { policy: Policy::Paged { growth: Growth::Balanced, slack: 1e4 }, ..default() }, "slack", "10000"),
        (Settings { max_split_bytes: Some(1 << 20), ..default() }, "max_split_bytes", "1048576"),
        (Settings { max_non_split_rounding_bytes: Some(5), ..default() }, "max_non_split_rounding_bytes", "5"),
        (divisions(3, 6), "divisions", "6"),
        (divisions(15, 1 << 31), "divisions", "2147483648"),
    ]
}

#[test]
fn a_setting_outside_its_range_is_named_with_its_value_and_the_range() {
    let mut wrong = Vec::new();
    for (settings, field, value) in refused() {
        let built = std::panic::catch_unwind(|| Allocator::builder(Sim::new()).settings(settings).build().map(drop));
        match built {
            Ok(Err(error)) => {
                let text = error.to_string();
                let named = text.contains(&format!("`{field}`")) && text.contains(value) && text.contains("must be");
                if !named {
                    wrong.push(format!("{field} = {value}: {text}"));
                }
            }
            Ok(Ok(())) => wrong.push(format!("{field} = {value} is accepted")),
            Err(panic) => wrong.push(format!("{field} = {value} panics: {:?}", panic.downcast_ref::<String>())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn page_locked_memory_refuses_them_too() {
    let allocator = Allocator::new(Sim::new());
    let settings = Settings { policy: Policy::Classic(Segments::Snug(-1.0)), ..Settings::for_host() };
    let error = allocator.pinned_with(ClassId(1), settings).err();
    assert!(matches!(&error, Some(Error::Setting(setting)) if setting.field == "slack"), "{error:?}");
}

/// What settings are drawn from.
struct Drawing(Random);

impl Drawing {
    fn yes(&mut self) -> bool {
        self.0.one_in(2)
    }

    /// Returns a share: mostly a usual one, sometimes one from the edges, or any bits.
    fn share(&mut self) -> f64 {
        match self.0.below(4) {
            0 => self.0.pick(&[0.0, -0.0, 1.0, 1000.0, 1000.1, -1.0, 1e-300, 1e30, f64::NAN, f64::INFINITY, f64::MIN]),
            1 => f64::from_bits(self.0.bits()),
            _ => (self.0.below(1000)) as f64 / 1000.0,
        }
    }

    /// Returns a size: mostly one that is allowed, sometimes one from the edges, or any.
    fn bytes(&mut self) -> u64 {
        match self.0.below(4) {
            0 => self.0.pick(&[
                0,
                1,
                512,
                10 << 20,
                (10 << 20) + 512,
                1 << 60,
                (1 << 60) + 512,
                u64::MAX,
                u64::MAX - 511,
            ]),
            1 => self.0.bits() >> (self.0.below(64)),
            _ => (11 + self.0.below(60)) << 20,
        }
    }

    fn settings(&mut self) -> Settings {
        let mut divisions = [0; 16];
        for slot in &mut divisions {
            *slot = if self.0.one_in(30) {
                self.0.bits() >> (self.0.below(64))
            } else {
                self.0.pick(&[0, 1, 2, 8, 1 << 30])
            };
        }
        let large_segment_bytes = if self.yes() { 20 << 20 } else { self.bytes() };
        let limits = [(); 2].map(|()| if self.yes() { None } else { Some(self.bytes()) });
        let mut policies: Vec<Policy> = Policy::VARIANTS.to_vec();
        policies.push(Policy::Classic(Segments::Snug(self.share())));
        Settings {
            policy: self.0.pick(&policies),
            max_split_bytes: limits[0],
            max_non_split_rounding_bytes: limits[1],
            large_segment_bytes,
            gc_threshold: if self.yes() { 0.0 } else { self.share() },
            divisions: if self.yes() { Divisions::default() } else { Divisions(divisions) },
            memory_fraction: if self.yes() { 1.0 } else { self.share() },
            throw_on_oom: self.yes(),
            search_after_wait: self.yes(),
            gc_without_limit: self.yes(),
            shorter_pages: self.yes(),
            open_ranges: self.yes(),
            ties: self.0.pick(&[Ties::Birth, Ties::Address]),
            ..Settings::default()
        }
    }
}

/// Runs a short program: sizes of every kind on two streams, one of which uses what the other has.
fn work(allocator: &Allocator<Sim>) {
    let streams = [(); 2].map(|()| allocator.create_stream().expect("a stream"));
    let mut held = Vec::new();
    for (at, bytes) in
        [1, 4096, 700 << 10, 3 << 20, 12 << 20, 40 << 20, 3 << 20, 900, 1 << 40, (1 << 60) - 1].iter().enumerate()
    {
        let [home, other] = if at % 2 == 0 { [&streams[0], &streams[1]] } else { [&streams[1], &streams[0]] };
        match home.allocate(*bytes) {
            Ok(buffer) => {
                assert!(buffer.capacity() >= *bytes);
                buffer.record_stream(other).expect("a stream of this allocator");
                held.push(buffer);
            }
            Err(Error::OutOfMemory(_) | Error::Driver { lost: false, .. }) => {}
            Err(error) => panic!("{bytes} bytes: {error}"),
        }
        if at % 3 == 2 && !held.is_empty() {
            drop(held.swap_remove(0));
        }
        allocator.check();
    }
    drop(held);
    allocator.trim(1 << 20).expect("no driver fails");
    allocator.check();
    allocator.empty_cache().expect("no driver fails");
    assert_eq!((allocator.memory_allocated(), allocator.memory_reserved()), (0, 0));
    allocator.check();
}

#[test]
fn settings_are_refused_or_they_work() {
    let (mut worked, mut refused) = (0, 0);
    for seed in 0..1500 {
        let settings = Drawing(Random::new(seed)).settings();
        let ran = std::panic::catch_unwind(|| {
            let sim =
                Sim::builder().total_bytes(1 << 30).pages(if seed % 4 == 0 { None } else { Sim::new().caps().pages });
            let built = Allocator::builder(sim.build()).settings(settings.clone()).build();
            match built {
                Ok(allocator) => {
                    work(&allocator);
                    true
                }
                Err(BuildError::Setting { .. } | BuildError::Unsupported { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        });
        match ran {
            Ok(true) => worked += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("seed {seed}: {settings:?}"),
        }
    }
    println!("{worked} worked, {refused} were refused");
    assert!(worked > 100 && refused > 100, "{worked} worked, {refused} were refused");
}

/// Keys that have no effect are told to whoever builds and to whoever has the allocator; and nothing but
/// `environment` reads the environment.
#[test]
fn settings_without_an_effect_are_told() {
    let builder = Allocator::builder(Sim::new())
        .conf("pinned_use_background_threads:True,max_split_size_mb:64")
        .conf("backend:native,pinned_use_background_threads:False")
        .environment_of(|name| (name == "MILLPOND_CONF").then(|| "release_lock_on_cudamalloc:True".into()));
    let expected = ["pinned_use_background_threads", "backend", "release_lock_on_cudamalloc"];
    assert_eq!(builder.ignored(), expected);
    let allocator = builder.build().unwrap();
    assert_eq!(allocator.ignored_settings(), expected);
    assert_eq!(allocator.snapshot().ignored, expected);
    assert_eq!(allocator.settings().max_split_bytes, Some(64 << 20));
    let anew = Allocator::builder(Sim::new()).conf("backend:native").settings(Settings::default());
    assert!(anew.ignored().is_empty(), "settings replace what was given");
    assert!(Allocator::new(Sim::new()).ignored_settings().is_empty());
}

#[test]
fn a_class_that_the_device_does_not_have_is_refused_with_those_that_it_has() {
    let build = |class| Allocator::builder(Sim::new()).class(ClassId(class)).build();
    assert!((0..2).all(|class| build(class).is_ok()));
    for class in [2, 9, u16::MAX] {
        let error = build(class).unwrap_err();
        assert!(matches!(error, BuildError::UnknownClass { class: ClassId(named), .. } if named == class), "{error}");
        let text = format!("the device simulated H200 has no class {class}: it has 0 device, 1 pinned");
        assert_eq!(error.to_string(), text);
        let pinned = Allocator::new(Sim::new()).pinned_with(ClassId(class), Settings::for_host());
        assert!(matches!(pinned, Err(Error::Unsupported { .. })), "{class}");
    }
}

/// A chain of errors, as `anyhow` or `with_causes` prints it, has each text once.
#[test]
fn what_is_wrong_with_a_configuration_is_said_once() {
    let builder = || Allocator::builder(Sim::new());
    let errors = [
        builder().conf("policy:page").build(),
        builder().environment_of(|name| (name == ENVIRONMENT[0]).then(|| "policy:page".to_owned())).build(),
        builder().settings(Settings { large_segment_bytes: 512, ..Settings::default() }).build(),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(with_causes(&error), error.to_string());
        assert!(error.to_string().len() > "in the environment variable MILLPOND_CONF: ".len(), "{error}");
    }
}
