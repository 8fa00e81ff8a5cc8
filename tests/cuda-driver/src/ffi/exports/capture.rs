//! Captures, and the graphs that they record.

use std::ffi::c_uint;

use crate::driver::capture::Status;
use crate::driver::code::{Answer, Code};
use crate::driver::{thread, world};
use crate::ffi::pointers::Out;

exported! {
    Context fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        world.begin_capture(lane, mode)
    }

    Context fn cuStreamEndCapture(stream: u64, graph: Out<u64>) |device| {
        let graph = graph.must()?;
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        let captured = world.end_capture(lane);
        let handle = captured.as_ref().map_or(0, |ops| world.graphs.insert(ops.clone()));
        graph.put(handle)?;
        captured.map(|_| ())
    }

    Context fn cuStreamIsCapturing(stream: u64, status: Out<c_uint>) |device| {
        status.put(capture_info(device, stream)?.0 as c_uint)
    }

    Context fn cuStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        count: Out<u64>,
    ) |device| {
        put_info(capture_info(device, stream)?, status, id, [graph, dependencies, count])
    }

    Context fn cuStreamGetCaptureInfo_v3(
        stream: u64,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        edges: Out<u64>,
        count: Out<u64>,
    ) |device| {
        edges.offer(0);
        put_info(capture_info(device, stream)?, status, id, [graph, dependencies, count])
    }

    Init fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) |_device| {
        let before = thread::exchange_mode(mode.get()?)?;
        mode.put(before)
    }

    Context fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, _flags: u64) |_device| {
        let executable = executable.must()?;
        let mut world = world::lock();
        let ops = world.graphs.get(graph).cloned().ok_or(Code::INVALID_VALUE)?;
        executable.put(world.executables.insert(ops))
    }

    Context fn cuGraphUpload(executable: u64, stream: u64) |device| {
        let mut world = world::lock();
        world.stream(stream, device)?;
        world.executables.get(executable).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    // The work runs in the order in which it was recorded, which is one of those that its dependencies allow.
    Context fn cuGraphLaunch(executable: u64, stream: u64) |device| {
        let mut world = world::lock();
        let lane = world.stream(stream, device)?;
        let ops = world.executables.get(executable).cloned().ok_or(Code::INVALID_VALUE)?;
        ops.into_iter().try_for_each(|op| world.push(lane, op))
    }

    Context fn cuGraphExecDestroy(executable: u64) |_device| {
        world::lock().executables.remove(executable).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    Context fn cuGraphDestroy(graph: u64) |_device| {
        world::lock().graphs.remove(graph).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
}

/// Returns whether a stream is captured. Asking for the legacy stream while a stream that it is ordered against is
/// captured fails, and spoils nothing.
fn capture_info(device: usize, stream: u64) -> Result<(Status, u64), Code> {
    let mut world = world::lock();
    let lane = world.stream(stream, device)?;
    if !world.implicit(lane).is_empty() {
        return Err(Code::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(world.capture_status(lane))
}

/// Writes the status of a capture. Nodes of the graph under construction are not shown: there is a number, and no graph
/// and no dependencies.
fn put_info(info: (Status, u64), status: Out<c_uint>, id: Out<u64>, rest: [Out<u64>; 3]) -> Answer {
    rest.into_iter().for_each(|out| out.offer(0));
    id.offer(info.1);
    status.put(info.0 as c_uint)
}
