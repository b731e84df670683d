"""The other side of `weir verify`: logits of prompts by llama.cpp or transformers.

python3 verify_peer.py llama.cpp|transformers < LINES

tools/convert/peer.h has the protocol. llama.cpp needs the package llama-cpp-python, transformers
also torch.
"""

import json
import sys


def answer(logits, ids):
    """logits: rows of f32, as bytes; ids: what follows greedily."""
    rows, vocab, data = logits
    out = sys.stdout.buffer
    out.write(json.dumps({"rows": rows, "vocab": vocab}).encode() + b"\n")
    out.write(data)
    out.write(json.dumps(ids).encode() + b"\n")
    out.flush()


def with_llama_cpp(path, n, prompts):
    import llama_cpp
    import numpy

    longest = max(len(p) for p in prompts) + n + 1
    model = llama_cpp.Llama(
        path,
        n_ctx=longest,
        n_batch=longest,
        n_ubatch=longest,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        verbose=False,
    )
    for prompt in prompts:
        model.reset()
        model.eval(prompt)
        logits = numpy.array(model.scores[: len(prompt)], dtype="<f4")
        ids = []
        for i in range(n):
            ids.append(int(model.scores[len(prompt) + i - 1].argmax()))
            if i + 1 < n:
                model.eval([ids[-1]])
        answer((*logits.shape, logits.tobytes()), ids)


def with_transformers(path, n, prompts):
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model.eval()
    with torch.no_grad():
        for prompt in prompts:
            ids = list(prompt)
            logits = model(torch.tensor([ids])).logits[0].float()
            last = logits[-1]
            for i in range(n):
                ids.append(int(last.argmax()))
                if i + 1 < n:
                    last = model(torch.tensor([ids])).logits[0, -1].float()
            data = logits.contiguous().numpy().astype("<f4").tobytes()
            answer((*logits.shape, data), ids[len(prompt):])


def main():
    lines = [json.loads(line) for line in sys.stdin if line.strip()]
    run = {"llama.cpp": with_llama_cpp, "transformers": with_transformers}[sys.argv[1]]
    try:
        run(lines[0]["model"], lines[0]["generate"], lines[1:])
    except ImportError as missing:
        sys.exit(f"{missing}: install it for the Python that --python names")


if __name__ == "__main__":
    main()
