"""Loads the library, starts, runs, stops and unloads it many times: no thread and no memory may stay.

usage: rounds.py LIBRARY
"""

import _ctypes
import ctypes
import os
import subprocess
import sys
import time

ROUNDS = 40
# The most memory in KiB that the rounds after the tenth may add. An arena of the allocator is larger than what a leak of one manager adds.
GROWTH = 1024


def load(path):
    library = ctypes.CDLL(path)
    library.run.argtypes, library.run.restype = [ctypes.c_uint64], ctypes.c_uint64
    return library


def threads():
    return sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))


def resident():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["VmRSS"].split()[0])


def rounds(path):
    before = threads()
    early = None
    for number in range(ROUNDS):
        library = load(path)
        assert library.start() == 0
        assert len(threads()) > len(before), "the manager has threads"
        assert library.run(1000) >= 1000
        assert library.stop() == 0
        assert threads() == before, threads()
        _ctypes.dlclose(library._handle)
        if number == 10:
            early = resident()
    growth = resident() - early
    assert growth <= GROWTH, f"{growth} KiB more"
    print(f"{ROUNDS} rounds leave the threads {before}, and {growth} KiB after the tenth")


def ends_while_it_runs(path):
    """A process may exit with a running manager."""
    program = f"import ctypes; library = ctypes.CDLL({path!r}); assert library.start() == 0"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    print("a process exits with a running manager")


def forks(path):
    """A forked child stops nothing of its parent, and its call ends. The parent continues."""
    library = load(path)
    assert library.start() == 0
    child = os.fork()
    if child == 0:
        library.stop()
        os._exit(42)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert library.run(10) >= 10
    assert library.stop() == 0
    print("a forked child stops nothing")


def a_million_keys(path):
    library = load(path)
    before, begin = resident(), time.monotonic()
    assert library.start() == 0
    assert library.run(1_000_000) >= 1_000_000
    seconds, memory = time.monotonic() - begin, (resident() - before) // 1024
    begin = time.monotonic()
    assert library.stop() == 0
    print(f"a million keys run in {seconds:.1f} s, wait in {memory} MiB, and stop in {time.monotonic() - begin:.1f} s")


for check in [rounds, ends_while_it_runs, forks, a_million_keys]:
    check(sys.argv[1])
