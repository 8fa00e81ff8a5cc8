//! The backends of this binary: their names, the devices that they find, and how a command runs on one of them.
//!
//! A backend is one entry of [`BACKENDS`] and one variant of [`Target`]. Commands are generic over the backend: each
//! passes a [`Job`], which is run with the backend of the chosen device.

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

/// The page on devices that the `--help` of several commands prints.
pub(crate) const DEVICE_HELP: &str = "\
The device: NAME or NAME:KEY=VALUE,... as `millpond devices` lists them

The simulated device takes options:
  bytes=SIZE                  its memory (an H200's 139.80 GiB unless given)
  reuse=in-order|after-done   when a stream's freed memory may be used on it again (in-order unless given)
  pages=SIZE|none             granularity of its virtual memory (2MiB unless given)
  cost=h200|h200-vulkan|free  what driver calls cost on its clock (as on an H200 through CUDA unless given)
  completion=at-once|random:SEED
                              when queued work is done (at once unless given; only --touch queues any)

A CUDA device is named by its number, cuda:0, and takes options behind a comma:
  alloc=async                 segments come from the driver's own pool, by cuMemAllocAsync; alloc=sync, the
                              default, is cuMemAlloc
  pages=none                  without virtual memory, even where it has it

A Vulkan device is named by its number, vulkan:0, and takes options behind a comma:
  validation                  the validation layer watches; what it objects to ends the command with code 1
  pages=none                  without virtual memory, even where it has it

An adapter of wgpu is named the same way, wgpu:0:
  polls                       wgpu alone is asked what is done, not a semaphore
[default: the first GPU, by cuda, vulkan or wgpu, or else sim; devices in software are used only by name]";

pub(crate) use peers::Peer;
pub(crate) use sim::SimOptions;
pub(crate) use usage::UsageRow;

/// A backend that can be chosen by name.
pub(crate) struct Entry {
    /// The name of the backend in `--device`.
    pub(crate) name: &'static str,
    /// Looks for the devices of the backend on this machine.
    pub(crate) find: fn() -> Found,
    /// Parses the options of `NAME` or `NAME:OPTIONS` and returns the device that they name.
    target: fn(options: &str) -> Result<Target, Failure>,
    /// Returns the device for a command that names none, if the backend has one that is not in software.
    preferred: fn() -> Option<Target>,
}

/// All backends, the preferred ones first.
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

/// The result of looking for the devices of a backend.
pub(crate) enum Found {
    /// The devices, at least one, including those that do not open.
    Devices(Vec<Result<Device, Broken>>),
    /// No device, and the reason.
    Nothing {
        /// What is missing.
        why: String,
        /// What to do about it.
        remedy: String,
    },
}

/// A fact about a device that the backend contract does not cover: its name and its value.
pub(crate) type Fact = (&'static str, String);

/// One device, as it is listed.
pub(crate) struct Device {
    /// The value of `--device` that chooses it.
    pub(crate) target: String,
    /// Its capabilities.
    pub(crate) caps: Caps,
    /// The budget of each class, where the device reports it.
    pub(crate) budgets: Vec<Option<BudgetInfo>>,
    /// Further facts about it.
    pub(crate) facts: Vec<Fact>,
    /// What the device lacks, each with its consequence and its remedy.
    pub(crate) missing: Vec<String>,
}

/// A device that is present but does not open.
pub(crate) struct Broken {
    /// The value of `--device` that would choose it if it opened.
    pub(crate) target: String,
    /// The name that the driver gives it.
    pub(crate) name: String,
    /// Facts about it.
    pub(crate) facts: Vec<Fact>,
    /// What is missing.
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Device {
    /// Describes a device by what its backend reports.
    fn of<B: Backend>(target: &str, backend: &B) -> Self {
        let caps = backend.caps().clone();
        let budget = |class| backend.budget()?.budget(ClassId(class)).ok();
        let budgets = (0..caps.classes.len() as u16).map(budget).collect();
        Self { target: target.into(), caps, budgets, facts: Vec::new(), missing: Vec::new() }
    }
}

/// A device that was chosen, with its options.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Target {
    /// A simulated device.
    Sim(Box<SimOptions>),
    /// A CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaOptions),
    /// A Vulkan device.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::VulkanOptions),
    /// A wgpu device.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuOptions),
}

/// Work to be done on a device of any backend.
pub(crate) trait Job {
    /// The result of the job.
    type Output;

    /// Runs the job on a device that was opened for it.
    fn run<B: Backend + Clone>(self, backend: B) -> Result<Self::Output, Failure>;
}

impl Target {
    /// Returns the device that a text names, or the best one there is if the command names none.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for an unknown name or option, and [`Failure::Device`] for a device that is missing.
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

    /// Returns the first device that is not in software, or else the simulated device.
    fn best() -> Result<Self, Failure> {
        match BACKENDS.iter().find_map(|entry| (entry.preferred)()) {
            Some(target) => Ok(target),
            None => Err(Failure::Device("no backend has a device; `millpond devices` says why".into())),
        }
    }

    /// Returns the name of its backend.
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

    /// Opens the device and runs a job on it.
    ///
    /// # Errors
    ///
    /// Returns the error of the job, and [`Failure::Device`] if the device does not open.
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
