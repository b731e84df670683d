#include "engine/schedule/origins.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/schedule/job.h"

/* No salt of a request or of a state begins with this byte. */
static const char mark = '\x03', first_origin = 'a';

int32_t weir_origin_add(weir_origins *origins, const char *text)
{
    const int32_t n = origins->n;
    if (n == WEIR_ORIGINS) return -1;
    (void)snprintf(origins->texts[n], sizeof origins->texts[n], "%s", text);
    origins->n = n + 1;
    return n;
}

bool weir_origin_salt(char out[WEIR_PREFIX_SALT + 1], int32_t origin, const char *salt)
{
    const char *const plain = salt != NULL ? salt : WEIR_PREFIX_NO_SALT;
    return snprintf(
               out, WEIR_PREFIX_SALT + 1, "%c%c%s", mark, (char)(first_origin + origin), plain
           ) <= WEIR_PREFIX_SALT;
}

int32_t weir_origin_of(const weir_origins *origins, const char *salt)
{
    if (salt == NULL || salt[0] != mark) return -1;
    const int32_t origin = salt[1] - first_origin;
    return origin >= 0 && origin < origins->n ? origin : -1;
}

const char *weir_origin_plain_salt(const char *salt)
{
    return salt[0] == mark && salt[1] != '\0' ? salt + WEIR_ORIGIN_MARK : salt;
}

const char *weir_origin_text(const weir_origins *origins, const char *salt)
{
    const int32_t origin = weir_origin_of(origins, salt);
    return origin >= 0 ? origins->texts[origin] : NULL;
}

int32_t weir_origin_best(
    const weir_origins *origins, const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens,
    const char *salt
)
{
    char own[WEIR_PREFIX_SALT + 1];
    int32_t best = -1, n_best = -1;
    for (int32_t i = 0; i < origins->n; i++) {
        if (!weir_origin_salt(own, i, salt)) continue;
        if (n_best < 0) n_best = weir_prefix_match_length(prefix, tokens, n_tokens, salt);
        const int32_t n = weir_prefix_match_length(prefix, tokens, n_tokens, own);
        if (n <= n_best) continue;
        best = i;
        n_best = n;
    }
    return best;
}

/* With a policy, sequences that it pruned come first: ordinary ones are of little use to it. */
static int32_t best_pruned(const choice *c)
{
    const weir_service *const service = c->job->service;
    const weir_request *const r = &c->job->request;
    char own[WEIR_PREFIX_SALT + 1];
    if (c->sequence->policy_run == NULL ||
        weir_pruned_contains(service->prefix, r->prompt, r->n_prompt, r->cache_salt))
        return -1;
    for (int32_t i = 0; i < service->origins.n; i++)
        if (weir_origin_salt(own, i, r->cache_salt) &&
            weir_pruned_contains(service->prefix, r->prompt, r->n_prompt, own))
            return i;
    return -1;
}

void weir_choice_choose_origin(choice *c)
{
    weir_job *const job = c->job;
    const weir_service *const service = job->service;
    char salt[WEIR_PREFIX_SALT + 1];
    if (job->has_chosen_origin) return;
    job->has_chosen_origin = true;
    if (service->origins.n == 0) return;
    int32_t origin = best_pruned(c);
    if (origin < 0)
        origin = weir_origin_best(
            &service->origins, service->prefix, c->sequence->tokens, c->sequence->n_tokens - 1,
            job->request.cache_salt
        );
    if (origin < 0 || !weir_origin_salt(salt, origin, job->request.cache_salt)) return;
    (void)strcpy((char *)(uintptr_t)job->request.cache_salt, salt); /* weir_job_copy_salt */
    job->usage.numerics = service->origins.texts[origin];
}

char *weir_job_copy_salt(const char *salt)
{
    const char *const from = salt != NULL ? salt : WEIR_PREFIX_NO_SALT;
    char *const copy = weir_memory_take(strlen(from) + WEIR_ORIGIN_MARK + 1);
    if (copy != NULL) (void)strcpy(copy, from);
    return copy;
}
