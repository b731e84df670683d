"""group.py - a memory control group (version 1 or 2), or nothing where none can be made."""
import os
import pathlib
import time

KINDS = (
    ("/sys/fs/cgroup/memory", ("memory.limit_in_bytes",), "memory.max_usage_in_bytes",
     "memory.oom_control"),
    ("/sys/fs/cgroup", ("memory.max", "memory.swap.max"), "memory.peak", "memory.events"),
)


def field(pid, name):
    """A size of /proc/PID/status in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def drop_cache(path):
    """Takes a file out of the page cache, so that it is read from the disk, and in the group."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Group:
    made = 0

    def __init__(self, limit):
        self.path = None
        Group.made += 1
        name = f"weir-test-{os.getpid()}-{Group.made}"
        for root, limits, self.peak_name, self.events in KINDS:
            path = pathlib.Path(root) / name
            try:
                path.mkdir()
                (path / limits[0]).write_text(str(limit), encoding="ascii")
                for other in limits[1:]:
                    (path / other).write_text("0", encoding="ascii")
                self.path = path
                return
            except OSError:
                if path.is_dir():
                    path.rmdir()

    def say(self):
        """Prints where it is; "skipped" for tests/skips.py where there is none."""
        if self.path:
            print("memory cgroup:", self.path, flush=True)
        else:
            print("skipped memory_cgroup: none can be made here; resident memory is compared",
                  flush=True)

    def enter(self):
        """The calling process goes in; its children follow."""
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def peak(self):
        """Bytes held at most, 0: not known."""
        if self.path and (self.path / self.peak_name).exists():
            return int((self.path / self.peak_name).read_text(encoding="ascii"))
        return 0

    def anonymous(self, pid):
        """Without the page cache, which the group's limit holds down by itself."""
        if not self.path:
            return field(pid, "RssAnon")
        lines = (self.path / "memory.stat").read_text(encoding="ascii").splitlines()
        fields = dict(line.split() for line in lines)
        return int(fields.get("anon", fields.get("total_rss", 0)))

    def kills(self):
        if not self.path:
            return 0
        for line in (self.path / self.events).read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self):
        for _ in range(50):
            try:
                if self.path:
                    self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)
