//! An allocator of any kind: on which device, and whether the process shares it.

use millpond_cuda::Cuda;
use millpond_sim::Sim;

use crate::addresses::Addresses;
use crate::code::Failure;
use crate::devices::{self, Name};
use crate::served::Of;
use crate::table::pond::Pond;

/// An allocator of any device.
pub(crate) enum Served {
    Sim(Of<Sim>),
    Cuda(Of<Cuda>),
    /// The one of a device that the whole process shares.
    Shared(&'static Pond),
}

/// Calls a method of the allocator, whatever its device is.
macro_rules! on {
    ($served:expr, $of:ident => $call:expr) => {
        match $served {
            $crate::kind::Served::Sim($of) => $call,
            $crate::kind::Served::Cuda($of) => $call,
            $crate::kind::Served::Shared(pond) => $crate::table::pond::on!(pond, shared => {
                let $of = &shared.served;
                $call
            }),
        }
    };
}
pub(crate) use on;

impl Served {
    /// Opens a device and creates an allocator on it. Without a configuration that of the environment applies.
    pub(crate) fn open(device: &str, conf: Option<&str>) -> Result<Served, Failure> {
        match Name::parse(device)? {
            Name::Sim(number) => Ok(Served::Sim(Of::new(devices::open_sim(number)?, conf, number, Addresses::new())?)),
            Name::Cuda(ordinal) => {
                let cuda = devices::open_cuda(Cuda::builder().device(ordinal))?;
                Ok(Served::Cuda(Of::new(cuda, conf, ordinal as u32, Addresses::new())?))
            }
        }
    }

    /// Gives all cached memory back to the driver.
    pub(crate) fn empty_cache(&self) -> Result<(), Failure> {
        on!(self, of => of.empty_cache())
    }

    /// Ends the use of a stream.
    pub(crate) fn release_stream(&self, native: u64) -> Result<(), Failure> {
        on!(self, of => of.release_stream(native))?;
        if let Served::Shared(pond) = self {
            pond.forget_stream(native);
        }
        Ok(())
    }

    /// Frees all live blocks and returns their number. The memory goes back when this returns, after a wait for the
    /// device.
    ///
    /// # Panics
    ///
    /// If the process shares the allocator.
    pub(crate) fn close(self) -> u64 {
        match self {
            Served::Sim(of) => of.close(),
            Served::Cuda(of) => of.close(),
            Served::Shared(_) => unreachable!("an allocator that the process shares is never destroyed"),
        }
    }
}
