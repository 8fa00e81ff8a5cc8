//! The validation layer, where it is installed: what it objects to in the engine's use of its own device.

use std::ffi::{CStr, c_char, c_void};

use millpond_vulkan::ash::{self, ext, vk};
use parking_lot::Mutex;

use crate::engine::Result;

const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// What was said of all the engine's devices.
static OBJECTIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the layer has objected to so far; nothing where it is not installed.
pub fn objections() -> Vec<String> {
    OBJECTIONS.lock().clone()
}

/// The layers and extensions to create an instance with.
pub(super) fn wanted(entry: &ash::Entry) -> Result<(Vec<*const c_char>, Vec<*const c_char>)> {
    // SAFETY: the entry is loaded; the call has no other condition.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }?;
    let installed = layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER));
    Ok(if installed { (vec![LAYER.as_ptr()], vec![ext::debug_utils::NAME.as_ptr()]) } else { (vec![], vec![]) })
}

/// An instance's messenger. Destroyed with [`Watcher::end`], behind the device and before the instance.
pub(super) struct Watcher {
    utils: ext::debug_utils::Instance,
    messenger: vk::DebugUtilsMessengerEXT,
}

impl Watcher {
    /// Has objections come here. The instance was created with the layer and the extension.
    pub(super) fn new(entry: &ash::Entry, instance: &ash::Instance) -> Result<Watcher> {
        let utils = ext::debug_utils::Instance::new(entry, instance);
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(take));
        // SAFETY: the extension is enabled; the callback needs nothing that could be gone.
        let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }?;
        Ok(Watcher { utils, messenger })
    }

    /// Objections are no longer kept.
    pub(super) fn end(self) {
        // SAFETY: the messenger is destroyed only here, before its instance.
        unsafe { self.utils.destroy_debug_utils_messenger(self.messenger, None) };
    }
}

/// Keeps one message.
unsafe extern "system" fn take(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kinds: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user_data: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a valid structure whose message ends with a zero, for the time of the call.
    let message = unsafe { CStr::from_ptr((*data).p_message) };
    OBJECTIONS.lock().push(message.to_string_lossy().into_owned());
    vk::FALSE
}
