//! The validation layer's messages, kept for whoever wants to read them.

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use parking_lot::Mutex;

/// What the validation layer said, in the order in which it did. A cheap handle, which outlives the device: leaks are
/// reported only when the device is destroyed.
#[derive(Clone, Debug, Default)]
pub struct ValidationLog {
    kept: Arc<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    messages: Mutex<Vec<String>>,
    /// The layer's own version.
    layer: u32,
    /// The device has sparse buffers.
    sparse: AtomicBool,
}

/// Source and target of a copy overlap. Layers before 1.3.268 say it of every copy within one page of a sparse buffer,
/// and what they say is not kept then: copies within one segment are checked before they are recorded.
const OVERLAP: &str = "VUID-vkCmdCopyBuffer-pRegions-00117";
const OVERLAP_SOUND: u32 = vk::make_api_version(0, 1, 3, 268);

impl ValidationLog {
    /// A log for a layer of that version.
    pub(crate) fn new(layer: u32) -> ValidationLog {
        ValidationLog { kept: Arc::new(Kept { layer, ..Kept::default() }) }
    }

    /// From here on there are sparse buffers.
    pub(crate) fn expect_sparse(&self) {
        self.kept.sparse.store(true, Ordering::Relaxed);
    }

    /// Every error so far. Costs a copy of the list.
    pub fn errors(&self) -> Vec<String> {
        self.kept.messages.lock().clone()
    }

    /// How to have messages come here. The log must outlive the instance that this is given to.
    pub(crate) fn messenger(&self) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
        let user_data = Arc::as_ptr(&self.kept).cast_mut().cast::<c_void>();
        vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION | vk::DebugUtilsMessageTypeFlagsEXT::GENERAL)
            .pfn_user_callback(Some(take))
            .user_data(user_data)
    }
}

impl Kept {
    /// Whether a message of that kind can be believed.
    fn counts(&self, id: &str) -> bool {
        id != OVERLAP || self.layer >= OVERLAP_SOUND || !self.sparse.load(Ordering::Relaxed)
    }
}

/// Keeps one message.
unsafe extern "system" fn take(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kinds: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user_data: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `user_data` is what `messenger` put there: what is in the log's `Arc`, which outlives the instance, and
    // with it every call of this function. Only shared access happens here.
    let kept = unsafe { &*user_data.cast::<Kept>() };
    // SAFETY: the layer passes a valid structure for the time of the call.
    let data = unsafe { &*data };
    let text = |pointer: *const std::ffi::c_char| match pointer.is_null() {
        true => String::new(),
        // SAFETY: the layer passes strings that end with a zero, valid for the time of the call.
        false => unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned(),
    };
    let id = text(data.p_message_id_name);
    if kept.counts(&id) {
        kept.messages.lock().push(format!("{id}: {}", text(data.p_message)));
    }
    vk::FALSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_layers_are_not_believed_about_overlaps_where_there_are_sparse_buffers() {
        let counts = |minor_patch: (u32, u32), sparse: bool, id: &str| {
            let log = ValidationLog::new(vk::make_api_version(0, 1, minor_patch.0, minor_patch.1));
            if sparse {
                log.expect_sparse();
            }
            log.kept.counts(id)
        };
        assert!(!counts((3, 239), true, OVERLAP));
        assert!(counts((3, 239), false, OVERLAP));
        assert!(counts((3, 268), true, OVERLAP));
        assert!(counts((4, 0), true, OVERLAP));
        assert!(counts((3, 239), true, "VUID-vkCmdCopyBuffer-srcOffset-00113"));
    }
}
