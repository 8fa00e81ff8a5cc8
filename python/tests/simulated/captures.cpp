// The functions of CUDA's runtime for streams, events, captures and graphs, on the simulated driver of CUDA. A graph has no
// kernels, because none runs, and holds memory as any graph does. Part of the library that memory.cpp makes.
#include <cuda_runtime_api.h>

#include "driver.hpp"

REPLACES cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  use_device();
  return driver("cuStreamCreateWithPriority", stream, flags, priority);
}
REPLACES cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  use_device();
  return driver("cuStreamDestroy_v2", stream);
}
REPLACES cudaError_t cudaStreamQuery(cudaStream_t stream) {
  use_device();
  return driver("cuStreamQuery", stream);
}
REPLACES cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  use_device();
  return driver("cuStreamWaitEvent", stream, event, flags);
}

// ---- Events ----

REPLACES cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  use_device();
  return driver("cuEventCreate", event, flags & ~static_cast<unsigned>(cudaEventInterprocess));
}
REPLACES cudaError_t cudaEventDestroy(cudaEvent_t event) {
  use_device();
  return driver("cuEventDestroy_v2", event);
}
REPLACES cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  use_device();
  const cudaError_t error = driver("cuEventRecord", event, stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  driver("cuStreamIsCapturing", stream, &status);
  // Another process takes an event for one that is over, so that it is over when it is sent.
  return error != cudaSuccess || status != cudaStreamCaptureStatusNone ? error : driver("cuStreamSynchronize", stream);
}
REPLACES cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
REPLACES cudaError_t cudaEventQuery(cudaEvent_t event) {
  use_device();
  return driver("cuEventQuery", event);
}
REPLACES cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  use_device();
  return driver("cuEventSynchronize", event);
}
REPLACES cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t) {
  *handle = cudaIpcEventHandle_t{};
  return cudaSuccess;
}
REPLACES cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t) {
  return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

// ---- Captures and graphs ----

REPLACES cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  use_device();
  return driver("cuThreadExchangeStreamCaptureMode", mode);
}
REPLACES cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  use_device();
  return driver("cuStreamIsCapturing", stream, status);
}
REPLACES cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream,
    cudaStreamCaptureStatus* status,
    unsigned long long* id,
    cudaGraph_t* graph,
    const cudaGraphNode_t** dependencies,
    const cudaGraphEdgeData** edges,
    size_t* count) {
  use_device();
  return driver("cuStreamGetCaptureInfo_v3", stream, status, id, graph, dependencies, edges, count);
}
REPLACES cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  use_device();
  return driver("cuStreamBeginCapture_v2", stream, mode);
}
REPLACES cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  use_device();
  return driver("cuStreamEndCapture", stream, graph);
}
REPLACES cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  use_device();
  return driver("cuGraphInstantiateWithFlags", exec, graph, flags);
}
REPLACES cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}
REPLACES cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  // Torch warns of a graph without any.
  *count = 1;
  return cudaSuccess;
}
REPLACES cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  use_device();
  return driver("cuGraphLaunch", exec, stream);
}
REPLACES cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  use_device();
  return driver("cuGraphDestroy", graph);
}
REPLACES cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  use_device();
  return driver("cuGraphExecDestroy", exec);
}
