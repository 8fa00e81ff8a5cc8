//! An opened device that is checked until it is destroyed.

use std::ops::Deref;
use std::sync::MutexGuard;

use millpond_backend::{Backend, ClassId, Point, StreamId, StreamWait, Tick, Transfer};
use millpond_conformance::{DeviceUnderTest as _, VulkanDevice};
use millpond_vulkan::ash::{ext, vk};
use millpond_vulkan::{
    QueueChoice, Segment, SemaphoreAt, Submission, ValidationLog, Vulkan, VulkanBuilder, VulkanError,
};

/// The most queues of each family that tests open. All queues of a large GPU take a second to open, for each test.
pub(crate) const QUEUES: QueueChoice = QueueChoice::AtMost(2);

/// The device under test. Dropping it destroys the device and asserts that the layer reported nothing, warnings
/// included.
pub(crate) struct Lab {
    device: Option<Vulkan>,
    log: Option<ValidationLog>,
    warnings: Option<Warnings>,
    /// Devices that the layer watches take turns.
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Lab {
    /// Opens the machine's first device. Returns `None`, and prints a line, if there is none.
    pub(crate) fn open() -> Option<Lab> {
        Lab::build(Vulkan::builder())
    }

    /// Opens the machine's first device once more, in the turn that this one has.
    pub(crate) fn beside(&self) -> Option<Lab> {
        self.beside_with(Vulkan::builder())
    }

    /// Builds the device that this builder describes, in the turn that this one has.
    pub(crate) fn beside_with(&self, builder: VulkanBuilder) -> Option<Lab> {
        Lab::build_in(None, builder)
    }

    /// Builds the device that this builder describes, with few queues.
    pub(crate) fn build(builder: VulkanBuilder) -> Option<Lab> {
        Lab::build_in(VulkanDevice::new(0).validation(true).turn(), builder)
    }

    fn build_in(turn: Option<MutexGuard<'static, ()>>, builder: VulkanBuilder) -> Option<Lab> {
        let builder = builder.queues(QUEUES);
        match builder.clone().validation(true).build() {
            Ok(device) => {
                let (log, warnings) = (device.validation().cloned(), Some(Warnings::of(&device)));
                Some(Lab { log, warnings, device: Some(device), _turn: turn })
            }
            Err(VulkanError::NoValidation) => {
                drop(turn);
                miss("validation", &VulkanError::NoValidation);
                let device = builder.build().map_err(|error| miss("vulkan", &error)).ok()?;
                Some(Lab { device: Some(device), log: None, warnings: None, _turn: None })
            }
            Err(error) => {
                miss("vulkan", &error);
                None
            }
        }
    }

    /// Returns the errors and warnings that the layer has reported so far.
    pub(crate) fn errors(&self) -> Vec<String> {
        let logs = self.log.iter().chain(self.warnings.as_ref().map(|warnings| &warnings.log));
        logs.flat_map(ValidationLog::errors).collect()
    }

    /// Destroys the device, unless another handle of it is left.
    fn end(&mut self) {
        if let (Some(device), Some(warnings)) = (self.device.take(), &self.warnings) {
            warnings.end(&device);
        }
    }

    /// Returns whether the layer checks the device.
    pub(crate) fn is_watched(&self) -> bool {
        self.log.is_some()
    }

    /// Destroys the device, unless another handle of it is left, and returns all errors that the layer reported.
    pub(crate) fn close(mut self) -> Vec<String> {
        self.end();
        let errors = self.errors();
        (self.log, self.warnings) = (None, None);
        errors
    }

    /// Takes a segment of device memory of that many bytes.
    pub(crate) fn segment(&self, bytes: u64) -> Segment {
        self.reserve(ClassId::DEVICE, bytes).unwrap()
    }

    /// Gives a segment back when no work on it is in progress any more.
    pub(crate) fn give_back(&self, segment: Segment) {
        // SAFETY: the tests call this when all work on the segment was waited for, and record no more.
        unsafe { self.release(segment) };
    }

    /// Reads the segment's bytes, after all earlier work of the stream.
    pub(crate) fn read(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64) -> Vec<u8> {
        let mut read = vec![0; bytes as usize];
        self.download(stream, segment, offset, &mut read).unwrap();
        read
    }

    /// Makes the stream wait for a point, on the device.
    pub(crate) fn after(&self, stream: StreamId, point: Point) -> Result<(), VulkanError> {
        StreamWait::wait_for(&**self, stream, point)
    }

    /// Submits, and waits for all work that was submitted on the stream.
    pub(crate) fn finish(&self, stream: StreamId) -> Tick {
        let tick = self.submit(stream).unwrap();
        assert_eq!(self.wait(Point { stream, tick }).unwrap(), tick);
        tick
    }
}

impl Deref for Lab {
    type Target = Vulkan;

    fn deref(&self) -> &Vulkan {
        self.device.as_ref().expect("the device is there until close takes it")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.end();
        if !std::thread::panicking() {
            assert_eq!(self.errors(), [""; 0], "the validation layer objects");
        }
    }
}

/// The warnings of the layer, which the device's own log does not keep.
struct Warnings {
    log: ValidationLog,
    utils: ext::debug_utils::Instance,
    messenger: vk::DebugUtilsMessengerEXT,
}

impl Warnings {
    /// Keeps the warnings about a device that the layer watches.
    fn of(device: &Vulkan) -> Warnings {
        use vk::DebugUtilsMessageTypeFlagsEXT as Kind;
        let log = ValidationLog::installed(device.entry()).unwrap();
        let utils = ext::debug_utils::Instance::new(device.entry(), device.raw_instance());
        let info = log
            .messenger()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::WARNING)
            .message_type(Kind::VALIDATION | Kind::PERFORMANCE);
        // SAFETY: the device's instance has the extension; the log lives longer than the messenger.
        let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }.unwrap();
        Warnings { log, utils, messenger }
    }

    /// Ends with the device, before its instance.
    fn end(&self, _alive: &Vulkan) {
        // SAFETY: the device is alive, and its instance with it; `Lab::end` takes the device, and so comes here once.
        unsafe { self.utils.destroy_debug_utils_messenger(self.messenger, None) };
    }
}

/// Prints what is missing, and fails if it is required.
fn miss(power: &str, error: &VulkanError) {
    skip(power, &error.to_string());
}

/// Prints that a test, or the rest of it, is skipped; fails if the capability is required.
pub(crate) fn skip(power: &str, reason: &str) {
    let required = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|each| each.trim() == power), "MILLPOND_REQUIRE names {power}: {reason}");
    eprintln!("SKIPPED ({power}): {reason}");
}

/// Returns the error that a call must return.
pub(crate) fn error<T>(result: Result<T, VulkanError>) -> VulkanError {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => error,
    }
}

/// A timeline semaphore that only the test signals, and that a submit waits for.
pub(crate) struct Latch<'a> {
    device: &'a Vulkan,
    semaphore: vk::Semaphore,
}

impl<'a> Latch<'a> {
    pub(crate) fn new(device: &'a Vulkan) -> Latch<'a> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores.
        let semaphore = unsafe { device.raw_device().create_semaphore(&info, None) }.unwrap();
        Latch { device, semaphore }
    }

    /// Closes the stream's open tick by a submit that waits for the latch.
    pub(crate) fn submit(&self, stream: StreamId) -> Tick {
        let stages = vk::PipelineStageFlags2::ALL_COMMANDS;
        let waits = [SemaphoreAt { semaphore: self.semaphore, value: 1, stages }];
        // SAFETY: the semaphore lives until `drop`, before which the tests wait for the submit.
        unsafe { self.device.submit_with(stream, &Submission { waits: &waits, ..Submission::default() }) }.unwrap()
    }

    pub(crate) fn open(&self) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(1);
        // SAFETY: no other code signals the semaphore.
        unsafe { self.device.raw_device().signal_semaphore(&info) }.unwrap();
    }
}

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        // SAFETY: the submits that wait for it were released and waited for.
        unsafe { self.device.raw_device().destroy_semaphore(self.semaphore, None) };
    }
}
