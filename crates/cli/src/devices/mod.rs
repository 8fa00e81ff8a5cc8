//! The backends of this binary: what they are called, what they find, and how a command runs on one of them.
//!
//! A backend is one entry of [`BACKENDS`] and one variant of [`Target`]. Commands are generic over the backend; they
//! come here as a [`Job`] and are told which one it is.

mod certify;
#[cfg(feature = "cuda")]
mod cuda;
mod peers;
mod sameness;
mod sim;
mod usage;
#[cfg(feature = "vulkan")]
mod vulkan;
#[cfg(feature = "wgpu")]
mod wgpu;

use millpond_backend::{Backend, BudgetInfo, Caps, ClassId};

use crate::failure::Failure;

pub(crate) use peers::Peer;
pub(crate) use sim::SimOptions;
pub(crate) use usage::UsageRow;

/// One backend that people may ask for.
pub(crate) struct Entry {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What it finds on this machine.
    pub(crate) find: fn() -> Found,
    /// The device that `NAME` or `NAME:OPTIONS` names, from its options.
    target: fn(options: &str) -> Result<Target, Failure>,
    /// The device for a command that names none, if it has one that is no software.
    preferred: fn() -> Option<Target>,
}

/// Every backend, the most wanted first.
pub(crate) const BACKENDS: [Entry; 4] = [
    #[cfg(feature = "cuda")]
    cuda::ENTRY,
    #[cfg(not(feature = "cuda"))]
    Entry { name: "cuda", find: || not_built_in("cuda"), target: |_| Err(absent("cuda")), preferred: || None },
    #[cfg(feature = "vulkan")]
    vulkan::ENTRY,
    #[cfg(not(feature = "vulkan"))]
    Entry { name: "vulkan", find: || not_built_in("vulkan"), target: |_| Err(absent("vulkan")), preferred: || None },
    #[cfg(feature = "wgpu")]
    wgpu::ENTRY,
    #[cfg(not(feature = "wgpu"))]
    Entry { name: "wgpu", find: || not_built_in("wgpu"), target: |_| Err(absent("wgpu")), preferred: || None },
    sim::ENTRY,
];

/// What a backend has to offer here.
pub(crate) enum Found {
    /// Its devices, at least one, and those that do not open.
    Devices(Vec<Result<Device, Broken>>),
    /// Nothing, and why.
    Nothing {
        /// What is missing.
        why: String,
        /// What to do about it.
        remedy: String,
    },
}

/// Something about a device that the contract does not know: its name, and the value.
pub(crate) type Fact = (&'static str, String);

/// One device, as it is listed.
pub(crate) struct Device {
    /// What to give to `--device`.
    pub(crate) target: String,
    /// Its facts.
    pub(crate) caps: Caps,
    /// What is left of each class, where the device tells.
    pub(crate) budgets: Vec<Option<BudgetInfo>>,
    /// What else there is to know of it.
    pub(crate) facts: Vec<Fact>,
    /// What it has not, what follows, and what to do.
    pub(crate) missing: Vec<String>,
}

/// A device that is there and does not open.
pub(crate) struct Broken {
    /// What to give to `--device` once it does.
    pub(crate) target: String,
    /// What the driver calls it.
    pub(crate) name: String,
    /// What there is to know of it.
    pub(crate) facts: Vec<Fact>,
    /// What is missing.
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Device {
    /// Asks a backend.
    fn of<B: Backend>(target: &str, backend: &B) -> Self {
        let caps = backend.caps().clone();
        let budget = |class| backend.budget()?.budget(ClassId(class)).ok();
        let budgets = (0..caps.classes.len() as u16).map(budget).collect();
        Self { target: target.into(), caps, budgets, facts: Vec::new(), missing: Vec::new() }
    }
}

/// A device that was chosen.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Target {
    /// A simulated one.
    Sim(Box<SimOptions>),
    /// One of CUDA's.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaOptions),
    /// One of Vulkan's.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::VulkanOptions),
    /// One of wgpu's.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuOptions),
}

/// Something to do on a device, whichever backend it has.
pub(crate) trait Job {
    /// What comes of it.
    type Output;

    /// Does it on a device that has served nobody yet.
    fn run<B: Backend + Clone>(self, backend: B) -> Result<Self::Output, Failure>;
}

impl Target {
    /// The device that a text names, or the best one there is.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a name or an option that nobody knows; [`Failure::Device`] for a device that is missing.
    pub(crate) fn choose(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Self::best() };
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        match BACKENDS.iter().find(|entry| entry.name == name) {
            Some(entry) => (entry.target)(options),
            None => {
                let names = BACKENDS.map(|entry| entry.name).join(", ");
                Err(Failure::Input(format!(
                    "no backend is called `{name}`; there are {names}, and `millpond devices` says which have devices"
                )))
            }
        }
    }

    /// The first that is no software; the simulated device is always there.
    fn best() -> Result<Self, Failure> {
        match BACKENDS.iter().find_map(|entry| (entry.preferred)()) {
            Some(target) => Ok(target),
            None => Err(Failure::Device("no backend has a device; `millpond devices` says why".into())),
        }
    }

    /// What people call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sim(_) => "sim",
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => "cuda",
            #[cfg(feature = "vulkan")]
            Self::Vulkan(_) => "vulkan",
            #[cfg(feature = "wgpu")]
            Self::Wgpu(_) => "wgpu",
        }
    }

    /// Opens the device and does a job on it.
    ///
    /// # Errors
    ///
    /// The job's, and [`Failure::Device`] if the device does not open.
    pub(crate) fn run<J: Job>(&self, job: J) -> Result<J::Output, Failure> {
        match self {
            Self::Sim(options) => job.run(options.open()),
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.run(job),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(options) => options.run(job),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(options) => options.run(job),
        }
    }
}

#[cfg(not(all(feature = "cuda", feature = "vulkan", feature = "wgpu")))]
fn not_built_in(name: &str) -> Found {
    Found::Nothing {
        why: format!("this binary was built without the {name} backend"),
        remedy: "use another device, or a binary that has it".into(),
    }
}

#[cfg(not(all(feature = "cuda", feature = "vulkan", feature = "wgpu")))]
fn absent(name: &str) -> Failure {
    Failure::Device(format!(
        "this binary was built without the {name} backend; `millpond devices` lists what there is, as `--device sim`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_chosen_by_name() {
        assert_eq!(Target::choose(Some("sim")), Ok(Target::Sim(Box::default())));
        assert!(matches!(Target::choose(Some("simulated")), Err(Failure::Input(_))));
        for entry in &BACKENDS {
            match Target::choose(Some(entry.name)) {
                Ok(target) => assert_eq!(target.name(), entry.name),
                Err(error) => assert!(error.to_string().contains("built without"), "{error}"),
            }
        }
    }

    #[test]
    fn what_is_listed_can_be_chosen() {
        for entry in &BACKENDS {
            if let Found::Devices(devices) = (entry.find)() {
                for listed in devices {
                    let target = listed.map_or_else(|broken| broken.target, |device| device.target);
                    assert!(Target::choose(Some(&target)).is_ok(), "{target}");
                }
            }
        }
    }

    #[test]
    fn the_simulated_device_is_always_there() {
        assert!(Target::choose(None).is_ok());
        assert_eq!((BACKENDS[BACKENDS.len() - 1].preferred)(), Some(Target::Sim(Box::default())));
    }
}
