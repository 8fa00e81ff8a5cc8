//! Virtual memory: ranges of addresses, pages, and the table between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_backend::{ClassId, ClassKind, PageCaps, StreamId};
use millpond_kit::{Misuse, Named};

use crate::error::SimError;
use crate::error::calls::CallKind;
use crate::space::segment::{Page, Segment};
use crate::space::violation::Violation;
use crate::space::{Mapping, Space};
use crate::time::Time;

/// Counts the call, and returns the device's page capabilities if it has pages of that class and of that size.
fn page_caps(device: &Time, call: CallKind, class: ClassId, bytes: u64) -> Result<PageCaps, SimError> {
    let pages = device.caps.pages.ok_or(Misuse::Unsupported { call: call.name(), missing: None })?;
    device.enter(call)?;
    if device.caps.class(class).kind != ClassKind::Device {
        return Err(Misuse::NoPages { class }.into());
    }
    Misuse::if_empty(call.name(), bytes)?;
    aligned(call, bytes, pages)?;
    Ok(pages)
}

fn aligned(call: CallKind, value: u64, pages: PageCaps) -> Result<(), Misuse> {
    Misuse::if_misaligned(call.name(), value, pages.granularity, Some("granularity"))
}

impl Space {
    /// Enters a page into a range's table.
    fn map(&mut self, range: &Segment, offset: u64, page: &Page, aliasing: bool) -> Result<(), SimError> {
        let (address, bytes) = (range.address.saturating_add(offset), page.bytes);
        Misuse::if_outside(offset, bytes, range.bytes)?;
        let segment = Named::Address(range.address);
        let table = self.tables.get_mut(&range.id).ok_or(Misuse::NotARange { segment })?;
        if let Some((start, mapping)) = table.range(..offset + bytes).next_back()
            && start + mapping.bytes > offset
        {
            return Err(Misuse::AlreadyMapped { address, bytes }.into());
        }
        let physical = self.physical.get_mut(&page.physical).expect("a page that is owned exists");
        if physical.mapped > 0 && !aliasing {
            return Err(SimError::NoAliasing { address, bytes });
        }
        physical.mapped += 1;
        table.insert(offset, Mapping { physical: page.physical, bytes });
        Ok(())
    }

    /// Removes a mapping that stays behind when its page or its range is released, and returns the violations.
    fn drop_mapping(&mut self, range: u64, start: u64, offset: u64) -> Vec<Violation> {
        let mapping = self.tables.get_mut(&range).and_then(|table| table.remove(&offset));
        let Some(mapping) = mapping else { return Vec::new() };
        let mut found = self.users_through(mapping.physical, range, offset, mapping.bytes);
        if let Some(physical) = self.physical.get_mut(&mapping.physical) {
            physical.mapped -= 1;
        }
        found.push(Violation::ReleasedMapped { address: start + offset, bytes: mapping.bytes });
        found
    }
}

/// Implements `reserve_range`.
pub(crate) fn reserve_range(device: &Time, class: ClassId, bytes: u64) -> Result<Segment, SimError> {
    let pages = page_caps(device, CallKind::ReserveRange, class, bytes)?;
    let mut space = device.memory.space();
    space.take_range(bytes)?;
    let address = space.place(bytes, pages.granularity.max(device.caps.class(class).alignment));
    let id = space.number();
    space.tables.insert(id, BTreeMap::new());
    space.range_starts.insert(id, address);
    drop(space);
    device.charge(device.costs.reserve_range_ns);
    Ok(Segment { memory: Arc::clone(&device.memory), id, address, bytes, class, physical: None })
}

/// Implements `release_range`.
pub(crate) fn release_range(device: &Time, range: Segment) {
    device.own(&range.memory, CallKind::ReleaseRange);
    assert!(range.is_range(), "release_range of the segment at {:#x}: use release", range.address);
    device.count(CallKind::ReleaseRange, device.costs.release_range_ns);
    let mut state = device.state();
    let mut space = device.memory.space();
    let left: Vec<u64> = space.tables[&range.id].keys().copied().collect();
    for offset in left {
        state.violations.extend(space.drop_mapping(range.id, range.address, offset));
    }
    space.tables.remove(&range.id);
    space.range_starts.remove(&range.id);
    space.vacate(range.address);
    space.give_range(range.bytes);
    device.break_off(CallKind::ReleaseRange);
}

/// Implements `create_page`.
pub(crate) fn create_page(device: &Time, class: ClassId, bytes: u64) -> Result<Page, SimError> {
    page_caps(device, CallKind::CreatePage, class, bytes)?;
    let physical = device.memory.space().create(class, bytes)?;
    device.charge(device.costs.create_page.at(bytes));
    Ok(Page { memory: Arc::clone(&device.memory), physical, bytes })
}

/// Implements `release_page`.
pub(crate) fn release_page(device: &Time, page: Page) {
    device.own(&page.memory, CallKind::ReleasePage);
    device.count(CallKind::ReleasePage, device.costs.release_page_ns);
    let mut state = device.state();
    let mut space = device.memory.space();
    if space.physical.get(&page.physical).is_some_and(|physical| physical.mapped > 0) {
        for (range, start, offset) in space.mappings_of(page.physical) {
            state.violations.extend(space.drop_mapping(range, start, offset));
        }
    }
    state.violations.extend(space.users(page.physical));
    space.destroy(page.physical);
    device.break_off(CallKind::ReleasePage);
}

/// Implements `map`.
pub(crate) fn map(device: &Time, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), SimError> {
    let pages = device.caps.pages.ok_or(Misuse::Unsupported { call: CallKind::Map.name(), missing: None })?;
    device.own(&range.memory, CallKind::Map);
    device.own(&page.memory, CallKind::Map);
    device.lane(stream);
    device.enter(CallKind::Map)?;
    aligned(CallKind::Map, offset, pages)?;
    device.memory.space().map(range, offset, page, pages.aliasing)?;
    device.charge(device.costs.map.at(page.bytes) + device.costs.set_access_ns);
    Ok(())
}

/// Implements `unmap`.
pub(crate) fn unmap(device: &Time, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
    device.own(&range.memory, CallKind::Unmap);
    device.lane(stream);
    device.count(CallKind::Unmap, device.costs.unmap_ns);
    let mut state = device.state();
    let mut space = device.memory.space();
    let mapping = space.tables.get_mut(&range.id).and_then(|table| table.remove(&offset));
    let Some(mapping) = mapping.filter(|mapping| mapping.physical == page.physical) else {
        panic!("unmap at offset {offset} of the range at {:#x}: the page is not mapped there", range.address);
    };
    state.violations.extend(space.users_through(page.physical, range.id, offset, mapping.bytes));
    if let Some(physical) = space.physical.get_mut(&page.physical) {
        physical.mapped -= 1;
    }
    device.break_off(CallKind::Unmap);
}
