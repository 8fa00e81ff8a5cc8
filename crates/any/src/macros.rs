//! What the device, its segments and its pages have in common: one variant for each backend that is built in, and a
//! match over them.

/// Makes an enum of what each of the four backends has, with the methods that return whose it is.
macro_rules! erased {
    ($(#[$meta:meta])* $name:ident: $sim:ty, $cuda:ty, $vulkan:ty, $wgpu:ty) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub enum $name {
            /// The simulated device's.
            #[cfg(feature = "sim")]
            Sim($sim),
            /// A CUDA device's.
            #[cfg(feature = "cuda")]
            Cuda($cuda),
            /// A Vulkan device's.
            #[cfg(feature = "vulkan")]
            Vulkan($vulkan),
            /// A wgpu device's.
            #[cfg(feature = "wgpu")]
            Wgpu($wgpu),
        }

        impl $name {
            /// Returns the name of the backend, with which names of devices begin: `sim`, `cuda`, `vulkan` or `wgpu`.
            pub fn backend_name(&self) -> &'static str {
                match self {
                    #[cfg(feature = "sim")]
                    Self::Sim(_) => "sim",
                    #[cfg(feature = "cuda")]
                    Self::Cuda(_) => "cuda",
                    #[cfg(feature = "vulkan")]
                    Self::Vulkan(_) => "vulkan",
                    #[cfg(feature = "wgpu")]
                    Self::Wgpu(_) => "wgpu",
                    #[cfg(not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")))]
                    _ => crate::macros::nothing_is_built_in(),
                }
            }
        }

        $crate::macros::way_back!($name, "sim", Sim, as_sim, "simulated", $sim);
        $crate::macros::way_back!($name, "cuda", Cuda, as_cuda, "CUDA", $cuda);
        $crate::macros::way_back!($name, "vulkan", Vulkan, as_vulkan, "Vulkan", $vulkan);
        $crate::macros::way_back!($name, "wgpu", Wgpu, as_wgpu, "wgpu", $wgpu);
    };
}

/// Makes the method that returns what one backend has.
macro_rules! way_back {
    ($name:ident, $feature:literal, $variant:ident, $method:ident, $kind:literal, $typed:ty) => {
        #[cfg(feature = $feature)]
        impl $name {
            #[doc = concat!("Returns the backend's own, if the device is a ", $kind, " one.")]
            #[inline]
            pub fn $method(&self) -> Option<&$typed> {
                match self {
                    Self::$variant(typed) => Some(typed),
                    #[allow(unreachable_patterns, reason = "it may be the only device that is built in")]
                    _ => None,
                }
            }
        }
    };
}

/// Evaluates an expression on what the backend has, whichever it is.
macro_rules! on {
    ($of:expr, $name:ident($typed:pat) => $call:expr) => {
        match $of {
            #[cfg(feature = "sim")]
            $name::Sim($typed) => $call,
            #[cfg(feature = "cuda")]
            $name::Cuda($typed) => $call,
            #[cfg(feature = "vulkan")]
            $name::Vulkan($typed) => $call,
            #[cfg(feature = "wgpu")]
            $name::Wgpu($typed) => $call,
            #[cfg(not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")))]
            _ => $crate::macros::nothing_is_built_in(),
        }
    };
}

/// Evaluates an expression likewise, and wraps the result in the same variant of another enum.
macro_rules! erase {
    ($of:expr, $name:ident($typed:pat) => $result:ident($call:expr)) => {
        match $of {
            #[cfg(feature = "sim")]
            $name::Sim($typed) => $result::Sim($call),
            #[cfg(feature = "cuda")]
            $name::Cuda($typed) => $result::Cuda($call),
            #[cfg(feature = "vulkan")]
            $name::Vulkan($typed) => $result::Vulkan($call),
            #[cfg(feature = "wgpu")]
            $name::Wgpu($typed) => $result::Wgpu($call),
            #[cfg(not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")))]
            _ => $crate::macros::nothing_is_built_in(),
        }
    };
}

/// Ends a function that has no value to work on: without a device that is built in, none can be opened.
#[cfg(not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")))]
pub(crate) fn nothing_is_built_in() -> ! {
    unreachable!("no device is built in, so nothing of one exists")
}

pub(crate) use {erase, erased, on, way_back};
