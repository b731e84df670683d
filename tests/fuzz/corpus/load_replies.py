"""Seeds of load_reply_fuzz: replies of a server under load."""

import json

from containers import write


def http_chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def events(*objects):
    return b"".join(b"data: " + json.dumps(o).encode() + b"\n\n" for o in objects)


def write_all():
    stream = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    done = b"data: [DONE]\n\n"
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    write(
        "load_reply",
        "chat",
        stream
        + http_chunk(events({"choices": [{"delta": {"role": "assistant"}}]}) + b": ping\n\n")
        + http_chunk(
            events(
                {"choices": [{"delta": {"content": "a"}}]},
                {"choices": [{"delta": {"reasoning": "b"}, "finish_reason": "stop"}]},
            )
        )
        + http_chunk(events({"choices": [], "usage": usage}) + done)
        + b"0\r\n\r\n",
    )
    write(
        "load_reply",
        "completion",
        b"HTTP/1.0 200\r\nContent-Type: text/event-stream\r\n\r\n"
        b'data: {"choices":[{"text":"a","finish_reason":"length"}]}\r\n\r\ndata:[DONE]\r\r',
    )
    body = json.dumps({"error": {"message": "the queue is full", "code": None}}).encode()
    write(
        "load_reply",
        "refused",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
    )
    write(
        "load_reply",
        "failed",
        stream
        + http_chunk(events({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}))
        + http_chunk(events({"error": "device failed"}))
        + b"0\r\nA: b\r\n\r\n",
    )
