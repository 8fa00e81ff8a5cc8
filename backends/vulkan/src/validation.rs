//! The validation layer's messages, kept for whoever wants to read them.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ash::vk;
use parking_lot::Mutex;

/// What the validation layer said, in the order in which it did. A cheap handle, which outlives the device: leaks are
/// reported only when the device is destroyed.
#[derive(Clone, Debug, Default)]
pub struct ValidationLog {
    messages: Arc<Mutex<Vec<String>>>,
}

impl ValidationLog {
    /// Every error so far. Costs a copy of the list.
    pub fn errors(&self) -> Vec<String> {
        self.messages.lock().clone()
    }

    /// How to have messages come here. The log must outlive the instance that this is given to.
    pub(crate) fn messenger(&self) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
        let user_data = Arc::as_ptr(&self.messages).cast_mut().cast::<c_void>();
        vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION | vk::DebugUtilsMessageTypeFlagsEXT::GENERAL)
            .pfn_user_callback(Some(take))
            .user_data(user_data)
    }
}

/// Keeps one message.
unsafe extern "system" fn take(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kinds: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user_data: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `user_data` is what `messenger` put there: the mutex in the log's `Arc`, which outlives the instance, and
    // with it every call of this function. Only shared access happens here.
    let messages = unsafe { &*user_data.cast::<Mutex<Vec<String>>>() };
    // SAFETY: the layer passes a valid structure for the time of the call.
    let data = unsafe { &*data };
    let text = |pointer: *const std::ffi::c_char| match pointer.is_null() {
        true => String::new(),
        // SAFETY: the layer passes strings that end with a zero, valid for the time of the call.
        false => unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned(),
    };
    messages.lock().push(format!("{}: {}", text(data.p_message_id_name), text(data.p_message)));
    vk::FALSE
}
