"""Answers of models with calls, one for each format, for toolcalls_fuzz: bytes for the format, the
beginning and the size of pieces, then the text.
"""

from containers import write

MARK = "<\uff5ctool\u2581%s\uff5c>"
DSML = "\uff5cDSML\uff5c"
JSON = '{"name": "f", "arguments": {"text": "a \\"b\\" \\u00e9", "n": [1, -2.5e3, null]}}'
ARGUMENTS = '{"text": "x", "n": 1}'
XML = "<function=f>\n<parameter=text>\na\n</parameter>\n<parameter=n>\n1\n</parameter>\n</function>"

# In the order of engine/toolcalls/formats.c.
ANSWERS = {
    "harmony": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
    "to=functions.f <|constrain|>json<|message|>" + ARGUMENTS + "<|call|>",
    "seed_oss": "<seed:think>a</seed:think><seed:tool_call>\n" + XML + "\n</seed:tool_call>",
    "qwen3_coder": "<think>a</think>\n\nb\n<tool_call>\n" + XML + "\n</tool_call>",
    "glm47": "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>",
    "glm": "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "hermes": "a\n<tool_call>\n" + JSON + "\n</tool_call>\n<tool_call>{}</tool_call> b",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="text">a</parameter>\n'
    "</invoke>\n</minimax:tool_call>",
    "minimax_m1": "<tool_calls>\n" + JSON + "\n" + JSON + "\n</tool_calls>",
    "deepseek_v4": f'<{DSML}tool_calls>\n<{DSML}invoke name="f">\n<{DSML}parameter name="text" '
    f'string="true">a</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}tool_calls>',
    "deepseek_v32": f'<{DSML}function_calls>\n<{DSML}invoke name="f">\n<{DSML}parameter name="n" '
    f'string="false">1</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}function_calls>',
    "deepseek_v3": MARK % "calls\u2581begin" + MARK % "call\u2581begin" + "function" + MARK % "sep"
    + "f\n```json\n" + ARGUMENTS + "\n```" + MARK % "call\u2581end" + MARK % "calls\u2581end",
    "deepseek_v31": MARK % "calls\u2581begin" + MARK % "call\u2581begin" + "f" + MARK % "sep"
    + ARGUMENTS + MARK % "call\u2581end" + MARK % "calls\u2581end",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
    "<|tool_call_argument_begin|>" + ARGUMENTS + "<|tool_call_end|><|tool_calls_section_end|>",
    "mistral_v11": "[TOOL_CALLS]f[ARGS]" + ARGUMENTS + "[TOOL_CALLS]f[ARGS]{}",
    "mistral": "[THINK]a[/THINK][TOOL_CALLS]f[CALL_ID]abc[ARGS]" + ARGUMENTS + "[TOOL_CALLS]["
    + JSON + "]",
    "nemotron": "<TOOLCALL>[" + JSON + "]</TOOLCALL>",
    "granite": "a\n<|tool_call|>[" + JSON + ", " + JSON + "]",
    "gemma4": '<|tool_call>call:f{text:<|"|>a<|"|>,n:[1,true]}<tool_call|>',
    "lfm2": '<|tool_call_start|>[f(text="a", n=1)]<|tool_call_end|>',
    "llama3_json": 'a\n{"name": "f", "parameters": {"n": 1}}; {"name": "f"}',
    "pythonic": "[f(text='a\\x41\\'', n=[1, {\"k\": True}]), f()]",
}


def write_all():
    for index, (name, answer) in enumerate(ANSWERS.items()):
        write("toolcalls", name, bytes([index, 0, 4]) + answer.encode())
        write("toolcalls", name + "_sure", bytes([index, 64, 0]) + answer[:-5].encode())
