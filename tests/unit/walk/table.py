"""The checkpoints that are walked.

name, gguf (general.architecture, None where there is no GGUF), pre (its tokenizer), arch (the row
of README's table; one per container where they differ), count (parameters as published, those of
text), kv and kv_window (elements of K and V that a token adds in layers that keep all rows, and in
those with a window, computed by hand), family and keys (families.py, hybrids.py, keys.py), config
(config.json, without what no engine reads), source (where it was read). refused: what the message
says where the checkpoint cannot be opened."""
import table_dense
import table_experts
import table_hybrid
import table_refused

CHECKPOINTS = [*table_dense.CHECKPOINTS, *table_experts.CHECKPOINTS, *table_hybrid.CHECKPOINTS,
               *table_refused.CHECKPOINTS]


def byte_letters():
    """The letter of each byte in a byte-level vocabulary."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) for b in shown] + [chr(256 + i) for i in range(len(hidden))]


def vocabulary(pre):
    """Keys of a vocabulary of single bytes; pre: that of a BPE, or the model of one of pieces."""
    if pre in ("llama", "gemma4"):
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
        kinds = [2, 3, 3] + [6] * 256
        return {"tokenizer.ggml.model": pre, "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.scores": [0.0] * len(tokens), "tokenizer.ggml.token_type": kinds,
                "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
                **({"tokenizer.ggml.merges": ["<0x00> <0x01>"]} if pre == "gemma4" else {})}
    tokens = [*byte_letters(), "<|end|>"]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * 256 + [3],
            "tokenizer.ggml.merges": ["\u0120 a"], "tokenizer.ggml.eos_token_id": 256}
