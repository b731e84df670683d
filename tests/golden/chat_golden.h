/* tests/golden/chat_golden.h - runs the chat template goldens of a folder: a case for each template
 * and kind of record. */
#pragma once
#include "tests/golden/text_golden.h"

/* dir: a folder as tests/golden/text (chat_messages.jsonl, chat_tools.json, chat_rendered.jsonl,
 * templates/, tok/). Records of templates that are not in templates/ are looked for in
 * `fetched`/templates (NULL: none was fetched) or skipped. filter: a part of the case names to run,
 * or "". Prints "ok NAME", "FAIL NAME reason" or "skipped NAME reason" and adds to the counts.
 * Returns 0 when nothing failed. */
int weir_golden_chat(
    const char *dir, const char *fetched, const char *filter, weir_golden_counts *counts
);
/* dir: a folder as tests/golden/realvocab (conversations.json, rendered.jsonl); fetched: where
 * fetch.py put templates/, NULL: nothing was fetched, all is skipped. Errors of Python that are
 * none of the template (kinds type, undefined, sandbox, filter) may be refused or rendered; they
 * may not be anything else. */
int weir_golden_realvocab_chat(
    const char *dir, const char *fetched, const char *filter, weir_golden_counts *counts
);
