//! The functions that the library exports, by subject.
//!
//! Handles and device addresses cross as numbers; so pointers and `u64` must be of one size.

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "the simulator is for 64-bit hosts");

/// Declares exported functions: what each needs, its name, its arguments as in the driver's header, and a body, which
/// is given the device of the current context.
macro_rules! exported {
    ($($need:ident fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$device:ident| $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments)] // The driver's names and lists of arguments.
            unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                crate::driver::call::call(stringify!($name), crate::driver::call::Need::$need, |$device| $body)
            }
        )*

        /// The names of the functions in this file.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

mod capture;
mod context;
mod control;
mod copy;
mod device;
mod event;
mod host;
mod memory;
mod pages;
mod pools;
mod stream;

/// Returns the exported function of that name.
fn known(name: &str) -> Option<&'static str> {
    const ALL: [&[&str]; 10] = [
        capture::NAMES,
        context::NAMES,
        copy::NAMES,
        device::NAMES,
        event::NAMES,
        host::NAMES,
        memory::NAMES,
        pages::NAMES,
        pools::NAMES,
        stream::NAMES,
    ];
    ALL.into_iter().flatten().copied().find(|known| *known == name)
}
