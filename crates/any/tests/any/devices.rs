//! One program on every device that there is.

use millpond_any::{AnyAllocator, AnyDevice, AnyError, devices};

/// Returns whether the variable `MILLPOND_REQUIRE` names a backend, so that it must not be missing.
fn is_required(backend: &str) -> bool {
    std::env::var("MILLPOND_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name == backend))
}

/// Opens the first device of a backend, or says that there is none.
pub(crate) fn open(backend: &str) -> Option<AnyAllocator> {
    match AnyDevice::open(backend) {
        Ok(device) => Some(AnyAllocator::new(device)),
        Err(AnyError::NotBuiltIn { .. }) => {
            eprintln!("SKIPPED: the tests were built without {backend}");
            None
        }
        Err(error) => {
            assert!(!is_required(backend), "MILLPOND_REQUIRE demands {backend}: {error}");
            eprintln!("SKIPPED: {backend} is not there: {error}");
            None
        }
    }
}

/// Computes on a device: nothing here names it.
fn program(allocator: &AnyAllocator) -> Result<(), AnyError> {
    let streams = match allocator.create_stream() {
        Ok(first) => vec![allocator.create_stream().unwrap_or_else(|_| first.clone()), first],
        Err(error) => return Err(error.into()),
    };
    let (one, two) = (&streams[0], &streams[1]);
    let (from, to) = (one.allocate(1 << 20)?, one.allocate(4096)?);
    one.fill(&from, 0, 1 << 20, 7)?;
    one.upload(&from, 4096, b"millpond")?;
    let ready = one.submit()?;
    if allocator.backend().caps().stream_wait {
        two.wait_for(ready)?;
    } else {
        allocator.wait(ready)?;
    }
    two.copy((&from, 4096), (&to, 8), 8)?;
    two.fill(&to, 0, 8, b'.')?;
    let copied = two.submit()?;
    from.used_until(copied)?;
    to.used_until(copied)?;
    drop(from);
    allocator.wait(copied)?;
    assert!(allocator.reached(copied)?);
    let mut bytes = [0; 16];
    two.download(&to, 0, &mut bytes)?;
    assert_eq!(&bytes, b"........millpond");

    if let Ok(pinned) = allocator.pinned() {
        let mut host = pinned.allocate(8)?;
        host.bytes_mut()?.copy_from_slice(b"mill and");
        two.upload_pinned((&host, 0), (&to, 0), 8)?;
        two.download_pinned((&to, 0), (&mut host, 0), 8)?;
        host.wait()?;
        assert_eq!(host.bytes()?, b"mill and");
    }
    drop(to);
    assert_eq!(allocator.memory_allocated(), 0);
    allocator.check();
    // Where the application submits, memory goes back once the ticks of its free are submitted and reached.
    one.synchronize()?;
    two.synchronize()?;
    allocator.empty_cache()?;
    assert_eq!(allocator.memory_reserved(), 0);
    Ok(())
}

fn runs_on(backend: &str) {
    let Some(allocator) = open(backend) else { return };
    assert_eq!(allocator.backend().backend_name(), backend);
    program(&allocator).unwrap_or_else(|error| panic!("{backend}: {error}"));
    let found = devices().into_iter().flatten().find(|found| found.name.split(':').next() == Some(backend));
    let found = found.expect("what was opened is listed");
    let again = AnyDevice::open(&found.name).expect("what is listed opens");
    assert_eq!(again.backend_name(), backend);
}

#[test]
fn the_program_runs_on_the_simulated_device() {
    runs_on("sim");
}

#[test]
fn the_program_runs_on_vulkan() {
    runs_on("vulkan");
}

#[test]
fn the_program_runs_on_wgpu() {
    runs_on("wgpu");
}

#[cfg(feature = "vulkan")]
#[test]
fn things_of_one_backend_are_refused_by_another() {
    use millpond_any::ErrorKind;
    let Some(vulkan) = open("vulkan") else { return };
    let (_, sim, [stream, _]) = crate::two_streams();
    let buffer = vulkan.create_stream().unwrap().allocate(8).unwrap();
    let error = stream.fill(&buffer, 0, 8, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    let (error, buffer) = sim.free(buffer).unwrap_err();
    let text = "the buffer belongs to the allocator of device 0 (";
    assert!(error.to_string().starts_with(text) && error.to_string().contains("(simulated H200)"), "{error}");
    let segment = buffer.segment().unwrap();
    assert!(segment.as_vulkan().is_some() && segment.as_sim().is_none());
}
