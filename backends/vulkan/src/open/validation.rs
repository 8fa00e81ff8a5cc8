//! The log of the validation layer's messages.

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use parking_lot::Mutex;

use crate::error::VulkanError;

/// The messages of the validation layer, in their order. It is a cheap handle, which outlives the device: leaks are
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
    /// Whether the device has sparse buffers.
    sparse: AtomicBool,
}

/// The message that the source and the target of a copy overlap. Layers before 1.3.268 report this for every copy
/// within one page of a sparse buffer, and the message is not kept then: copies within one segment are checked before
/// they are recorded.
const OVERLAP: &str = "VUID-vkCmdCopyBuffer-pRegions-00117";
const OVERLAP_SOUND: u32 = vk::make_api_version(0, 1, 3, 268);

impl ValidationLog {
    /// The layer's name, with which an instance enables it.
    pub const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

    /// Creates a log for the installed layer, for an engine that creates its own instance: enable
    /// [`LAYER`](Self::LAYER) and `VK_EXT_debug_utils` there, and direct its messages here with
    /// [`messenger`](Self::messenger). Lists the layers for this.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoValidation`] where the layer is not installed; else the loader's errors.
    pub fn installed(entry: &ash::Entry) -> Result<ValidationLog, VulkanError> {
        // SAFETY: the entry is loaded; the call has no other condition.
        let layers = unsafe { entry.enumerate_instance_layer_properties() }
            .map_err(VulkanError::driver("vkEnumerateInstanceLayerProperties"))?;
        let layer = layers.iter().find(|layer| layer.layer_name_as_c_str() == Ok(Self::LAYER));
        layer.map(|layer| ValidationLog::new(layer.spec_version)).ok_or(VulkanError::NoValidation)
    }

    /// Creates a log for a layer of that version.
    pub(crate) fn new(layer: u32) -> ValidationLog {
        ValidationLog { kept: Arc::new(Kept { layer, ..Kept::default() }) }
    }

    /// Notes that the device has sparse buffers from now on.
    pub(crate) fn expect_sparse(&self) {
        self.kept.sparse.store(true, Ordering::Relaxed);
    }

    /// Returns every error so far. Copies the list.
    pub fn errors(&self) -> Vec<String> {
        self.kept.messages.lock().clone()
    }

    /// Returns the structure that directs errors to this log: for `vkCreateDebugUtilsMessengerEXT`, and for the `pNext`
    /// chain of `VkInstanceCreateInfo`.
    ///
    /// What is created with it points into the log without a reference count. So its creator keeps a clone of the log,
    /// also if it lends the log with [`Adopted::validation`](crate::Adopted::validation), until the messenger and the
    /// instance are destroyed.
    pub fn messenger(&self) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
        let user_data = Arc::as_ptr(&self.kept).cast_mut().cast::<c_void>();
        vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION | vk::DebugUtilsMessageTypeFlagsEXT::GENERAL)
            .pfn_user_callback(Some(take))
            .user_data(user_data)
    }
}

impl Kept {
    /// Returns whether a message of that kind is reliable.
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
    // SAFETY: `user_data` is the pointer that `messenger` set: to the contents of the log's `Arc`, which outlives the
    // instance, and so every call of this function. Only shared access happens here.
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
