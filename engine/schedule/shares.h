/* engine/schedule/shares.h - prompt rows of steps by client (shares.c). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choice choice;

enum { CLIENT_ENTRIES = 64 };

/* Prompt rows at their cost that each client got, of a priority and of short or long
 * ones; clients and priorities may share an entry. is_open: it has such a prompt. */
enum { SHARE_PRIORITIES = 4, PROMPT_SHARES = 2 * SHARE_PRIORITIES * CLIENT_ENTRIES };
typedef struct prompt_shares {
    int64_t rows[PROMPT_SHARES];
    bool is_open[PROMPT_SHARES];
    bool waits[PROMPT_SHARES]; /* open, and a step that waits leaves all such prompts alone */
} prompt_shares;

/* More tokens are left of its prompt than batch.long_prompt. */
bool weir_choice_is_long(const choice *c);
/* The entry of prompt_shares for its client, priority and kind. */
int32_t weir_choice_share_of(const choice *c);
/* Called before each plan: which clients have prompts. */
void weir_service_open_shares(weir_service *service);
/* Called after a step: counts what its items got. */
void weir_service_count_shares(weir_service *service, int32_t n_items);

#ifdef __cplusplus
}
#endif
