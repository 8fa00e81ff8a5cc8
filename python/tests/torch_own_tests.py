"""PyTorch's own tests of its CUDA allocator, on that allocator and on Millpond, on a machine with a GPU.

    python python/tests/torch_own_tests.py PATH/TO/test_cuda.py [--extra FOLDER] [--conf policy:paged] [--only PART,PART]

The file is test/test_cuda.py of PyTorch's sources, of the release that is installed; one of another release runs as far as
its imports are there, and what tests something that the installed torch does not have fails on both. FOLDER has what
torch.testing imports and is not installed, such as expecttest and psutil. Each test that is named below runs on both
allocators, in processes that are started anew behind a test that ends its process or takes too long. Prints a row for each,
and ends with 1 if one works natively and fails on Millpond, unless it is listed among those that cannot apply.
"""

import argparse
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import unittest
from typing import Any

# By class. A parametrized test counts under the name in front of its parameters.
NAMES = {
    "TestCuda": """
        test_pinned_memory_empty_cache test_memory_allocation test_memory_stats test_out_of_memory test_out_of_memory_retry
        test_set_per_process_memory_fraction test_get_per_process_memory_fraction test_uuid test_copy_non_blocking
        test_to_non_blocking test_streams test_record_stream test_record_stream_on_shifted_view test_noncontiguous_pinned_memory
        test_caching_pinned_memory test_caching_allocator_record_stream_oom test_reduction_gpu_memory_accessing
        test_streaming_backwards_sync test_streaming_backwards_multiple_streams test_streaming_backwards_sync_graph_root
        test_cublas_workspace_explicit_allocation test_cublas_multiple_threads_same_device test_matmul_memory_use
        test_graph_capture_simple test_graph_capture_reset_recapture test_graph_capture_oom test_graph_error
        test_graph_warn_if_has_zero_nodes test_graph_two_successive test_graph_concurrent_replay test_graph_three_successive
        test_graph_memory_stats_and_use_result_after_destroy_graph test_graph_record_stream test_graph_make_graphed_callables
        test_graph_make_graphed_callables_same_pool test_graph_optims test_graph_adam_adamw test_cuda_graph_error_options
        test_cuda_graph_allocator_propagates_stream test_memory_stats_of_multiple_generators_and_graphs
        test_allocator_backend test_repeat_graph_capture_cublas_workspace_memory test_host_memory_stats
        test_hip_device_count test_device_count_not_cached_pre_init test_lazy_init test_pinned_memory_with_cudaregister
        test_pinned_memory_use_background_threads test_cudart_register test_graph_is_current_stream_capturing
        test_accelerator_graph_simple test_graph_debugdump test_graph_timing test_graph_rng_functional
        test_graph_rng_distributions test_graph_cudnn_dropout test_graph_checkpoint_preserve_rng_state
        test_graph_manual_seed_mismatch_raises test_cuda_graph_raw_graph test_cuda_graph_tensor_item_not_allowed
    """,
    "TestCudaMallocAsync": """
        test_memory_snapshot test_memory_snapshot_with_cpp test_memory_profiler_viz test_memory_plots test_memory_plots_free_stack
        test_memory_plots_free_segment_stack test_memory_plots_history_context test_memory_plots_metadata
        test_memory_compile_regions test_memory_snapshot_script test_direct_traceback test_cycles test_raises_oom test_notifies_oom
        test_allocator_fuzz test_allocator_settings test_cachingAllocator_raw_alloc test_allocator_memory_fraction_setting
        test_cpp_memory_snapshot_pickle test_memory_snapshot_skip_actions test_garbage_collect_expandable test_nvml_get_handler
        test_temperature test_power_draw test_max_split_expandable test_device_memory_used
    """,
    "TestBlockStateAbsorption": """
        test_simple test_allocated_in_middle_of_segment test_multiple_middle_allocations test_middle_allocations_contiguous
        test_additional_free_following_checkpoint test_tensor_dies_after_checkpoint test_assigning_back_deleter_fns_to_tensor
        test_resnet test_check_pool_live_allocations test_allocate_in_thread_to_pool test_no_triton_on_import
    """,
    "TestMemPool": """
        test_mempool_id test_mempool_with_allocator test_tensor_delete_after_allocator_delete test_mempool_limit_ops
        test_mempool_empty_cache test_mempool_empty_cache_inactive test_deleted_mempool_not_used_on_oom test_mempool_context
        test_mempool_multithread test_mempool_ctx_multithread test_mempool_emptycache_multithread test_mempool_expandable
        test_nested_mempool test_graph_capture_reclaim_2_streams test_graph_capture_reclaim_4_streams
        test_graph_capture_pool test_mempool_no_split test_mempool_use_on_oom test_mempool_kineto test_mempool_snapshot
        test_mempool_limited_memory_with_allocator
    """,
    "TestCachingHostAllocatorCudaGraph": """
        test_pin_memory_no_use test_pin_memory_no_use2 test_pin_memory_use test_two_graphs test_unpinned_memory_use
        test_unpinned_memory_use_device_to_host
    """,
    "TestGreenContext": "test_greencontext_restores_stream",
    "TestFXMemoryProfiler": "test_fx_memory_profiler_augmentation",
}

# What tests, or asks for, something that another allocator has not, with the reason. They run, and do not count.
CANNOT = {
    "test_allocator_settings": "asks for settings of PyTorch's allocator in its snapshot, and changes them in the process",
    "test_allocator_memory_fraction_setting": "sets PyTorch's allocator by its environment variable and looks at its own texts",
    "test_garbage_collect_expandable": "counts the segments that PyTorch's expandable segments give back",
    "test_max_split_expandable": "turns PyTorch's expandable segments on, and sets its split limit, in the process",
    "test_mempool_expandable": "turns PyTorch's expandable segments on in the process",
    "test_graph_memory_stats_and_use_result_after_destroy_graph": "counts PyTorch's segments, where Millpond has pages",
    "test_allocate_in_thread_to_pool": "counts PyTorch's segments, where Millpond has pages",
    "test_nested_mempool": "counts PyTorch's segments, where Millpond has pages",
    "test_mempool_no_split": "expects a segment for each block, where Millpond has pages",
    "test_graph_capture_reclaim_2_streams": "turns graph_capture_record_stream_reuse on in the process",
    "test_graph_capture_reclaim_4_streams": "turns graph_capture_record_stream_reuse on in the process",
    "test_cuda_graph_allocator_propagates_stream": "counts a segment for each stream, where the streams of a pool have one home",
    "test_record_stream": "expects the very block that another stream used to be granted first, once that stream is done",
    "test_memory_snapshot_script": "counts PyTorch's segments of 2 MiB, where Millpond has pages",
    "test_allocator_backend": "asks for the name of PyTorch's allocator",
}
# Not among the names at all: what looks at devices, dtypes, autocast, kernels or random numbers and never at memory.
LIMIT_SECONDS = 120
# The test that counts after all where this is set.
HOLD, HELD = "record_stream:hold", "test_record_stream"


def base(name: str, case: str) -> str | None:
    """Returns the name in front of a test's parameters as it is listed, or ``None`` if it is not."""
    listed = [known for known in NAMES.get(case, "").split() if name == known or name.startswith(known + "_")]
    return max(listed, key=len, default=None)


def load(path: str, extra: Any) -> Any:
    if extra:
        sys.path.append(extra)
    sys.argv = [path]
    spec = importlib.util.spec_from_file_location("torch_test_cuda", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_test_cuda"] = module
    spec.loader.exec_module(module)
    return module


def reason(traceback: str) -> str:
    """Returns the line of a traceback that says what went wrong, and prints all of it."""
    print(traceback, file=sys.stderr, flush=True)
    lines = [line for line in traceback.splitlines() if line and not line.startswith((" ", "Traceback", "To execute", "This message"))]
    return lines[0] if lines else traceback.strip()


def work(arguments: argparse.Namespace) -> None:
    """Runs in a process of its own: reads names from standard input and writes a line of JSON for each that has ended."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if arguments.on != "native":
        import millpond.torch

        millpond.torch.enable(arguments.on)
    module = load(arguments.file, arguments.extra)
    cases = {name: case for name, case in vars(module).items() if isinstance(case, type) and issubclass(case, unittest.TestCase)}
    found = [f"{name}.{test}" for name, case in cases.items() for test in unittest.TestLoader().getTestCaseNames(case)
             if base(test, name)]
    print(json.dumps({"found": found}), file=out, flush=True)
    for line in sys.stdin:
        case, test = line.strip().split(".")
        result = unittest.TestResult()
        cases[case](test).run(result)
        if result.skipped:
            became, said = "skipped", result.skipped[0][1]
        elif result.wasSuccessful() or result.expectedFailures:
            became, said = "works", ""
        else:
            became, said = "fails", reason((result.errors + result.failures)[0][1])
        print(json.dumps({"test": f"{case}.{test}", "became": became, "said": said[:160]}), file=out, flush=True)


class Worker:
    def __init__(self, arguments: argparse.Namespace, on: str) -> None:
        command = [sys.executable, __file__, arguments.file, "--on", on]
        if arguments.extra:
            command += ["--extra", arguments.extra]
        self.errors = open(f"{arguments.errors}.{on.split(':')[-1]}.txt", "a")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.lines: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.found = self.next(300)

    def read(self) -> None:
        for line in self.process.stdout or ():
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self, seconds: float) -> Any:
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return {"became": "fails", "said": f"did not end in {seconds} s"}

    def run(self, test: str) -> Any:
        try:
            print(test, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        said = self.next(LIMIT_SECONDS)
        if said is None:
            self.process.wait()
            return {"became": "fails", "said": f"ended its process, with {self.process.returncode}"}, False
        return said, "test" in said

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def run_all(arguments: argparse.Namespace, on: str) -> Any:
    worker = Worker(arguments, on)
    if not worker.found or "found" not in worker.found:
        raise SystemExit(f"{on}: the file cannot be loaded: {arguments.errors}.{on.split(':')[-1]}.txt says why")
    chosen = [part for part in arguments.only.split(",") if part]
    tests = [test for test in worker.found["found"] if not chosen or any(part in test for part in chosen)]
    results = {}
    for test in tests:
        results[test], lives = worker.run(test)
        print(f"{on}: {test}: {results[test]['became']} {results[test]['said']}", file=sys.stderr, flush=True)
        if not lives or results[test]["became"] == "fails":
            # What a failed test leaves, a capture for example, would fail the next ones too.
            worker.end()
            worker = Worker(arguments, on)
    worker.end()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--extra", default="")
    parser.add_argument("--conf", default="policy:paged")
    parser.add_argument("--only", default="")
    parser.add_argument("--errors", default="/tmp/torch_own_tests")
    parser.add_argument("--on", default="")
    arguments = parser.parse_args()
    if arguments.on:
        work(arguments)
        return 0
    native, ours = run_all(arguments, "native"), run_all(arguments, arguments.conf)
    print(f"| test | PyTorch | Millpond, {arguments.conf} | |\n|---|---|---|---|")
    worse: list[str] = []
    counts: dict[tuple[str, str], int] = {}
    for test, before in native.items():
        now = ours.get(test, {"became": "missing", "said": ""})
        case, name = test.split(".")
        cannot = CANNOT.get(base(name, case) or "", "")
        if name == HELD and HOLD in arguments.conf:
            cannot = ""
        if before["became"] == "works" and now["became"] != "works" and not cannot:
            worse.append(test)
        counts[before["became"], now["became"]] = counts.get((before["became"], now["became"]), 0) + 1
        said = now["said"] or before["said"]
        remark = f"cannot apply: {cannot}" if cannot and now["became"] != "works" else said.replace("|", "/")
        print(f"| {test} | {before['became']} | {now['became']} | {remark} |")
    listed = {f"{case}.{name}" for case, names in NAMES.items() for name in names.split()}
    absent = sorted(name for name in listed if not any(test == name or test.startswith(name + "_") for test in native))
    print("\n" + ", ".join(f"{count} {a}/{b}" for (a, b), count in sorted(counts.items())) + " (PyTorch/Millpond)")
    if not arguments.only:
        print("not in this file: " + ", ".join(absent))
    print("worse on Millpond: " + (", ".join(worse) or "none"))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
