/* tests/golden/text_golden.h - runs the tokenizer goldens of a folder: every file found there is a
 * case, one line of output each. */
#pragma once
#include <cstddef>

struct weir_golden_counts {
    size_t passed = 0, failed = 0, skipped = 0; /* cases */
    size_t records = 0; /* records compared */
};

/* dir: a folder as tests/golden/text (strings.jsonl, tok/F.*, chat_rendered.jsonl). filter: a part
 * of the case names to run, or "". Prints "ok NAME", "FAIL NAME reason" or "skipped NAME reason"
 * and adds to the counts. Returns 0 when nothing failed. */
int weir_golden_text(const char *dir, const char *filter, weir_golden_counts *counts);
/* dir: a folder as tests/golden/realvocab; fetched: where fetch.py put ggml-vocab-V.gguf, NULL:
 * nothing was fetched. */
int weir_golden_realvocab(
    const char *dir, const char *fetched, const char *filter, weir_golden_counts *counts
);
/* path: a JSON file that may hold a vocabulary of pieces with texts, as in
 * tests/golden/families/tokenizers. Returns false if it holds none; else prints and counts as
 * above. */
bool weir_golden_pieces(const char *path, const char *filter, weir_golden_counts *counts);
