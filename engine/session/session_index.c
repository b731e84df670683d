/* engine/session/session_index.c - finds automatic files by content, as requests do not name them:
 * hashes of their first 512, 1024, 2048 ... tokens find candidates, their tokens say how many
 * match. A hint: that a file is gone is noticed when it is opened (docs/decisions/0013). */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/session/session_internal.h"
#include "offload/ledger.h"

enum { LEVELS = 16, MOST_ENTRIES = 1024, CANDIDATES = 4 };

struct session_entry {
    char name[WEIR_SESSION_NAME + 1];
    int32_t n_tokens;
    /* [levels_of(n_tokens)]: hashes of the first 512 << level tokens and the salt. */
    uint64_t starts[LEVELS];
    uint64_t added; /* order of insertion: the oldest are replaced */
};

static int32_t levels_of(int32_t n_tokens)
{
    int32_t n = 0;
    while (n < LEVELS && (int64_t)WEIR_SAVED_TOKENS << n <= n_tokens) n++;
    return n;
}

/* Each level hashes the previous hash and the tokens since. Returns the number of levels; 0 for too
 * few tokens. */
static int32_t hash_starts(
    uint64_t out[LEVELS], const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    const int32_t n = levels_of(n_tokens);
    uint64_t hash = XXH3_64bits(salt, strlen(salt));
    for (int32_t i = 0, at = 0; i < n; i++) {
        const int32_t end = WEIR_SAVED_TOKENS << i;
        hash = XXH3_64bits_withSeed(tokens + at, (size_t)(end - at) * sizeof *tokens, hash);
        out[i] = hash;
        at = end;
    }
    return n;
}

/* ---- the index ------------------------------------------------------------------------------- */
static int32_t most_entries(int32_t limit) { return limit < MOST_ENTRIES ? limit : MOST_ENTRIES; }

size_t session_index_bytes(int32_t limit)
{
    return (size_t)most_entries(limit) * sizeof(session_entry);
}

/* The entry of this name, else a free one, else the oldest. Requires the lock. */
static session_entry *place_for(weir_sessions *s, const char *name)
{
    session_entry *oldest = s->entries;
    for (session_entry *e = s->entries; e < s->entries + s->n_entries; e++) {
        if (strcmp(e->name, name) == 0) return e;
        if (e->added < oldest->added) oldest = e;
    }
    return s->n_entries < s->most_entries ? &s->entries[s->n_entries++] : oldest;
}

void session_index_add(
    weir_sessions *sessions, const char *name, const weir_session_content *content
)
{
    session_entry entry = { .n_tokens = content->n_tokens };
    if (sessions->entries == NULL ||
        hash_starts(
            entry.starts, content->tokens, content->n_tokens, weir_origin_plain_salt(content->salt)
        ) == 0)
        return;
    memcpy(entry.name, name, strlen(name) + 1);
    (void)pthread_mutex_lock(&sessions->lock);
    entry.added = ++sessions->n_added;
    *place_for(sessions, name) = entry;
    (void)pthread_mutex_unlock(&sessions->lock);
}

void session_index_forget(weir_sessions *sessions, const char *name)
{
    (void)pthread_mutex_lock(&sessions->lock);
    for (int32_t i = 0; i < sessions->n_entries; i++)
        if (strcmp(sessions->entries[i].name, name) == 0)
            sessions->entries[i] = sessions->entries[--sessions->n_entries];
    (void)pthread_mutex_unlock(&sessions->lock);
}

static int by_age(const void *a, const void *b)
{
    const int64_t left = ((const weir_session_info *)a)->changed_ns,
                  right = ((const weir_session_info *)b)->changed_ns;
    return (left > right) - (left < right);
}

/* Adds the files of earlier processes; if there are too many, the newest. */
static void add_files(weir_sessions *s)
{
    weir_session_info *list = NULL;
    size_t n = 0;
    if (session_folder_list(s, &list, &n, NULL) != WEIR_OK) return;
    if (n > 0) qsort(list, n, sizeof *list, by_age);
    for (size_t i = n > (size_t)s->most_entries ? n - (size_t)s->most_entries : 0; i < n; i++) {
        session_contents found;
        if (!list[i].is_automatic || session_contents_read(&found, s, list[i].name) != WEIR_OK)
            continue;
        if (!found.is_pruned)
            session_index_add(
                s, list[i].name,
                &(weir_session_content
                ){ .tokens = found.tokens, .n_tokens = found.n_tokens, .salt = found.salt }
            );
        session_contents_free(&found);
    }
    weir_memory_give(list);
}

weir_status session_index_open(weir_sessions *sessions, weir_error *error)
{
    WEIR_TRY(weir_ledger_alloc(
        sessions->service->ledger, (void **)&sessions->entries, WEIR_ACCOUNT_TOKENS,
        session_index_bytes(sessions->limit), error
    ));
    sessions->most_entries = most_entries(sessions->limit);
    add_files(sessions);
    return WEIR_OK;
}

void session_index_close(weir_sessions *sessions)
{
    if (sessions->entries != NULL)
        weir_ledger_free(
            sessions->service->ledger, sessions->entries, WEIR_ACCOUNT_TOKENS,
            session_index_bytes(sessions->limit)
        );
    sessions->entries = NULL;
}

/* ---- finding --------------------------------------------------------------------------------- */
typedef struct prompt {
    const int32_t *tokens; /* [n_tokens], all but the last one */
    int32_t n_tokens, n_levels;
    const char *salt;
    uint64_t starts[LEVELS];
    int32_t n_kept; /* rows of it that are cached in memory */
    int32_t n_refused; /* rows of it in a file of other numerics */
} prompt;

typedef struct candidate {
    char name[WEIR_SESSION_NAME + 1];
    int32_t n_most; /* most tokens that can match */
    uint64_t added;
} candidate;

/* Upper bound of the matching tokens if this level's hash matches and the next one's does not. */
static int32_t most_common(const session_entry *e, const prompt *p)
{
    const int32_t n_levels =
        levels_of(e->n_tokens) < p->n_levels ? levels_of(e->n_tokens) : p->n_levels;
    const int32_t shorter = e->n_tokens < p->n_tokens ? e->n_tokens : p->n_tokens;
    int32_t n = 0;
    while (n < n_levels && e->starts[n] == p->starts[n]) n++;
    return n == 0 ? 0 : n == n_levels ? shorter : (WEIR_SAVED_TOKENS << n) - 1;
}

static bool is_better(const candidate *a, const candidate *b)
{
    return a->n_most > b->n_most || (a->n_most == b->n_most && a->added > b->added);
}

/* Finds the files with the most matching tokens, best first. Returns their number. */
static int32_t find_candidates(weir_sessions *s, const prompt *p, candidate out[CANDIDATES])
{
    int32_t n = 0;
    (void)pthread_mutex_lock(&s->lock);
    for (const session_entry *e = s->entries; e < s->entries + s->n_entries; e++) {
        candidate one = { .n_most = most_common(e, p), .added = e->added };
        int32_t at = n;
        if (one.n_most < WEIR_SAVED_TOKENS) continue;
        memcpy(one.name, e->name, sizeof one.name);
        while (at > 0 && is_better(&one, &out[at - 1])) at--;
        if (at == CANDIDATES) continue;
        if (n < CANDIDATES) n++;
        for (int32_t k = n - 1; k > at; k--) out[k] = out[k - 1];
        out[at] = one;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

static bool is_new_cause(weir_sessions *s, const char *text)
{
    (void)pthread_mutex_lock(&s->lock);
    const bool is = weir_log_is_new(&s->recall_causes, text);
    (void)pthread_mutex_unlock(&s->lock);
    return is;
}

/* Logs why the file is not used. */
static void log_refused(weir_sessions *s, const prompt *p, const char *name, int32_t rows)
{
    weir_error why = { 0 };
    if (weir_sessions_check_numerics(s, name, &why) == WEIR_OK || !is_new_cause(s, why.text))
        return;
    weir_log(
        WEIR_LOG_WARNING,
        "a prompt of %d tokens is computed although session %s has %d of them, and others may be "
        "for the same reason: %s",
        (int)p->n_tokens, name, (int)rows, why.text
    );
}

/* Rows of the prompt that could be reused if this file were restored. If only its numerics prevent
 * that, counts them in n_refused, and returns 0. */
static int32_t rows_of(weir_sessions *s, prompt *p, const char *name)
{
    session_contents found;
    int32_t n = 0;
    if (session_contents_read(&found, s, name) != WEIR_OK || !found.is_automatic) {
        session_contents_free(&found);
        session_index_forget(s, name);
        return 0;
    }
    while (n < found.n_tokens && n < p->n_tokens && found.tokens[n] == p->tokens[n]) n++;
    if (strcmp(found.salt, p->salt) != 0) n = 0;
    session_contents_free(&found);
    int32_t last = s->identity.state_bytes == 0 ? n : 0; /* after the last restored state */
    for (int32_t i = found.n_states > s->most_states ? found.n_states - s->most_states : 0;
         i < found.n_states; i++)
        if (found.places[i] <= n) last = found.places[i];
    if (!found.is_refused) return last;
    if (last > p->n_refused && last >= p->n_kept + WEIR_SAVED_TOKENS) {
        p->n_refused = last;
        log_refused(s, p, name, last);
    }
    return 0;
}

static void ask_reach(weir_service *service, void *user)
{
    prompt *const p = user;
    char salt[WEIR_PREFIX_SALT + 1];
    const int32_t origin =
        weir_origin_best(&service->origins, service->prefix, p->tokens, p->n_tokens, p->salt);
    const bool has_origin = origin >= 0 && weir_origin_salt(salt, origin, p->salt);
    p->n_kept = weir_prefix_match_length(
        service->prefix, p->tokens, p->n_tokens, has_origin ? salt : p->salt
    );
}

static void count(weir_service *service, void *user)
{
    (void)pthread_mutex_lock(&service->lock);
    service->stats.found_sequences++;
    service->stats.found_tokens += *(const int32_t *)user;
    (void)pthread_mutex_unlock(&service->lock);
}

/* The candidate with the most rows that memory has not; NULL: there is none. */
static const char *find_best(
    weir_sessions *s, prompt *p, const candidate *list, int32_t n, int32_t *best_rows
)
{
    const char *best = NULL;
    *best_rows = 0;
    weir_service_call(s->service, ask_reach, p);
    for (int32_t i = 0; i < n; i++) {
        if (list[i].n_most < p->n_kept + WEIR_SAVED_TOKENS || list[i].n_most <= *best_rows)
            continue;
        const int32_t rows = rows_of(s, p, list[i].name);
        if (rows < p->n_kept + WEIR_SAVED_TOKENS || rows <= *best_rows) continue;
        best = list[i].name;
        *best_rows = rows;
    }
    return best;
}

static weir_status restore_best(
    session_transfer *own, const prompt *p, const char *best, int32_t rows, weir_session_job *job
)
{
    weir_sessions *const s = own->sessions;
    weir_error error = { 0 };
    const weir_status status = session_restore_named(own, best, &job->result, &error);
    if (status == WEIR_OK) {
        (void)pthread_mutex_lock(&s->lock);
        s->recall_causes = (weir_log_causes){ 0 };
        (void)pthread_mutex_unlock(&s->lock);
        session_touch(s, best);
        weir_service_call(s->service, count, &rows);
        return WEIR_OK;
    }
    if (status == WEIR_ECANCELED) return status;
    if (is_new_cause(s, error.text))
        weir_log(
            WEIR_LOG_WARNING,
            "a prompt of %d tokens is computed although session %s has %d of them, and others may "
            "be for the same reason: %s",
            (int)p->n_tokens, best, (int)rows, error.text
        );
    if (status != WEIR_EFULL) session_index_forget(s, best);
    return status;
}

/* Files that begin like the prompt, best first. */
static int32_t look_up(
    weir_sessions *s, prompt *p, const weir_session_job *job, candidate list[CANDIDATES]
)
{
    const int32_t n_reused =
        job->n_tokens - 1; /* one token must be computed, so a state after the last is unusable */
    *p = (prompt){ .tokens = job->tokens,
                   .n_tokens = n_reused,
                   .salt = job->salt != NULL ? job->salt : WEIR_PREFIX_NO_SALT };
    if (s->entries == NULL || n_reused < WEIR_SAVED_TOKENS || strlen(p->salt) > WEIR_PREFIX_SALT)
        return 0;
    p->n_levels = hash_starts(p->starts, p->tokens, n_reused, p->salt);
    return find_candidates(s, p, list);
}

bool weir_sessions_may_recall(weir_sessions *sessions, const weir_session_job *job)
{
    prompt p;
    candidate list[CANDIDATES];
    return look_up(sessions, &p, job, list) > 0;
}

bool session_is_recalled(weir_sessions *sessions, const weir_session_job *job)
{
    prompt p;
    candidate list[CANDIDATES];
    const int32_t n = look_up(sessions, &p, job, list);
    if (n > 0) ask_reach(sessions->service, &p);
    return n == 0 || list[0].n_most < p.n_kept + WEIR_SAVED_TOKENS;
}

weir_status session_recall(session_transfer *own, weir_session_job *job)
{
    weir_sessions *const s = own->sessions;
    prompt p;
    candidate list[CANDIDATES];
    int32_t rows = 0, n_restored = 0;
    const int32_t n = look_up(s, &p, job, list);
    const char *const best = n > 0 ? find_best(s, &p, list, n, &rows) : NULL;
    /* If another job has the file, its sequence may be cached soon. */
    if (best != NULL && !session_job_take_file(s, job, best)) return WEIR_OK;
    const weir_status status =
        best != NULL ? restore_best(own, &p, best, rows, job) : WEIR_ENOTFOUND;
    if (status == WEIR_OK) n_restored = rows;
    job->unused =
        p.n_refused > n_restored
            ? "a saved sequence that begins like this one was computed with other numerics, "
              "which sessions.numerics refuses"
            : NULL;
    return status == WEIR_ECANCELED ? status : WEIR_OK;
}
