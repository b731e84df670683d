#!/usr/bin/env python3
"""chat.py PROGRAM - two turns with examples/chat.c, Ctrl-C in the first answer."""

import os
import select
import signal
import subprocess
import sys
import time

DEADLINE = time.monotonic() + 60


def read_until(out, text, seen=""):
    """What the program prints up to `text`."""
    while text not in seen:
        left = DEADLINE - time.monotonic()
        if left <= 0 or not select.select([out], [], [], left)[0]:
            sys.exit(f"chat: waited for {text!r}, got {seen!r}")
        piece = os.read(out.fileno(), 4096).decode("utf-8", "replace")
        if piece == "":
            sys.exit(f"chat: ended before {text!r}, got {seen!r}")
        seen += piece
    return seen


def main():
    chat = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        read_until(chat.stdout, "> ")
        chat.stdin.write(b"Write a long text about the sea.\n")
        chat.stdin.flush()
        first = os.read(chat.stdout.fileno(), 1).decode("utf-8", "replace")
        chat.send_signal(signal.SIGINT)  # in the answer, or just after it
        read_until(chat.stdout, "\n> ", first)
        chat.stdin.write(b'The pass code of the "boat" is 7742. What is it?\n')
        chat.stdin.flush()
        answer = read_until(chat.stdout, "\n> ")
        chat.stdin.close()
        code = chat.wait(timeout=30)
    finally:
        if chat.poll() is None:
            chat.kill()
            chat.wait()
    if code != 0 or answer.strip("> \n") == "":
        sys.exit(f"chat: exit code {code}, second answer {answer!r}")


main()
