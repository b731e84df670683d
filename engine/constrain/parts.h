/* engine/constrain/parts.h - the counters of products, and when a product accepts. */
#pragma once
#include "engine/constrain/rules.h"

enum { WEIR_COUNTER_WORDS = 3 }; /* of a counter in the key of a state; zeros at the start */

/* Moves a counter by a byte; false: no text that goes on so is right. */
bool weir_counter_step(const weir_part *part, uint32_t value[WEIR_COUNTER_WORDS], unsigned byte);
bool weir_counter_accepts(const weir_part *part, const uint32_t value[WEIR_COUNTER_WORDS]);
/* Whether the product of `rule` accepts in the state with this key. */
bool weir_parts_accept(const weir_rules *rules, const weir_rule *rule, const uint32_t *key);
/* Adds bytes from which on the counter may act differently. */
void weir_counter_borders(const weir_part *part, uint64_t borders[4]);
