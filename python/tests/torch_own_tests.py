"""PyTorch's own tests of its CUDA allocator, on that allocator and on Millpond, on a machine with a GPU.

    python python/tests/torch_own_tests.py FILE... [--extra FOLDER] [--conf policy:paged] [--only PART,PART] [--jobs 4]
        [--seconds 560]

The files are from the folder test of PyTorch's sources, of the release that is installed: test_cuda.py,
test_cuda_multigpu.py, test_cuda_trace.py, test_cuda_sanitizer.py, test_cuda_primary_ctx.py, test_cuda_nvml_based_avail.py,
test_cuda_expandable_segments.py, test_accelerator.py, test_multiprocessing.py, inductor/test_cudagraph_trees.py and
profiler/test_memory_profiler.py. A file of another release runs as far as its imports are there, and what tests something
that the installed torch does not have fails on both. FOLDER has what torch.testing imports and is not installed, such as
expecttest and psutil.

Of test_cuda.py the tests that are named below run, and of other files all of them: on both allocators, several at a time,
in processes that are started anew after a test that fails, ends its process or takes too long. Tests that fill the device
run alone at the end, and so does once more what fails on Millpond alone. After --seconds no test is begun. Prints a row for
each difference and for each file, and ends with 1 if a test works natively and fails on Millpond, unless
torch_own_differences.md beside this file has a reason for it.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time
import unittest
from typing import Any

# Of test_cuda.py, by class: what looks at devices, dtypes, autocast, kernels or random numbers and never at memory is not
# among them. A parametrized test counts under the name in front of its parameters.
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

# What fills the device, or asks how much is free.
ALONE = re.compile("out_of_memory|oom|memory_fraction|device_memory_used|mem_get_info|garbage_collect|limited_memory|largeTensor")
LIMIT_SECONDS = 120
# Tests that one process runs before it is started anew, so that several processes have something to do.
CHUNK = 20
Outcome = dict[str, str]
# The test that counts after all where this is set.
HOLD, HELD = "record_stream:hold", "test_record_stream"


def reasons() -> dict[str, str]:
    """Returns the reason for each difference that there may be, by the name of the test."""
    text = pathlib.Path(__file__).with_name("torch_own_differences.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE))


def longest(name: str, known: Any) -> str | None:
    """Returns the known name that a test has in front of its parameters, or ``None``."""
    listed = [each for each in known if name == each or name.startswith(each + "_")]
    return max(listed, key=len, default=None)


def load(path: str, extra: str) -> Any:
    sys.path[:0] = [part for part in (extra, os.path.dirname(os.path.abspath(path))) if part]
    sys.argv = [path]
    # The name that the file has for others, and for processes that it starts.
    name = pathlib.Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def found_in(path: str, module: Any) -> dict[str, type[unittest.TestCase]]:
    cases = {name: case for name, case in vars(module).items() if isinstance(case, type) and issubclass(case, unittest.TestCase)}
    found = {}
    for name, case in cases.items():
        for test in unittest.TestLoader().getTestCaseNames(case):
            if pathlib.Path(path).name != "test_cuda.py" or longest(test, NAMES.get(name, "").split()):
                found[f"{name}.{test}"] = case
    return found


def why(traceback: str) -> str:
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
    path = arguments.files[0]
    cases = found_in(path, load(path, arguments.extra))
    print(json.dumps({"found": list(cases)}), file=out, flush=True)
    for line in sys.stdin:
        name = line.strip()
        result = unittest.TestResult()
        cases[name](name.split(".")[1]).run(result)
        if result.skipped:
            became, said = "skipped", result.skipped[0][1]
        elif result.wasSuccessful() or result.expectedFailures:
            became, said = "works", ""
        else:
            became, said = "fails", why((result.errors + result.failures)[0][1])
        print(json.dumps({"test": name, "became": became, "said": said[:160]}), file=out, flush=True)


class Worker:
    """A process that runs tests of a file on an allocator."""

    def __init__(self, arguments: argparse.Namespace, path: str, on: str) -> None:
        command = [sys.executable, __file__, path, "--on", on, "--extra", arguments.extra]
        self.errors = open(f"{arguments.errors}.{pathlib.Path(path).stem}.{on.split(':')[-1]}.txt", "a")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.lines: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        said = self.next(300) or {}
        self.found: list[str] | None = said.get("found")

    def read(self) -> None:
        for line in self.process.stdout or ():
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self, seconds: float) -> Any:
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return {"became": "fails", "said": f"did not end in {seconds:.0f} s"}

    def run(self, test: str) -> Outcome:
        try:
            print(test, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        said = self.next(LIMIT_SECONDS)
        if said is None:
            self.process.wait()
            return {"became": "fails", "said": f"ended its process, with {self.process.returncode}"}
        return dict(said)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


class Session:
    """All tests on both allocators. Results are by allocator, file and test."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.deadline = time.monotonic() + arguments.seconds
        self.results: dict[tuple[str, str, str], Outcome] = {}
        self.jobs: queue.Queue[tuple[str, str, list[str]]] = queue.Queue()

    def chosen(self, found: list[str]) -> list[str]:
        parts = [part for part in self.arguments.only.split(",") if part]
        return [test for test in found if not parts or any(part in test for part in parts)]

    def run_some(self, on: str, path: str, tests: list[str]) -> None:
        """Runs tests of one file, one after the other, until the time is over."""
        worker: Worker | None = None
        for test in tests:
            if time.monotonic() > self.deadline:
                break
            worker = worker or Worker(self.arguments, path, on)
            outcome = worker.run(test) if worker.found is not None else {"became": "fails", "said": "the file cannot be loaded"}
            self.results[on, path, test] = outcome
            print(f"{on}: {test}: {outcome['became']} {outcome['said']}", file=sys.stderr, flush=True)
            if outcome["became"] == "fails":
                # What a failed test leaves, a capture for example, would fail the next ones too.
                worker.end()
                worker = None
        if worker is not None:
            worker.end()

    def take_jobs(self) -> None:
        while True:
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                return
            self.run_some(*job)

    def run(self) -> dict[str, list[str]]:
        """Returns the tests of each file."""
        sides, files = ("native", self.arguments.conf), {}
        for path in self.arguments.files:
            worker = Worker(self.arguments, path, "native")
            if worker.found is None:
                print(f"{path}: cannot be loaded; {worker.errors.name} says why", file=sys.stderr)
            files[path] = self.chosen(worker.found or [])
            worker.end()
        for path, tests in files.items():
            together = [test for test in tests if not ALONE.search(test)]
            for begin in range(0, len(together), CHUNK):
                for on in sides:
                    self.jobs.put((on, path, together[begin:begin + CHUNK]))
        threads = [threading.Thread(target=self.take_jobs) for _ in range(self.arguments.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for path, tests in files.items():
            for on in sides:
                self.run_some(on, path, [test for test in tests if ALONE.search(test)])
                self.run_some(on, path, [test for test in tests if on != "native" and self.is_worse(path, test)])
        return files

    def is_worse(self, path: str, test: str) -> bool:
        before, now = (self.results.get((on, path, test)) for on in ("native", self.arguments.conf))
        return before is not None and now is not None and before["became"] == "works" and now["became"] != "works"


def report(session: Session, files: dict[str, list[str]]) -> int:
    conf, known, unexplained = session.arguments.conf, reasons(), []
    if HOLD in conf:
        del known[HELD]
    print(f"| test | Millpond, {conf} | reason |\n|---|---|---|")
    for path, tests in files.items():
        for test in tests:
            if session.is_worse(path, test):
                said = session.results[conf, path, test]["said"].replace("|", "/")
                reason = known.get(longest(test.split(".")[1], known) or "")
                unexplained += [] if reason else [test]
                print(f"| {test} | {said} | {reason or '**none**'} |")
    print("\n| file | tests | work on PyTorch | and on Millpond | ratio | differ with a reason | not run |\n|---|---|---|---|---|---|---|")
    for path, tests in files.items():
        ran = [test for test in tests if all((on, path, test) in session.results for on in ("native", conf))]
        native = [test for test in ran if session.results["native", path, test]["became"] == "works"]
        both = [test for test in native if not session.is_worse(path, test)]
        explained = len(native) - len(both) - len([test for test in unexplained if test in native])
        ratio = f"{len(both) / len(native):.3f}" if native else ""
        print(f"| {pathlib.Path(path).name} | {len(tests)} | {len(native)} | {len(both)} | {ratio} | {explained} | {len(tests) - len(ran)} |")
    print("\nworse on Millpond without a reason: " + (", ".join(unexplained) or "none"))
    return 1 if unexplained or not any(files.values()) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--extra", default="")
    parser.add_argument("--conf", default="policy:paged")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--errors", default="/tmp/torch_own_tests")
    parser.add_argument("--on", default="")
    arguments = parser.parse_args()
    if arguments.on:
        work(arguments)
        return 0
    session = Session(arguments)
    return report(session, session.run())


if __name__ == "__main__":
    sys.exit(main())
