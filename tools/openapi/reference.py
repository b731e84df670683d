#!/usr/bin/env python3
"""Writes the parts of docs/api.md that are between two comments, from the OpenAPI document that a
program prints (openapi.c): the list of endpoints, and a table of fields for each family of bodies.

    bazel run //tools/openapi:reference
    reference.py [--check] PROGRAM [API_MD]

With --check it writes nothing, and fails where a part is not that of the document. API_MD is
docs/api.md of the workspace from which Bazel was called. PROGRAM may be a file of JSON.
"""
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

# Tables by name, with their bodies and what these are called in a table.
FAMILIES = {
    "chats and completions": {"ChatRequest": "chat", "CompletionRequest": "completion",
                              "ResponsesRequest": "responses", "MessagesRequest": "messages"},
    "tokens": {"TokenizeRequest": "tokenize", "DetokenizeRequest": "detokenize"},
    "embeddings": {"EmbeddingsRequest": "embeddings", "RerankRequest": "rerank"},
    "llama-server": {"LlamaRequest": "completion", "InfillRequest": "infill",
                     "SlotRequest": "slots"},
    "Ollama": {"OllamaChatRequest": "chat", "OllamaGenerateRequest": "generate",
               "OllamaShowRequest": "show", "OllamaEmbedRequest": "embed",
               "OllamaEmbeddingsRequest": "embeddings"},
    "sessions": {"SaveRequest": "save", "RestoreRequest": "restore"},
    "states": {"StateRequest": "add", "QueryRequest": "query", "MergeRequest": "merge"},
}
SAME = {"CountRequest": "MessagesRequest"}  # but for what is required
LARGE = 2**31 - 1  # a limit that is only that of the type
REFERENCE = "#/components/schemas/"
PART = re.compile(r"(<!-- ((?:endpoints|fields of [^:]+)): written by tools/openapi/reference.py "
                  r"-->\n).*?(<!-- end -->\n)", re.DOTALL)


def wrapped(text):
    return textwrap.wrap(text, 100, initial_indent="- ", subsequent_indent="  ",
                         break_long_words=False, break_on_hyphens=False)


def endpoints(document):
    """The lines of the list: paths with the same text next to each other share an entry."""
    entries = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = "`%s %s`" % (method.upper(), path)
            text = operation["summary"] + ("; no key" if "security" in operation else "")
            if entries and entries[-1][1] == text:
                entries[-1][0].append(name)
            else:
                entries.append(([name], text))
    return [line for names, text in entries
            for line in wrapped("%s: %s" % (", ".join(names), text))]


# ---- fields -------------------------------------------------------------------------------------

def number_words(kind, schema):
    """A type of numbers with its range."""
    least, most = schema.get("minimum"), schema.get("maximum", LARGE)
    above = schema.get("exclusiveMinimum")
    begin = "above %g" % above if above is not None else "%g" % least if least is not None else None
    if begin is None:
        return kind if most >= LARGE else "%s, at most %g" % (kind, most)
    if most >= LARGE:
        return "%s, %s" % (kind, begin if above is not None else begin + " or more")
    return "%s, %s" % (kind, begin if least == most else "%s to %g" % (begin, most))


def value_words(schema, schemas):
    """[what the value may be, in words], null left out."""
    if "$ref" in schema:
        return value_words(schemas[schema["$ref"].removeprefix(REFERENCE)], schemas)
    if "anyOf" in schema:
        return [word for one in schema["anyOf"] for word in value_words(one, schemas)]
    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return ["`%s`" % (v if isinstance(v, str) and v else json.dumps(v))
                for v in values if v is not None]
    kinds = schema.get("type", "any")
    words = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind in ("integer", "number"):
            words.append(number_words(kind, schema))
        elif kind == "string" and "maxLength" in schema:
            words.append("string, at most %d bytes" % schema["maxLength"])
        elif kind == "array" and schema.get("maxItems") == 0:
            words.append("`[]`")
        elif kind != "null":
            words.append(kind)
    return words


def default_words(schema, is_needed):
    if is_needed:
        return "required"
    if "x-weir-default" in schema:
        return "`%s`" % schema["x-weir-default"]
    return json.dumps(schema["default"]).strip('"') if "default" in schema else ""


def joined(words):
    """Values as a list, types and ranges with "or"."""
    words = list(dict.fromkeys(words)) or ["null"]
    return (", " if all(word.startswith("`") for word in words) else " or ").join(words)


def marked(text):
    """Names of fields and keys in a text are code."""
    return re.sub(r"(?<![\w/])[a-z]+(?:[._][a-z0-9]+)+(?![\w=])", r"`\g<0>`", text)


# What is said of fields that are not read.
NOTES = {"Has no effect": "Accepted, without effect",
         "Only values without an effect": "Only with a value that has no effect",
         "Not supported": "400 `unsupported_parameter` unless null"}


def fields(document, bodies):
    """The lines of a table, and of lists of the fields that have no effect or are refused."""
    schemas = document["components"]["schemas"]
    places, rows, others = {}, {}, {}
    for body, name in bodies.items():
        for field, schema in schemas[body]["properties"].items():
            text = schema["description"]
            values = joined(value_words(schema, schemas))
            if text in NOTES:
                ranged = " (%s)" % values if text == "Only values without an effect" else ""
                others.setdefault((text, "`%s`%s" % (field, ranged)), []).append(name)
                continue
            default = default_words(schema, field in schemas[body]["required"])
            place = places.setdefault(field, len(places))  # the first one of that name
            rows.setdefault((place, field, values, default, text), []).append(name)

    def names_of(names):
        return "all" if len(names) == len(bodies) > 1 else ", ".join(names)

    lines = ["| field | in | values | default | meaning |", "|---|---|---|---|---|"]
    for (_, field, values, default, text), names in sorted(rows.items(), key=lambda r: r[0][0]):
        lines.append("| `%s` | %s | %s | %s | %s |"
                     % (field, names_of(names), values, default, marked(text)))
    lists = {}
    for (text, field), names in others.items():
        lists.setdefault((text, names_of(names)), []).append(field)
    for i, ((text, names), found) in enumerate(sorted(lists.items())):
        lines += [""] if i == 0 else []
        lines += wrapped("%s (%s): %s" % (NOTES[text], names, ", ".join(found)))
    return lines


# ---- the page -----------------------------------------------------------------------------------

def rewritten(text, document):
    """The page with its parts as the document has them."""
    found = []

    def part(match):
        name = match.group(2)
        found.append(name)
        lines = endpoints(document) if name == "endpoints" else \
            fields(document, FAMILIES[name.removeprefix("fields of ")])
        return match.group(1) + "\n".join(lines) + "\n" + match.group(3)

    new = PART.sub(part, text)
    wanted = ["endpoints"] + ["fields of " + name for name in FAMILIES]
    if sorted(found) != sorted(wanted):
        sys.exit("FAILED  docs/api.md has parts %s, not %s" % (sorted(found), sorted(wanted)))
    listed = {body for bodies in FAMILIES.values() for body in bodies} | set(SAME)
    used = set(re.findall(REFERENCE + r"(\w+Request)", json.dumps(document)))
    if listed != used:
        sys.exit("FAILED  bodies without a table, or tables without a body: %s"
                 % sorted(listed ^ used))
    return new


def read_document(program):
    if program.endswith(".json"):
        return json.loads(pathlib.Path(program).read_text())
    return json.loads(subprocess.run([program], check=True, capture_output=True).stdout)


def main(arguments):
    check = "--check" in arguments
    files = [a for a in arguments if a != "--check"]
    document = read_document(files[0])
    top = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")
    page = pathlib.Path(files[1] if len(files) > 1 else os.path.join(top, "docs/api.md"))
    text = page.read_text()
    new = rewritten(text, document)
    if not check:
        page.write_text(new)
        return 0
    for line in difflib.unified_diff(text.splitlines(), new.splitlines(), "docs/api.md",
                                     "/openapi.json", n=0, lineterm=""):
        print(line)
    if new != text:
        print("FAILED  docs/api.md is old: bazel run //tools/openapi:reference")
    return int(new != text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
