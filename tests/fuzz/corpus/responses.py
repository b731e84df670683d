"""Bodies of /v1/responses, for responses_request_fuzz."""

import json

from containers import write

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}


def message(role, *parts):
    return {"type": "message", "role": role, "content": [*parts]}


def text(value, kind="input_text"):
    return {"type": kind, "text": value}


ITEMS = [
    message("developer", text("a")),
    {"role": "system", "content": "b"},
    message("user", text("c"), text("d")),
    {"type": "reasoning", "id": "rs_1", "summary": [text("s", "summary_text")]},
    {"type": "reasoning", "summary": [], "encrypted_content": "weir:e"},
    {"type": "reasoning", "summary": [], "content": [text("r", "reasoning_text")]},
    message("assistant", text("t", "output_text"), {"type": "refusal", "refusal": "n"}),
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"n\": [1]}"},
    {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "no"},
    message("assistant", text("u", "output_text")),
    {"type": "function_call_output", "call_id": "c1", "output": "g"},
    {"type": "function_call_output", "call_id": "c2", "output": [text("h")]},
    {"role": "user", "content": "i"},
]
FIELDS = {
    "model": "m",
    "input": "a",
    "instructions": "b",
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}},
             "verbosity": "low"},
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 9,
    "truncation": "auto",
    "parallel_tool_calls": False,
    "store": True,
    "stream": True,
    "metadata": {"k": "v"},
}
SEEDS = {
    "fields": FIELDS,
    "items": {"instructions": "z", "input": ITEMS},
    "tools": {"input": "a", "tools": [TOOL, {"type": "web_search"}], "tool_choice": "auto"},
    "named": {"input": "a", "tools": [TOOL],
              "tool_choice": {"type": "function", "name": "f"}},
    "allowed": {"input": "a", "tools": [TOOL],
                "tool_choice": {"type": "allowed_tools", "mode": "auto",
                                "tools": [{"type": "function", "name": "f"}]}},
}


def write_all():
    for name, body in SEEDS.items():
        write("responses_request", name, json.dumps(body).encode())
