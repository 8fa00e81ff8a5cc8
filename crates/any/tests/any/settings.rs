//! Configuring an allocator.

use millpond_any::millpond::BuildError;
use millpond_any::millpond::settings::{Policy, Segments, Settings};
use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyAllocator, AnyBuilder, AnyError, ClassId, ErrorKind};

fn builder() -> AnyBuilder {
    AnyAllocator::builder(Sim::new().into())
}

fn classic() -> Settings {
    Settings { policy: Policy::Classic(Segments::Plain), ..Settings::default() }
}

#[test]
fn settings_and_texts_on_top_of_them_reach_the_allocator() {
    let allocator = builder().settings(classic()).conf("max_split_size_mb:64").limit(1 << 30).build().unwrap();
    let settings = allocator.settings();
    assert_eq!(settings.policy, classic().policy);
    assert_ne!(settings, classic(), "the text came on top");
    assert_eq!(allocator.limit(), Some(1 << 30));
}

#[test]
fn the_environment_is_read_where_it_is_asked_for() {
    let found = |name: &str| (name == "PYTORCH_CUDA_ALLOC_CONF").then(|| "policy:direct".to_owned());
    let allocator = builder().environment_of(found).build().unwrap();
    assert_eq!(allocator.settings().policy, Policy::Direct);
    assert_eq!(builder().environment().build().map(drop).map_err(|error| error.kind()), Ok(()));
}

#[test]
fn a_class_and_a_number_of_the_device_are_set() {
    let allocator = builder().class(ClassId(1)).device(7).build().unwrap();
    assert_eq!(allocator.class(), ClassId(1));
    assert!(allocator.memory_summary(true).contains("device ID 7"), "{}", allocator.memory_summary(true));
    assert_eq!(format!("{:?}", builder()), "AnyBuilder(sim)");
}

#[test]
fn mistakes_are_told_by_build() {
    let error = builder().conf("policy:fast").build().unwrap_err();
    assert!(matches!(error, AnyError::Build(BuildError::Conf { .. })), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Input);
    let flat = Sim::builder().pages(None).build();
    let error = AnyAllocator::builder(flat.into()).conf("policy:paged").build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("policy:paged needs virtual memory"), "{error}");
}
