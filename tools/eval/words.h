/* tools/eval/words.h - common English words, chosen for this project (data/), no word in two lists;
 * and names made of them. */
#pragma once
#include <stddef.h>

#include "engine/base/buffer.h"
#include "tools/eval/random.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number of words, about 2,200: nouns, then adjectives, then verbs. */
size_t weir_eval_words(void);
const char *weir_eval_word(size_t i);
const char *weir_eval_noun(weir_eval_random *r);
const char *weir_eval_adjective(weir_eval_random *r);

enum { WEIR_EVAL_UUID = 37 };
/* Version 4 from 122 random bits. */
void weir_eval_uuid(char out[WEIR_EVAL_UUID], weir_eval_random *r);

#ifdef __cplusplus
}
#endif
