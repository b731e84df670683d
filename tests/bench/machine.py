"""machine.py - the machine of a figure: its processor, load and read bandwidth."""
import json
import os
import statistics
import time

BLOCK_BYTES = 256 << 20
TURNS = 3


def processor():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def bandwidth():
    """GB/s that one thread reads: the median of a few searches for a byte that is not there."""
    block, rates = bytearray(b"\2") * BLOCK_BYTES, []
    for _ in range(TURNS):
        start = time.perf_counter()
        block.find(b"\1")
        rates.append(BLOCK_BYTES / (time.perf_counter() - start) / 1e9)
    return round(statistics.median(rates), 2)


def load():
    return [round(value, 2) for value in os.getloadavg()]


def spread(values):
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


class Machine:
    """Measures bandwidth and load when it is made, and when the line is printed."""

    def __init__(self, name):
        self.name, self.before = name, (bandwidth(), load())

    def print(self, figures):
        """One line of JSON."""
        print(json.dumps({
            "benchmark": self.name, "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "processor": processor(), "cores": len(os.sched_getaffinity(0)),
            "load": [self.before[1][0], load()[0]],
            "one_thread_gb_per_second": [self.before[0], bandwidth()], **figures}))
