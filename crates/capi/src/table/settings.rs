//! Settings: what keys there are, which have no effect, and changes while devices are in use.

use std::ffi::c_char;

use millpond::conf;

use super::ponds;
use crate::boundary::{self, Out};

/// Gives keys to the caller, separated by commas.
fn give_keys(keys: &[&'static str]) -> *mut c_char {
    boundary::give_text(&keys.join(","))
}

pub(super) unsafe extern "C" fn keys(out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(give_keys(&conf::keys().collect::<Vec<_>>()));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn unserved(out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(give_keys(&ponds::unserved()?));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn reconfigure(
    conf: *const c_char,
    kept: *mut *mut c_char,
    unserved: *mut *mut c_char,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let (conf, kept, unserved) = unsafe {
            (boundary::text("conf", conf)?, Out::required("kept", kept)?, Out::required("unserved", unserved)?)
        };
        let done = ponds::reconfigure(conf)?;
        kept.put(give_keys(&done.kept));
        unserved.put(give_keys(&done.unserved));
        Ok(())
    })
}
