/* engine/constrain/calls.h - the grammar of an answer that calls tools or follows reasoning,
 * WEIR_GRAMMAR_CALLS: a JSON object that engine/toolcalls/force.c writes.
 *
 *   reasoning : [{"open", "close", "never": [..]}]: what may come before the answer; a member
 *               without "open" is inside from the start, and must come
 *   free      : text may come before, between and after blocks of calls; false: one block
 *   stops     : what the text never holds, because it opens a block
 *   open, separator, close : of a block of calls
 *   most      : calls; 0: 64
 *   python, tags : how arguments are written if not as JSON: true;
 *               {"key", "string", "json", "end", "never"} (weir_schema_style)
 *   kind, text : instead of calls: the answer is `open`, then a text of this grammar
 *   tools     : [{"name", "begin", "end", "parameters", "strict"}]: a call is its begin, arguments
 *               of its schema, its end. Without "strict" a schema that cannot be compiled allows
 *               any arguments
 *
 * In texts U+10FFFF stands for the byte FF, with which control tokens begin in the vocabulary;
 * U+10FFFE for a number of up to three digits. */
#pragma once
#include "engine/constrain/schema.h"

/* All return a state; 0 after a failure (nfa->status). */

/* A text of calls.h, then `next`; without its marks if not `marked`. */
uint32_t weir_calls_literal(weir_nfa *nfa, const weir_tree *text, bool marked, uint32_t next);
/* A rule of any text of one byte or more that holds none of the texts in `never` [n]. If `is_utf8`
 * only whole characters. UINT32_MAX after a failure. */
uint32_t weir_calls_text(weir_rules *rules, const weir_tree *const *never, size_t n, bool is_utf8);
/* Adds to a rule that is being made the parts that weir_calls_text gives it beside the first. */
void weir_calls_never(weir_rules *rules, const weir_tree *const *never, size_t n);
