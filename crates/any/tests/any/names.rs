//! Devices by name, and the best one.

use millpond_any::millpond::settings::Policy;
use millpond_any::{AnyDevice, AnyError, ErrorKind, devices, open, open_best};

#[test]
fn a_simulated_device_is_opened_with_its_options() {
    let allocator = open("sim:bytes=1GiB,pages=none", "").unwrap();
    assert_eq!(allocator.backend().caps().classes[0].total_bytes, 1 << 30);
    assert!(matches!(allocator.settings().policy, Policy::Classic(_)), "there are no pages");
    assert_eq!(open("sim", "policy:direct").unwrap().settings().policy, Policy::Direct);
}

#[test]
fn names_of_nothing_are_refused_with_what_there_is() {
    let cases = [
        ("", "there is no backend ``; there are cuda, vulkan, wgpu, sim"),
        ("metal:0", "there is no backend `metal`"),
        ("sim:0", "`0` is no option"),
        ("sim:bytes=lots", "`bytes`: `lots` is no size"),
    ];
    for (name, expected) in cases {
        let error = open(name, "").unwrap_err();
        assert!(matches!(&error, AnyError::Name { name: told, .. } if told == name), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = open("sim", "policy:fast").unwrap_err();
    assert!(matches!(error, AnyError::Build(_)), "{error:?}");
}

#[test]
fn a_backend_that_is_not_there_says_why() {
    let built_in = [cfg!(feature = "cuda"), cfg!(feature = "vulkan"), cfg!(feature = "wgpu")];
    for (backend, built_in) in ["cuda", "vulkan", "wgpu"].into_iter().zip(built_in) {
        let name = format!("{backend}:99");
        let error = AnyDevice::open(&name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
        assert!(error.to_string().contains(&name), "{error}");
        assert_eq!(matches!(error, AnyError::NotBuiltIn { .. }), !built_in, "{error:?}");
        assert_eq!(error.driver().is_some(), built_in);
        assert_eq!(AnyDevice::open(&format!("{backend}:x")).unwrap_err().kind() == ErrorKind::Input, built_in);
    }
}

#[test]
fn the_best_device_is_the_first_gpu_or_else_the_simulated_one() {
    let best = open_best("policy:direct").unwrap();
    assert_eq!(best.allocator.settings().policy, Policy::Direct);
    let gpu = devices().into_iter().flatten().find(|found| found.is_gpu);
    if gpu.is_none() {
        assert_eq!((best.name.as_str(), best.allocator.backend().backend_name()), ("sim", "sim"));
        let tried: Vec<_> = best.passed_over.iter().map(|it| it.backend).collect();
        assert_eq!(tried, ["cuda", "vulkan", "wgpu"]);
    }
    assert!(best.name.starts_with(best.allocator.backend().backend_name()));
    for it in &best.passed_over {
        assert!(!it.why.is_empty() && it.to_string() == format!("{}: {}", it.backend, it.why));
    }
    assert!(matches!(open_best("policy:fast"), Err(AnyError::Build(_))));
}

#[test]
fn the_simulated_device_is_listed_last_and_all_names_are_of_their_backend() {
    let listed = devices();
    let last = listed.last().unwrap().as_ref().unwrap();
    assert_eq!((last.name.as_str(), last.is_gpu), ("sim", false));
    assert!(!last.label.is_empty());
    for found in listed.iter().flatten() {
        let backend = found.name.split(':').next().unwrap();
        assert!(millpond_any::BACKENDS.contains(&backend), "{found:?}");
    }
}
