"""What Python offers, beside the C calls, in turns within one run.

    python3 peers.py RAW_C_LIBRARY OUT_JSON

The library is benches/compare/raw.c, built as a shared one; the JSON is what the comparison's own program writes. What is
not installed is told and left out. There is one thread: Python's lock would measure itself.
"""

import ctypes
import json
import math
import statistics
import sys
import time

ROUNDS = 31
TURN_NS = 1_500_000
WARM_UP_NS = 50_000_000
SIZES = (512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)
HOST_SIZES = (64, 512, 4 << 10, 64 << 10, 1 << 20)


class Subject(ctypes.Structure):
    """subject.h's table."""

    loop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    made = ctypes.CFUNCTYPE(ctypes.c_void_p)
    given = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("memory", ctypes.c_char_p),
        ("open", made),
        ("close", ctypes.c_void_p),
        ("start", given),
        ("finish", ctypes.c_void_p),
        ("pairs", loop),
        ("bursts", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
        ("handovers", ctypes.c_void_p),
        ("settle", ctypes.c_void_p),
    ]


def raw_subject(library, name):
    """A loop of pairs in C."""
    count = ctypes.c_size_t()
    library.bench_subjects.restype = ctypes.POINTER(Subject)
    tables = library.bench_subjects(ctypes.byref(count))
    table = next(tables[i] for i in range(count.value) if tables[i].name == name)
    worker = table.start(table.open())

    def prepare(size):
        def pairs(times):
            if table.pairs(worker, size, times) != 0:
                raise RuntimeError("a C call failed")

        return pairs

    return prepare


def cuda_core_device():
    import cuda.core
    from cuda.core import Device, DeviceMemoryResource

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    resource = DeviceMemoryResource(device)
    return cuda.core.__version__, buffers_of(resource, stream)


def cuda_core_pinned():
    import cuda.core
    from cuda.core import Device, PinnedMemoryResource

    device = Device(0)
    device.set_current()
    return cuda.core.__version__, buffers_of(PinnedMemoryResource(), device.create_stream())


def buffers_of(resource, stream):
    def prepare(size):
        def pairs(times):
            for _ in range(times):
                resource.allocate(size, stream=stream).close(stream)

        return pairs

    return prepare


def cupy_async_pool():
    import cupy

    pool = cupy.cuda.MemoryAsyncPool()
    stream = cupy.cuda.Stream(non_blocking=True)

    def prepare(size):
        def pairs(times):
            with stream:
                for _ in range(times):
                    pool.malloc(size)

        return pairs

    return cupy.__version__, prepare


def torch_tensor(**where):
    import torch

    def prepare(size):
        def pairs(times):
            for _ in range(times):
                torch.empty(size, dtype=torch.uint8, **where)

        return pairs

    prepare(64)(1)
    return torch.__version__, prepare


PEERS = {
    "device": {
        "cuda.core (Python)": cuda_core_device,
        "CuPy MemoryAsyncPool": cupy_async_pool,
        "torch.empty": lambda: torch_tensor(device="cuda"),
    },
    "host": {
        "cuda.core pinned (Python)": cuda_core_pinned,
        "torch.empty pinned": lambda: torch_tensor(pin_memory=True),
    },
}


HANDOVERS = 300


def receive(tensors, times):
    """The other end of torch's queue."""
    while (got := tensors.get(timeout=30)) is not None:
        tensor, sent = got
        times.put(time.monotonic_ns() - sent)
        del tensor, got


def torch_queue():
    """One way, from put to got, always with the same tensor."""
    import torch
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    tensors, times = context.Queue(), context.Queue()
    other = context.Process(target=receive, args=(tensors, times), daemon=True)
    other.start()
    tensor = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    values = []
    for _ in range(HANDOVERS):
        tensors.put((tensor, time.monotonic_ns()))
        values.append(times.get(timeout=30))
    tensors.put(None)
    other.join(10)
    return values[HANDOVERS // 10 :]


def hand_over(report):
    name = "torch.multiprocessing queue"
    try:
        values = torch_queue()
    except Exception as why:
        report["absent"].append({"what": name, "why": repr(why)})
        return
    question = {"memory": "ipc", "workload": "repeated hand-over", "bytes": 1 << 20, "threads": 1}
    p99 = statistics.quantiles(values, n=100, method="inclusive")[98]
    result = {"subject": name, "runs": len(values), "nanoseconds": quartiles(values), "p99": p99, "ratio": None}
    print(f"{name}: {result['nanoseconds']['median']:.0f} ns", flush=True)
    report["cells"].append({"question": question, "baseline": "raw calls from Rust", "results": [result]})


def took(pairs, times):
    begun = time.perf_counter_ns()
    pairs(times)
    return time.perf_counter_ns() - begun


def calibrated(pairs):
    """Warms it up, and says how many times make a turn. As rounds.rs has it, which says why."""
    begun = time.perf_counter_ns()
    pairs(1)
    times = 1
    while True:
        length = min(took(pairs, times), took(pairs, times))
        if length >= TURN_NS and time.perf_counter_ns() - begun >= WARM_UP_NS:
            return times
        factor = 1.1 * TURN_NS / max(length, 1)
        times = math.ceil(times * max(0.1, min(10, factor)))


def quartiles(values):
    if len(values) == 1:
        values = values * 2
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"lower": lower, "median": median, "upper": upper}


def compete(contestants):
    """The first is the baseline."""
    names = list(contestants)
    counts = {name: calibrated(contestants[name]) for name in names}
    values = {name: [] for name in names}
    for turn in range(ROUNDS):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            values[name].append(took(contestants[name], counts[name]) / counts[name])
    base = values[names[0]]
    return [
        {
            "subject": name,
            "runs": len(values[name]),
            "nanoseconds": quartiles(values[name]),
            "ratio": quartiles([value / first for value, first in zip(values[name], base)]),
        }
        for name in names
    ]


def main(library, out):
    library = ctypes.CDLL(library)
    report = {"complete": False, "machine": {}, "subjects": {}, "absent": [], "cells": []}
    plan = (("device", "raw C", SIZES), ("host", "malloc", HOST_SIZES))
    for memory, baseline, sizes in plan:
        ways = {baseline: raw_subject(library, baseline.encode())}
        for name, make in PEERS[memory].items():
            try:
                report["subjects"][name], ways[name] = make()
            except Exception as why:
                report["absent"].append({"what": name, "why": repr(why)})
        for size in sizes:
            results = compete({name: prepare(size) for name, prepare in ways.items()})
            question = {"memory": memory, "workload": "pairs", "bytes": size, "threads": 1}
            report["cells"].append({"question": question, "baseline": baseline, "results": results})
            for result in results:
                print(f"{memory} {size}: {result['subject']} {result['nanoseconds']['median']:.0f} ns", flush=True)
    hand_over(report)
    report["complete"] = True
    with open(out, "w") as file:
        json.dump(report, file, indent=2)


# The other process of torch's queue imports this file.
if __name__ == "__main__":
    main(*sys.argv[1:])
