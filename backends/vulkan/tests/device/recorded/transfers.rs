//! Transfers: each begins with a full barrier, and one that writes for the host ends with a barrier to it.

use millpond_backend::{Backend, ClassId, Transfer, VirtualMemory};
use millpond_vulkan::ash::vk;

use super::{BYTES, finish, full, give_back, segment, to_host};
use crate::lab::Lab;
use crate::recorder::{Call, Command, Recorder};

/// Returns the commands without barriers to the host, which go by the device's memory types.
fn commands(device: &Recorder) -> Vec<Command> {
    let mut commands = device.commands();
    commands.retain(|command| *command != to_host());
    commands
}

#[test]
fn a_fill_comes_after_a_barrier() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    let buffer = segment.buffer();
    device.calls();
    device.fill(stream, &segment, 4, 8, 7).unwrap();
    let word = 0x0707_0707;
    assert_eq!(commands(&device), [full(), Command::Fill { to: (buffer, 4), bytes: 8, word }]);
    device.fill(stream, &segment, 0, BYTES, 7).unwrap();
    let fill = Command::Fill { to: (buffer, 0), bytes: BYTES, word };
    assert_eq!(commands(&device), [full(), fill], "each begins with a barrier of its own");
    device.fill(stream, &segment, 1, 9, 7).unwrap();
    let seen = commands(&device);
    let [Command::Copy { from, .. }, ..] = seen[2..] else { panic!("{seen:?}") };
    let edge = |to: u64, bytes: u64| Command::Copy { from, to: (buffer, to), bytes };
    assert_eq!(seen, [full(), Command::Fill { to: (buffer, 4), bytes: 4, word }, edge(1, 3), edge(8, 2)]);
    device.fill(stream, &segment, 0, 0, 7).unwrap();
    assert_eq!(device.calls(), [], "nothing is filled");
    finish(&device, stream);
    give_back(&device, [segment]);
}

#[test]
fn a_copy_comes_after_a_barrier() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let (from, to) = (segment(&device), segment(&device));
    device.calls();
    for bytes in [8, 16] {
        device.copy(stream, (&from, 4), (&to, 32), bytes).unwrap();
        let copy = Command::Copy { from: (from.buffer(), 4), to: (to.buffer(), 32), bytes };
        assert_eq!(commands(&device), [full(), copy]);
    }
    finish(&device, stream);
    give_back(&device, [from, to]);
}

#[test]
fn an_upload_and_a_download_come_after_a_barrier_and_share_no_staging() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    let buffer = segment.buffer();
    device.calls();
    let mut staged = Vec::new();
    for offset in [0, 100] {
        device.upload(stream, &[9; 10], &segment, offset).unwrap();
        let seen = commands(&device);
        let [barrier, Command::Copy { from, to, bytes: 10 }] = seen[..] else { panic!("{seen:?}") };
        assert_eq!((barrier, to), (full(), (buffer, offset)));
        staged.push(from);
    }
    assert!(staged[0].0 == staged[1].0 && staged[0].1 + 10 <= staged[1].1, "{staged:?}");
    finish(&device, stream);
    device.calls();
    let mut bytes = [0; 10];
    device.download(stream, &segment, 100, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 10]);
    let seen = device.calls();
    let commands =
        seen.iter().filter_map(|call| if let Call::Record(_, command) = call { Some(*command) } else { None });
    let commands: Vec<_> = commands.collect();
    let [barrier, Command::Copy { from, to, bytes: 10 }, last] = commands[..] else { panic!("{commands:?}") };
    assert_eq!((barrier, from, last), (full(), (buffer, 100), to_host()));
    assert_eq!(to.0, staged[1].0, "it goes through the ring");
    let submit = seen.iter().position(|call| matches!(call, Call::Submit(_)));
    let known = seen.iter().rposition(|call| matches!(call, Call::Known(..)));
    assert!(submit.is_some() && submit < known, "it is submitted, and waited for");
    give_back(&device, [segment]);
}

/// A range is never seen by the host, so that what comes later has nothing to make available.
#[test]
fn what_the_host_reads_is_made_available_whatever_is_written_later() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let Some(pages) = device.caps().pages else { return };
    let stream = device.create_stream().unwrap();
    let host = device.reserve(ClassId(2), BYTES).unwrap();
    let range = device.reserve_range(ClassId::DEVICE, pages.granularity).unwrap();
    let page = device.create_page(ClassId::DEVICE, pages.granularity).unwrap();
    // SAFETY: nothing is mapped there, and the work is waited for before the page is given back.
    unsafe { device.map(&range, 0, &page, stream) }.unwrap();
    device.fill(stream, &range, 0, BYTES, 1).unwrap();
    finish(&device, stream);
    assert!(!device.commands().contains(&to_host()), "there is nothing for the host");
    device.fill(stream, &host, 0, BYTES, 2).unwrap();
    device.fill(stream, &range, 0, BYTES, 3).unwrap();
    finish(&device, stream);
    assert_eq!(device.commands().last(), Some(&to_host()));
    // SAFETY: the page is mapped there, and all work is done.
    unsafe {
        device.unmap(&range, 0, &page, stream);
        device.release_page(page);
        device.release_range(range);
    }
    give_back(&device, [host]);
}

#[test]
fn commands_of_the_caller_come_after_a_barrier_in_a_buffer_that_is_submitted_once() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    device.calls();
    let (mut first, mut second) = (None, None);
    device.record(stream, |commands| first = Some(commands)).unwrap();
    device.record(stream, |commands| second = Some(commands)).unwrap();
    assert!(first.is_some() && first == second, "until the next submit there is one");
    let commands = first.unwrap();
    let begun = Call::Begin(commands, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
    let barrier = || Call::Record(commands, full());
    assert_eq!(device.calls(), [begun.clone(), barrier(), barrier()]);
    finish(&device, stream);
    device.calls();
    device.fill(stream, &segment, 0, BYTES, 1).unwrap();
    assert_eq!(device.calls()[1..3], [begun, barrier()], "it is known to be done, and used again");
    finish(&device, stream);
    give_back(&device, [segment]);
}

/// The rules say the rest: what is in flight is not begun again.
#[test]
fn commands_that_are_in_flight_are_left_alone() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    device.hold(stream).unwrap();
    let mut used = Vec::new();
    for value in 0..8 {
        device.fill(stream, &segment, 0, BYTES, value).unwrap();
        device.submit(stream).unwrap();
        used.extend(device.submits()[0].commands.clone());
    }
    used.sort();
    used.dedup();
    assert_eq!(used.len(), 8, "each submit has a command buffer of its own");
    device.unhold(stream);
    finish(&device, stream);
    device.calls();
    for value in 0..8 {
        device.fill(stream, &segment, 0, BYTES, value).unwrap();
        finish(&device, stream);
        assert!(used.contains(&device.submits()[0].commands[0]), "they serve again");
    }
    give_back(&device, [segment]);
}
