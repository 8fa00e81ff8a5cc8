//! What all erased types have in common: one variant for each device that is built in, and a match over them.

/// Makes an erased type, with the way there and back. Of each it has the typed form on the four kinds of devices.
macro_rules! erased {
    ($(#[$meta:meta])* $name:ident: $sim:ty, $cuda:ty, $vulkan:ty, $wgpu:ty) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub enum $name {
            /// Of the simulated device.
            #[cfg(feature = "sim")]
            Sim($sim),
            /// Of a CUDA device.
            #[cfg(feature = "cuda")]
            Cuda($cuda),
            /// Of a Vulkan device.
            #[cfg(feature = "vulkan")]
            Vulkan($vulkan),
            /// Of a wgpu device.
            #[cfg(feature = "wgpu")]
            Wgpu($wgpu),
        }

        impl $name {
            /// Returns the name of the backend, as names of devices begin with it: `sim`, `cuda`, `vulkan` or `wgpu`.
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

/// Makes the conversion of one typed form, and the method that returns it.
macro_rules! way_back {
    ($name:ident, $feature:literal, $variant:ident, $method:ident, $kind:literal, $typed:ty) => {
        #[cfg(feature = $feature)]
        impl $name {
            #[doc = concat!("Returns the typed form, if the device is a ", $kind, " one.")]
            pub fn $method(&self) -> Option<&$typed> {
                match self {
                    Self::$variant(typed) => Some(typed),
                    #[allow(unreachable_patterns, reason = "it may be the only device that is built in")]
                    _ => None,
                }
            }
        }

        #[cfg(feature = $feature)]
        impl From<$typed> for $name {
            fn from(typed: $typed) -> Self {
                Self::$variant(typed)
            }
        }
    };
}

/// Evaluates an expression on the typed form, whatever its device is.
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

/// Evaluates an expression on the typed form, and erases the result.
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

/// Evaluates an expression on two typed forms of the same kind of device, and another one where the kinds differ.
macro_rules! on_both {
    (($a:expr, $b:expr), ($one:ident($x:pat), $other:ident($y:pat)) => $call:expr, else $otherwise:expr) => {
        match ($a, $b) {
            #[cfg(feature = "sim")]
            ($one::Sim($x), $other::Sim($y)) => $call,
            #[cfg(feature = "cuda")]
            ($one::Cuda($x), $other::Cuda($y)) => $call,
            #[cfg(feature = "vulkan")]
            ($one::Vulkan($x), $other::Vulkan($y)) => $call,
            #[cfg(feature = "wgpu")]
            ($one::Wgpu($x), $other::Wgpu($y)) => $call,
            #[allow(unreachable_patterns, reason = "one device may be built in alone")]
            _ => $otherwise,
        }
    };
}

/// Does the same with three typed forms.
macro_rules! on_three {
    (
        ($a:expr, $b:expr, $c:expr), ($one:ident($x:pat), $two:ident($y:pat), $three:ident($z:pat)) => $call:expr,
        else $otherwise:expr
    ) => {
        match ($a, $b, $c) {
            #[cfg(feature = "sim")]
            ($one::Sim($x), $two::Sim($y), $three::Sim($z)) => $call,
            #[cfg(feature = "cuda")]
            ($one::Cuda($x), $two::Cuda($y), $three::Cuda($z)) => $call,
            #[cfg(feature = "vulkan")]
            ($one::Vulkan($x), $two::Vulkan($y), $three::Vulkan($z)) => $call,
            #[cfg(feature = "wgpu")]
            ($one::Wgpu($x), $two::Wgpu($y), $three::Wgpu($z)) => $call,
            #[allow(unreachable_patterns, reason = "one device may be built in alone")]
            _ => $otherwise,
        }
    };
}

/// Ends a function that has no value to work on: without a device that is built in, none can be opened.
#[cfg(not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")))]
pub(crate) fn nothing_is_built_in() -> ! {
    unreachable!("no device is built in, so nothing of one exists")
}

pub(crate) use {erase, erased, on, on_both, on_three, way_back};
