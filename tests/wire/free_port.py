"""Prints a TCP port of 127.0.0.1 that is not in use now."""
import socket

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])
