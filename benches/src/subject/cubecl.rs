//! CubeCL's `MemoryManagement` with its default pools, over a storage that only counts. Since 0.11 it lives in the
//! crate `cubecl-server`; before, in `cubecl-runtime`.

use std::collections::HashMap;
use std::sync::Arc;

use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ErrorGraph, ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions, PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};

use super::Subject;

/// The largest page in bytes: a quarter of an H200, as its CUDA runtime would report.
const PAGE_BYTES_MAX: u64 = 35 << 30;

const ALIGNMENT: u64 = 512;

/// Device memory that is only counted.
#[derive(Default)]
struct Counting {
    sizes: HashMap<StorageId, u64>,
    bytes: u64,
}

impl ComputeStorage for Counting {
    type Resource = ();

    fn alignment(&self) -> usize {
        ALIGNMENT as usize
    }

    fn get(&mut self, _handle: &StorageHandle) -> Result<(), IoError> {
        Ok(())
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let id = StorageId::new();
        self.sizes.insert(id, size);
        self.bytes += size;
        Ok(StorageHandle { id, utilization: StorageUtilization { offset: 0, size } })
    }

    fn dealloc(&mut self, id: StorageId) {
        self.bytes -= self.sizes.remove(&id).expect("only what was allocated is deallocated");
    }

    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.bytes
    }
}

/// The memory management of one stream of CubeCL.
pub struct Cubecl {
    memory: MemoryManagement<Counting>,
    errors: ErrorGraph,
}

impl Cubecl {
    /// Creates an empty memory management.
    #[allow(clippy::new_without_default)] // It reads CubeCL's configuration files.
    pub fn new() -> Self {
        let memory = MemoryManagement::from_configuration(
            Counting::default(),
            &MemoryDeviceProperties::new(PAGE_BYTES_MAX, ALIGNMENT),
            MemoryConfiguration::default(),
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("benches"),
        );
        Self { memory, errors: ErrorGraph::default() }
    }
}

impl Subject for Cubecl {
    type Block = ManagedMemoryHandle;

    #[inline]
    fn allocate(&mut self, bytes: u64, _stream: u16) -> ManagedMemoryHandle {
        match self.memory.reserve(bytes, PageUpdate::Allow, &mut self.errors) {
            Ok(block) => block,
            Err(error) => panic!("{bytes} bytes: {error}"),
        }
    }

    #[inline]
    fn free(&mut self, block: ManagedMemoryHandle) {
        drop(block);
    }
}
