//! Input that is refused, with errors that say why.

use std::process::Command;

use millpond_backend::{Backend, BackendError, ClassId, Fault, Transfer};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Misuse, QueueChoice, Vulkan, VulkanError};

use crate::lab::{Lab, QUEUES, skip};

/// The variable that is set in the process that runs a test again, in an environment with other drivers.
const CHILD: &str = "MILLPOND_TEST_WITHOUT_DRIVER";

#[test]
fn a_loader_that_is_not_there() {
    // SAFETY: there is no library, so none of its code runs.
    let builder = unsafe { Vulkan::builder().loader("/nonexistent/libvulkan.so.1") };
    for error in [builder.devices().map(drop).unwrap_err(), builder.build().map(drop).unwrap_err()] {
        assert!(matches!(&error, VulkanError::NoLoader { loader, .. } if loader == "/nonexistent/libvulkan.so.1"));
        assert!(error.to_string().contains("install"), "{error}");
    }
}

#[test]
fn a_machine_without_a_driver() {
    if std::env::var_os(CHILD).is_some() {
        for error in [Vulkan::devices().map(drop).unwrap_err(), Vulkan::open(0).map(drop).unwrap_err()] {
            let known = matches!(error, VulkanError::NoDriver { .. } | VulkanError::NoLoader { .. });
            assert!(known && error.to_string().contains("install"), "{error}");
        }
        return;
    }
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .args(["--exact", "input::a_machine_without_a_driver"])
        .env(CHILD, "1")
        .env("VK_DRIVER_FILES", "/nonexistent/driver.json")
        .env("VK_ICD_FILENAMES", "/nonexistent/driver.json")
        .env_remove("VK_ADD_DRIVER_FILES")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

/// A loader lists the devices of drivers that do not do all that Vulkan requires, as MoltenVK, if it is asked to.
#[test]
fn a_driver_that_does_not_do_all_that_vulkan_requires() {
    if std::env::var_os(CHILD).is_some() {
        Vulkan::open(0).map(drop).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let Some(_there) = Lab::open() else { return };
    let Some(manifest) = std::env::var_os("VK_DRIVER_FILES") else {
        return skip("portability", "VK_DRIVER_FILES names no driver");
    };
    let Ok(text) = std::fs::read_to_string(&manifest) else {
        return skip("portability", &format!("{} is not the manifest of one driver", manifest.display()));
    };
    let version = "\"api_version\"";
    assert!(text.contains(version), "{text}");
    if text.contains("\"./") || text.contains("\"../") {
        return skip("portability", "the manifest says where its driver is from its own folder, and a copy cannot");
    }
    let portable = text.replacen(version, &format!("\"is_portability_driver\": true, {version}"), 1);
    let path = std::env::temp_dir().join(format!("millpond-portable-{}.json", std::process::id()));
    std::fs::write(&path, portable).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "input::a_driver_that_does_not_do_all_that_vulkan_requires"])
        .env(CHILD, "1")
        .env("VK_DRIVER_FILES", &path)
        .env_remove("VK_ADD_DRIVER_FILES")
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_device_that_is_not_there() {
    let Some(_there) = Lab::open() else { return };
    let count = Vulkan::devices().unwrap().len();
    let error = Vulkan::open(count).map(drop).unwrap_err();
    assert!(matches!(error, VulkanError::NoDevice { index, count: there } if (index, there) == (count, count)));
}

#[test]
fn queues_that_are_not_there() {
    let Some(lab) = Lab::open() else { return };
    let error = lab.stream_on(77, 0).unwrap_err();
    assert!(matches!(error, VulkanError::NoQueue { family: 77, index: 0, .. }));
    assert!(error.to_string().contains("queue 0 of family 0"), "it names what there is: {error}");
    let count = Vulkan::devices().unwrap()[0].queue_families[0].count;
    assert!(matches!(lab.stream_on(0, count), Err(VulkanError::NoQueue { family: 0, .. })));
    for wanted in [(77, 1), (0, count + 1), (0, 0)] {
        let chosen = Vulkan::builder().queues(QueueChoice::Exactly(vec![wanted])).build();
        assert!(matches!(chosen, Err(VulkanError::NoQueue { family, .. }) if family == wanted.0), "{wanted:?}");
    }
    assert!(lab.create_stream().is_ok(), "the numbering has no holes");
}

#[test]
fn queues_that_were_chosen_badly() {
    let Some(_there) = Lab::open() else { return };
    let choose = |wanted: Vec<(u32, u32)>| Vulkan::builder().queues(QueueChoice::Exactly(wanted)).build().map(drop);
    let error = choose(vec![]).unwrap_err();
    assert!(matches!(error, VulkanError::NoQueues { .. }), "{error}");
    assert!(error.to_string().contains("of family 0"), "it names what there is: {error}");
    for twice in [vec![(0, 1), (0, 1)], vec![(0, 1), (0, 1), (77, 1)]] {
        let error = choose(twice).unwrap_err();
        assert!(matches!(error, VulkanError::QueueTwice { family: 0, index: 0 }), "{error}");
    }
    choose(vec![(0, 1)]).unwrap();
}

/// The device is opened without the extensions that these need, so no buffer may have them.
#[test]
fn usages_whose_features_are_off() {
    use vk::BufferUsageFlags as Usage;
    let Some(there) = Lab::open() else { return };
    let plain = Usage::STORAGE_BUFFER;
    let others = [
        Usage::ACCELERATION_STRUCTURE_STORAGE_KHR,
        Usage::VIDEO_DECODE_SRC_KHR,
        Usage::CONDITIONAL_RENDERING_EXT,
        Usage::TRANSFORM_FEEDBACK_BUFFER_EXT,
        Usage::from_raw(1 << 31),
    ];
    let classes = [ClassId(0), ClassId(1), ClassId(2)];
    for (class, other) in classes.into_iter().cycle().zip(others) {
        let error = Vulkan::builder().usage(class, plain | other).build().map(drop).unwrap_err();
        let VulkanError::Usage { class: named, refused, .. } = error else { panic!("{other:?}: {error}") };
        assert_eq!((named, refused), (class, other));
    }
    let with = |usage| classes.into_iter().fold(Vulkan::builder().queues(QUEUES), |all, class| all.usage(class, usage));
    assert_eq!(with(plain | Usage::SHADER_DEVICE_ADDRESS).build().is_ok(), there.enabled().buffer_device_address);
    there.beside_with(with(plain)).unwrap();
}

#[test]
fn segments_that_cannot_be() {
    let Some(lab) = Lab::open() else { return };
    let max = lab.caps().class(ClassId::DEVICE).max_segment_bytes;
    let error = lab.reserve(ClassId::DEVICE, max + 1).unwrap_err();
    assert!(matches!(error, VulkanError::TooLarge { asked, max: most } if (asked, most) == (max + 1, max)));
    assert_eq!(error.fault(), Fault::OutOfMemory);
    let error = lab.reserve(ClassId::DEVICE, 0).unwrap_err();
    assert!(matches!(error, VulkanError::Misuse(Misuse::Empty { .. })) && error.fault() == Fault::Other, "{error}");
    assert_eq!(lab.held_bytes(), 0);
}

#[test]
fn memory_alone_that_cannot_be() {
    let Some(lab) = Lab::open() else { return };
    assert!(lab.allocate_and_free(ClassId::DEVICE, 1 << 20).is_ok());
    let error = lab.allocate_and_free(ClassId::DEVICE, 0).unwrap_err();
    let empty = VulkanError::Misuse(Misuse::Empty { call: "allocate_and_free" });
    assert_eq!((error.to_string(), error.fault()), (empty.to_string(), Fault::Other));
    let error = lab.allocate_and_free(ClassId::DEVICE, u64::MAX).unwrap_err();
    assert!(matches!(error, VulkanError::TooLarge { asked: u64::MAX, .. }), "{error}");
}

#[test]
fn ranges_outside_the_segment() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let (segment, other) = (lab.segment(100), lab.segment(100));
    for (offset, bytes) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 2), (1, u64::MAX)] {
        let mut results = vec![
            lab.fill(stream, &segment, offset, bytes, 0),
            lab.copy(stream, (&segment, offset), (&other, 0), bytes),
            lab.copy(stream, (&other, 0), (&segment, offset), bytes),
        ];
        if bytes < 200 {
            results.push(lab.upload(stream, &vec![0; bytes as usize], &segment, offset));
            results.push(lab.download(stream, &segment, offset, &mut vec![0; bytes as usize]));
        }
        for (index, result) in results.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert!(
                matches!(error, VulkanError::Misuse(Misuse::OutOfRange { segment_bytes: 100, .. })),
                "{index}: {error}"
            );
        }
    }
    let overlap = lab.copy(stream, (&segment, 0), (&segment, 10), 11).unwrap_err();
    assert!(matches!(overlap, VulkanError::Misuse(Misuse::OverlapWithin { from: 0, to: 10, bytes: 11 })), "{overlap}");
    lab.copy(stream, (&segment, 0), (&segment, 10), 10).unwrap();
    lab.finish(stream);
    [segment, other].into_iter().for_each(|segment| lab.give_back(segment));
}

#[test]
fn segments_of_another_device() {
    let Some(lab) = Lab::open() else { return };
    let Some(elsewhere) = lab.beside() else { return };
    let stream = lab.create_stream().unwrap();
    let (own, foreign) = (lab.segment(64), elsewhere.segment(64));
    let results = [
        lab.fill(stream, &foreign, 0, 4, 0),
        lab.copy(stream, (&own, 0), (&foreign, 0), 4),
        lab.copy(stream, (&foreign, 0), (&own, 0), 4),
        lab.upload(stream, &[0; 4], &foreign, 0),
        lab.download(stream, &foreign, 0, &mut [0; 4]),
    ];
    for (index, result) in results.into_iter().enumerate() {
        assert!(
            matches!(result, Err(VulkanError::Misuse(Misuse::Foreign { own, other, .. })) if own != other),
            "{index}"
        );
    }
    // SAFETY: no work touches the segment; the release panics before it does anything.
    let release = std::panic::AssertUnwindSafe(|| unsafe { lab.release(foreign) });
    let panic = std::panic::catch_unwind(release).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.starts_with("release: the segment is of Vulkan device"), "{said}");
    lab.give_back(own);
}

#[test]
#[should_panic(expected = "stream 5 asked of a Vulkan device that has 1 streams")]
fn a_stream_that_was_never_opened() {
    let Some(lab) = Lab::open() else { panic!("stream 5 asked of a Vulkan device that has 1 streams: there is none") };
    lab.create_stream().unwrap();
    lab.mark(millpond_backend::StreamId(5));
}
