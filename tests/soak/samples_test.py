#!/usr/bin/env python3
"""tests/soak/samples_test.py - what grows is seen, and what is flat passes."""
import sys

sys.dont_write_bytecode = True  # no folder next to the sources
import samples  # noqa: E402

FLAT = {"resident": 50 << 20, "anonymous": 40 << 20, "descriptors": 30, "threads": 15,
        "ledger": 80 << 20, "kv": 2 << 20}


def taken(more=None):
    """100 samples; `more`: what each adds to a value."""
    made = []
    for i in range(100):
        one = {**FLAT, "steps": 100 * i, "overhead": 0.01 * i}
        for name, grows in (more or {}).items():
            one[name] += grows(i)
        made.append(one)
    return made


def failing(made):
    first, second = samples.halves(made)
    return {m.name for m in samples.MEASURES if not m.judge(first, second)[3]}


def main():
    mib = 1 << 20
    cases = [
        ("flat", {}, set()),
        ("warms up in the first fifth", {"resident": lambda i: min(i, 19) * mib}, set()),
        ("a peak", {"kv": lambda i: 9 * mib * (i == 90)}, set()),
        ("resident", {"resident": lambda i: i * mib // 8}, {"resident MiB, median"}),
        ("anonymous", {"anonymous": lambda i: i * mib // 8}, {"anonymous MiB, median"}),
        ("descriptors", {"descriptors": lambda i: i // 8}, {"descriptors, peak"}),
        ("a thread", {"threads": lambda i: int(i == 95)}, {"threads, peak"}),
        ("ledger", {"ledger": lambda i: i * mib // 8}, {"ledger MiB, median"}),
        ("KV", {"kv": lambda i: i * mib // 16}, {"KV MiB in use, median"}),
        ("step overhead", {"overhead": lambda i: 1e-3 * i * i}, {"step overhead, us"}),
    ]
    text = ('weir:steps_total{model_name="m"} 7\n'
            'weir:step_seconds_total{model_name="m",part="forward"} 0.5\n'
            'weir:memory_used_bytes{model_name="m",tier="host"} 3\n'
            'weir:memory_account_bytes{model_name="m",tier="host",account="kv"} 9\n')
    values = {"steps_total": 7.0, "step_seconds_total.forward": 0.5, "memory_used_bytes.host": 3.0}
    wrong = [] if samples.metrics(text) == values else [f"metrics: {samples.metrics(text)}"]
    wrong += [f"{name}: {failing(taken(more))}" for name, more, seen in cases
              if failing(taken(more)) != seen]
    for line in wrong:
        print("FAILED", line)
    print(f"{len(cases) + 1 - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
