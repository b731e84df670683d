"""await_server.py PORT PID: waits for an answer; exit 1 when the server ends or takes a minute."""
import os, sys, time, urllib.request

for _ in range(600):
    try:
        urllib.request.urlopen("http://127.0.0.1:%s/health" % sys.argv[1], timeout=2)
        sys.exit(0)
    except OSError:
        try:
            os.kill(int(sys.argv[2]), 0)
        except OSError:
            sys.exit(1)
        time.sleep(0.1)
sys.exit(1)
