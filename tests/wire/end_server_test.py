#!/usr/bin/env python3
"""tests/wire/end_server_test.py - end_server.py waits for a server that ends, and describes and
kills one that does not."""
import pathlib
import subprocess
import sys
import unittest

END = pathlib.Path(__file__).with_name("end_server.py")
SERVER = "import signal, time; %s; print('ready', flush=True); time.sleep(60)"


class Ends(unittest.TestCase):
    def start(self, at_first):
        server = subprocess.Popen([sys.executable, "-c", SERVER % at_first],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), "ready\n")
        return server

    def end(self, pid, seconds):
        return subprocess.run([sys.executable, str(END), str(pid), str(seconds)],
                              capture_output=True, text=True, check=False)

    def test_one_that_ends(self):
        server = self.start("signal.signal(signal.SIGTERM, lambda *_: exit(0))")
        ended = self.end(server.pid, 30)
        self.assertEqual((ended.returncode, ended.stdout), (0, ""))
        self.assertEqual(server.wait(1), 0)
        self.assertEqual(self.end(server.pid, 30).returncode, 0, "one that is not there")

    def test_one_that_does_not(self):
        server = self.start("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
        ended = self.end(server.pid, 0.3)
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stdout, r"^FAILED  server \d+ did not end within 0.3 s of SIGTERM")
        self.assertRegex(ended.stdout, r"\nthread %d python" % server.pid)
        self.assertEqual(server.wait(5), -9)


if __name__ == "__main__":
    unittest.main()
