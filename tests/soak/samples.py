"""samples.py - what a server holds, sampled over time, and whether it grows."""
import dataclasses
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
from group import field  # noqa: E402

MIB = 1 << 20
METRIC = re.compile(r'^weir:(\w+)\{([^}]*)\} (\S+)$', re.MULTILINE)


def threads(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def descriptors(pid):
    return sum(1 for _ in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def metrics(text):
    """{name: value}, with the label `tier` or `part` after the name if there is one."""
    values = {}
    for name, labels, value in METRIC.findall(text):
        more = re.search(r'(?:tier|part)="([^"]*)"', labels)
        if "account=" not in labels and "le=" not in labels:
            values[name + ("." + more.group(1) if more else "")] = float(value)
    return values


def sample(server):
    values = metrics(server.ask("GET", "/metrics", seconds=60).body.decode())
    parts = [value for name, value in values.items() if name.startswith("step_seconds_total.")]
    return {
        "resident": server.resident(),
        "anonymous": field(server.pid, "RssAnon"),
        "descriptors": descriptors(server.pid),
        "threads": threads(server.pid),
        "ledger": values["memory_used_bytes.host"],
        "kv": values["kv_used_bytes"],
        "kv_total": values["kv_total_bytes"],
        "steps": values["steps_total"],
        "overhead": sum(parts) - values["step_seconds_total.forward"],
        "running": values["num_requests_running"],
    }


@dataclasses.dataclass
class Measure:
    """Of each half: median or peak, in `unit`. May grow by a share of the first half and by a
    constant."""
    name: str
    unit: float
    of: callable
    share: float
    more: float

    def judge(self, first, second):
        a, b = self.of(first) / self.unit, self.of(second) / self.unit
        most = a * (1 + self.share) + self.more
        return a, b, most, b <= most


def median(name):
    return lambda half: statistics.median(s[name] for s in half)


def peak(name):
    return lambda half: max(s[name] for s in half)


def step_overhead(half):
    """Seconds of the engine thread outside the model for each step: the lower quartile over the
    pauses between samples, since other programs on the machine can only add to it."""
    each = [(b["overhead"] - a["overhead"]) / (b["steps"] - a["steps"])
            for a, b in zip(half, half[1:]) if b["steps"] > a["steps"]]
    return statistics.quantiles(each, n=4)[0] if len(each) > 1 else 0.0


MEASURES = (
    Measure("resident MiB, median", MIB, median("resident"), 0.02, 2),
    Measure("anonymous MiB, median", MIB, median("anonymous"), 0.02, 2),
    Measure("descriptors, peak", 1, peak("descriptors"), 0, 4),
    Measure("threads, peak", 1, peak("threads"), 0, 0),
    Measure("ledger MiB, median", MIB, median("ledger"), 0.01, 1),
    Measure("KV MiB in use, median", MIB, median("kv"), 0.25, 1),
    Measure("step overhead, us", 1e-6, step_overhead, 0.5, 20),
)


def halves(samples):
    """Without the first fifth, which warms up: pools and pages are touched once."""
    rest = samples[len(samples) // 5:]
    return rest[:len(rest) // 2], rest[len(rest) // 2:]
