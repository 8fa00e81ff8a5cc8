//! Writing: one walk over a snapshot, in the order in which PyTorch writes its fields, for every format.

mod json;
mod pickle;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use millpond_trace::WholeFile;
use serde_json::Value;

use self::json::JsonOut;
use self::pickle::PickleOut;
use crate::error::SnapshotError;
use crate::model::{Annotation, Block, Frame, Other, Segment, Snapshot, Stack, TraceEntry};

/// A format that values are written in, one after the other.
trait Out {
    fn begin_dict(&mut self) -> io::Result<()>;
    fn key(&mut self, name: &str) -> io::Result<()>;
    fn end_dict(&mut self) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;
    fn null(&mut self) -> io::Result<()>;
    fn bool(&mut self, value: bool) -> io::Result<()>;
    fn int(&mut self, value: i64) -> io::Result<()>;
    fn uint(&mut self, value: u64) -> io::Result<()>;
    fn float(&mut self, value: f64) -> io::Result<()>;
    fn text(&mut self, value: &str) -> io::Result<()>;
    /// Writes a pool's two numbers, as a tuple where there are tuples.
    fn pair(&mut self, value: (u64, u64)) -> io::Result<()>;
    /// Begins a list whose content belongs to `identity`. Returns `false` if the format could refer to the list that
    /// was written with it before; the list is then complete.
    fn begin_shared(&mut self, identity: usize) -> io::Result<bool>;
}

impl Snapshot {
    /// Writes the snapshot to a file: as JSON where its name ends in `.json`, and otherwise as a pickle. An existing
    /// file is replaced once the snapshot is whole, and otherwise stays as it is ([`WholeFile`]). PyTorch's viewer
    /// opens both formats, `_memory_viz.py` pickles alone.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        let path = path.as_ref();
        let file = WholeFile::create(path).map_err(|error| SnapshotError::Open { path: path.into(), error })?;
        let buffer = if path.extension().is_some_and(|extension| extension == "json") {
            self.write_json(BufWriter::new(file))?
        } else {
            self.write_pickle(BufWriter::new(file))?
        };
        let file = buffer.into_inner().map_err(|error| SnapshotError::Write(error.into_error()))?;
        file.finish().map_err(SnapshotError::Write)
    }

    /// Writes the snapshot as JSON and returns the writer, flushed. The writer should be buffered.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn write_json<W: Write>(&self, out: W) -> Result<W, SnapshotError> {
        let mut json = JsonOut::new(out);
        snapshot(&mut json, self).and_then(|()| json.finish()).map_err(SnapshotError::Write)
    }

    /// Writes the snapshot as a pickle of protocol 2 and returns the writer, flushed. The writer should be buffered.
    ///
    /// The pickle has those instructions alone that PyTorch's viewer knows. Equal texts and call stacks that are shared
    /// are written once, so it holds each different text in memory.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn write_pickle<W: Write>(&self, out: W) -> Result<W, SnapshotError> {
        let mut pickle = PickleOut::new(out).map_err(SnapshotError::Write)?;
        snapshot(&mut pickle, self).and_then(|()| pickle.finish()).map_err(SnapshotError::Write)
    }
}

fn snapshot(out: &mut impl Out, snapshot: &Snapshot) -> io::Result<()> {
    out.begin_dict()?;
    out.key("segments")?;
    list(out, &snapshot.segments, segment)?;
    out.key("device_traces")?;
    list(out, &snapshot.device_traces, |out, trace| list(out, trace, entry))?;
    out.key("allocator_settings")?;
    out.begin_dict()?;
    other(out, &snapshot.allocator_settings)?;
    out.end_dict()?;
    out.key("external_annotations")?;
    list(out, &snapshot.external_annotations, annotation)?;
    if !snapshot.host_segments.is_empty() {
        out.key("host_segments")?;
        list(out, &snapshot.host_segments, segment)?;
    }
    other(out, &snapshot.other)?;
    out.end_dict()
}

fn list<O: Out, T>(out: &mut O, values: &[T], write: impl Fn(&mut O, &T) -> io::Result<()>) -> io::Result<()> {
    out.begin_list()?;
    values.iter().try_for_each(|value| write(out, value))?;
    out.end_list()
}

fn segment(out: &mut impl Out, segment: &Segment) -> io::Result<()> {
    out.begin_dict()?;
    out.key("device")?;
    out.int(segment.device)?;
    for (name, value) in [
        ("address", segment.address),
        ("total_size", segment.total_size),
        ("allocated_size", segment.allocated_size),
        ("active_size", segment.active_size),
        ("requested_size", segment.requested_size),
        ("stream", segment.stream),
    ] {
        number(out, name, value)?;
    }
    optional_text(out, "segment_type", segment.segment_type.as_deref())?;
    if let Some(pool) = segment.segment_pool_id {
        out.key("segment_pool_id")?;
        out.pair(pool)?;
    }
    if let Some(is_expandable) = segment.is_expandable {
        out.key("is_expandable")?;
        out.bool(is_expandable)?;
    }
    optional_stack(out, segment.frames.as_ref())?;
    out.key("blocks")?;
    list(out, &segment.blocks, block)?;
    other(out, &segment.other)?;
    out.end_dict()
}

fn block(out: &mut impl Out, block: &Block) -> io::Result<()> {
    out.begin_dict()?;
    number(out, "address", block.address)?;
    number(out, "size", block.size)?;
    number(out, "requested_size", block.requested_size)?;
    optional_text(out, "state", Some(block.state.name()))?;
    optional_stack(out, Some(&block.frames))?;
    other(out, &block.other)?;
    out.end_dict()
}

fn entry(out: &mut impl Out, entry: &TraceEntry) -> io::Result<()> {
    out.begin_dict()?;
    optional_text(out, "action", Some(entry.action.name()))?;
    for (name, value) in [("addr", entry.addr), ("device_free", entry.device_free)] {
        if let Some(value) = value {
            number(out, name, value)?;
        }
    }
    number(out, "size", entry.size)?;
    number(out, "stream", entry.stream)?;
    if let Some(time_us) = entry.time_us {
        out.key("time_us")?;
        out.int(time_us)?;
    }
    optional_text(out, "compile_context", entry.compile_context.as_deref())?;
    optional_text(out, "user_metadata", entry.user_metadata.as_deref())?;
    optional_text(out, "category", entry.category.as_deref())?;
    if let Some(pool) = entry.pool_id {
        out.key("pool_id")?;
        out.pair(pool)?;
    }
    optional_stack(out, entry.frames.as_ref())?;
    other(out, &entry.other)?;
    out.end_dict()
}

fn annotation(out: &mut impl Out, annotation: &Annotation) -> io::Result<()> {
    out.begin_dict()?;
    optional_text(out, "name", Some(&annotation.name))?;
    optional_text(out, "stage", Some(&annotation.stage))?;
    for (name, value) in [("device", annotation.device), ("time_us", annotation.time_us)] {
        out.key(name)?;
        out.int(value)?;
    }
    other(out, &annotation.other)?;
    out.end_dict()
}

fn optional_stack(out: &mut impl Out, stack: Option<&Stack>) -> io::Result<()> {
    let Some(stack) = stack else { return Ok(()) };
    out.key("frames")?;
    if out.begin_shared(stack.identity())? {
        stack.frames().iter().try_for_each(|one| frame(out, one))?;
        out.end_list()?;
    }
    Ok(())
}

fn frame(out: &mut impl Out, frame: &Frame) -> io::Result<()> {
    out.begin_dict()?;
    optional_text(out, "name", Some(&frame.name))?;
    optional_text(out, "filename", Some(&frame.filename))?;
    out.key("line")?;
    out.int(frame.line)?;
    other(out, &frame.other)?;
    out.end_dict()
}

fn number(out: &mut impl Out, name: &str, value: u64) -> io::Result<()> {
    out.key(name)?;
    out.uint(value)
}

fn optional_text(out: &mut impl Out, name: &str, text: Option<&str>) -> io::Result<()> {
    let Some(text) = text else { return Ok(()) };
    out.key(name)?;
    out.text(text)
}

/// Writes fields that this crate does not know, into an open dictionary.
fn other(out: &mut impl Out, fields: &Other) -> io::Result<()> {
    fields.iter().try_for_each(|(name, field)| {
        out.key(name)?;
        value(out, field)
    })
}

fn value(out: &mut impl Out, field: &Value) -> io::Result<()> {
    match field {
        Value::Null => out.null(),
        Value::Bool(value) => out.bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => out.uint(value),
            (None, Some(value)) => out.int(value),
            (None, None) => out.float(number.as_f64().unwrap_or(0.0)),
        },
        Value::String(text) => out.text(text),
        Value::Array(values) => {
            out.begin_list()?;
            values.iter().try_for_each(|one| value(out, one))?;
            out.end_list()
        }
        Value::Object(fields) => {
            out.begin_dict()?;
            other(out, fields)?;
            out.end_dict()
        }
    }
}
