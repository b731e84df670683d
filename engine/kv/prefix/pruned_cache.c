#include "engine/kv/prefix/pruned_cache.h"

#include <stdlib.h>

#include "engine/base/checked.h"
#include "engine/kv/prefix/pruned_cache_internal.h"

enum { ALIGNMENT = 64 };

/* ---- memory ---------------------------------------------------------------------------------- */
static size_t rounded(size_t n) { return (n + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

size_t pruned_bytes(const weir_prefix_limits *limits)
{
    size_t entries;
    if (limits->n_pruned == 0) return 0;
    if (limits->n_pruned < 0 || limits->n_pruned > WEIR_CUT_TEXTS ||
        !weir_mul_size(&entries, (size_t)limits->n_pruned, sizeof(pruned_entry)) ||
        !weir_add_size(&entries, rounded(entries), limits->pruned_bytes))
        return SIZE_MAX;
    return entries;
}

void pruned_open(weir_prefix *p)
{
    if (p->pruned != NULL)
        p->pruned_memory =
            (char *)p->pruned + rounded((size_t)p->limits.n_pruned * sizeof *p->pruned);
}

/* The same layout for a cached sequence and for the largest possible one. */
static void lay_out(
    pruned_entry *text, size_t snapshot_bytes, size_t table_bytes, size_t policy_bytes,
    size_t state_bytes
)
{
    text->recurrent = rounded((size_t)text->n_tokens * sizeof(int32_t));
    text->snapshot = text->recurrent + rounded(snapshot_bytes);
    text->policy = text->snapshot + rounded(table_bytes);
    text->state = text->policy + rounded(policy_bytes);
    text->state_bytes = state_bytes;
    text->bytes = text->state + rounded(state_bytes);
}

size_t weir_pruned_entry_bytes(
    const weir_kv_spec *spec, size_t snapshot_bytes, int64_t n_tokens, int64_t n_rows,
    size_t state_bytes
)
{
    enum { OPTIONS = 1 << 10 }; /* of a policy, printed */
    pruned_entry text = { .n_tokens = (int32_t)n_tokens };
    lay_out(
        &text, snapshot_bytes, weir_table_snapshot_max_bytes(spec, n_rows), OPTIONS, state_bytes
    );
    return text.bytes;
}

static bool is_used(const pruned_entry *text) { return text->bytes > 0; }

/* Finds a gap of this many bytes: at the beginning, or after an entry. */
static bool find_gap(const weir_prefix *p, size_t bytes, size_t *at)
{
    for (int32_t i = -1; i < p->limits.n_pruned; i++) {
        if (i >= 0 && !is_used(&p->pruned[i])) continue;
        const size_t first = i < 0 ? 0 : p->pruned[i].at + p->pruned[i].bytes;
        bool is_free = first + bytes <= p->limits.pruned_bytes;
        for (const pruned_entry *t = p->pruned; is_free && t < p->pruned + p->limits.n_pruned; t++)
            is_free = !is_used(t) || t->at + t->bytes <= first || t->at >= first + bytes;
        if (!is_free) continue;
        *at = first;
        return true;
    }
    return false;
}

static pruned_entry *free_entry(const weir_prefix *p)
{
    for (pruned_entry *t = p->pruned; t < p->pruned + p->limits.n_pruned; t++)
        if (!is_used(t)) return t;
    return NULL;
}

/* ---- dropping -------------------------------------------------------------------------------- */
static void drop(weir_prefix *p, pruned_entry *text)
{
    weir_table_snapshot_release(entry_snapshot(p, text), p->store);
    p->stats.n_pruned--;
    p->stats.n_pruned_tokens -= text->n_tokens;
    *text = (pruned_entry){ 0 };
}

pruned_entry *pruned_oldest(const weir_prefix *p)
{
    pruned_entry *oldest = NULL;
    for (pruned_entry *t = p->pruned; p->pruned != NULL && t < p->pruned + p->limits.n_pruned; t++)
        if (is_used(t) && t->n_holds == 0 && (oldest == NULL || t->last_use < oldest->last_use))
            oldest = t;
    return oldest;
}

bool weir_pruned_drop_oldest(weir_prefix *prefix)
{
    pruned_entry *const oldest = pruned_oldest(prefix);
    if (oldest == NULL) return false;
    prefix->stats.dropped_tokens += oldest->n_tokens;
    prefix->stats.unsaved_tokens += oldest->n_tokens;
    drop(prefix, oldest);
    return true;
}

void pruned_close(weir_prefix *p)
{
    while (pruned_oldest(p) != NULL) (void)weir_pruned_drop_oldest(p);
}

/* ---- finding --------------------------------------------------------------------------------- */
typedef enum kinship {
    OF_OTHERS /* another salt */,
    OTHER_POLICY,
    OTHER_CHOICE /* budget or protected rows */,
    ALIKE
} kinship;

static kinship compare(const pruned_entry *text, const weir_policy_history *past, const char *salt)
{
    if (!is_used(text) || strcmp(text->salt, salt_text(salt)) != 0) return OF_OTHERS;
    if (memcmp(text->past.policy, past->policy, sizeof past->policy) != 0) return OTHER_POLICY;
    return text->past.budget == past->budget && text->past.n_pinned == past->n_pinned
               ? ALIKE
               : OTHER_CHOICE;
}

static bool begins(
    const weir_prefix *p, const pruned_entry *text, const int32_t *tokens, int32_t most
)
{
    return text->n_tokens <= most &&
           common(pruned_tokens(p, text), tokens, text->n_tokens) == text->n_tokens;
}

bool weir_pruned_contains(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    for (const pruned_entry *t = prefix->pruned;
         prefix->pruned != NULL && t < prefix->pruned + prefix->limits.n_pruned; t++)
        if (is_used(t) && strcmp(t->salt, salt_text(salt)) == 0 &&
            begins(prefix, t, tokens, n_tokens))
            return true;
    return false;
}

static bool has_turns(const pruned_entry *text, const weir_policy_history *past)
{
    return text->past.n_turns == past->n_turns &&
           memcmp(text->past.turns, past->turns, (size_t)past->n_turns * sizeof *past->turns) == 0;
}

/* The longest one that is a prefix of the tokens, at most `most` of them. */
static pruned_entry *find(
    const weir_prefix *p, const int32_t *tokens, int32_t most, const weir_policy_history *past,
    const char *salt, bool again, weir_prefix_hit *hit
)
{
    pruned_entry *best = NULL;
    for (pruned_entry *t = p->pruned; p->pruned != NULL && t < p->pruned + p->limits.n_pruned;
         t++) {
        const kinship kin = compare(t, past, salt);
        if (kin == OTHER_CHOICE && hit->n_matched == 0)
            hit->reason = "texts of this KV policy are kept, under another budget or with other "
                          "protected rows";
        if (kin == OTHER_POLICY && hit->n_matched == 0 && begins(p, t, tokens, most))
            hit->reason = "this text is kept under another KV policy, or under other options of it";
        if (kin != ALIKE || (again && !has_turns(t, past))) continue;
        const int32_t same =
            common(pruned_tokens(p, t), tokens, t->n_tokens < most ? t->n_tokens : most);
        if (same > hit->n_matched) {
            hit->n_matched = same;
            hit->reason = "a text that its KV policy watched is continued whole or not at all, and "
                          "the nearest one differs here";
        }
        if (same == t->n_tokens && (best == NULL || t->n_tokens > best->n_tokens)) best = t;
    }
    return best;
}

/* ---- keeping --------------------------------------------------------------------------------- */
/* Of the entries that are prefixes of this one, or equal it, the longest shorter one stays. */
static void drop_beginnings(
    weir_prefix *p, const int32_t *tokens, int32_t n, const weir_policy_history *past,
    const char *salt
)
{
    weir_prefix_hit hit = { 0 };
    const pruned_entry *const last = find(p, tokens, n - 1, past, salt, false, &hit);
    for (pruned_entry *t = p->pruned; t < p->pruned + p->limits.n_pruned; t++) {
        if (t == last || t->n_holds > 0 || compare(t, past, salt) != ALIKE ||
            !begins(p, t, tokens, n))
            continue;
        drop(p, t);
    }
}

void weir_pruned_remove_name(weir_prefix *prefix, const char *name)
{
    for (pruned_entry *t = prefix->pruned;
         prefix->pruned != NULL && t < prefix->pruned + prefix->limits.n_pruned; t++)
        if (strcmp(t->name, name) == 0) t->name[0] = '\0';
}

static void set_name(weir_prefix *p, pruned_entry *entry, const char *name)
{
    if (name[0] == '\0' || strlen(name) > WEIR_PREFIX_NAME) return;
    weir_pruned_remove_name(p, name);
    prefix_unname(p, name);
    (void)strcpy(entry->name, name);
}

/* Allocates an entry and its place in the block. */
static pruned_entry *take_entry(weir_prefix *p, pruned_entry *text)
{
    while (free_entry(p) == NULL || !find_gap(p, text->bytes, &text->at))
        if (!weir_pruned_drop_oldest(p)) return NULL;
    return free_entry(p);
}

/* Fills in all of it except the policy's state. Returns NULL with the reason. */
static pruned_entry *make_entry(
    weir_prefix *p, const weir_pruned_entry *content, const weir_kv_table *table,
    const char **reason
)
{
    const size_t snapshot_bytes = content->recurrent != NULL ? p->limits.snapshot_bytes : 0,
                 policy_bytes = strlen(content->policy) + 1;
    pruned_entry text = { .n_tokens = content->n_tokens, .past = content->past };
    *reason = "none is kept (kv.policy.kept = 0, or no room for any)";
    if (p->limits.n_pruned == 0) return NULL;
    *reason = "its salt is too long";
    if (strlen(content->salt) > WEIR_PREFIX_SALT) return NULL;
    lay_out(
        &text, snapshot_bytes, weir_table_snapshot_bytes(table, p->store), policy_bytes,
        content->state_bytes
    );
    *reason =
        "it takes more memory than all kept texts have that a policy watched; raise kv.policy.kept";
    if (text.bytes > p->limits.pruned_bytes) return NULL;
    drop_beginnings(p, content->tokens, content->n_tokens, &content->past, content->salt);
    *reason = "another one is being saved";
    pruned_entry *const entry = take_entry(p, &text);
    if (entry == NULL) return NULL;
    char *const base = p->pruned_memory + text.at;
    text.last_use = ++p->clock;
    *entry = text;
    (void)strcpy(entry->salt, content->salt);
    set_name(p, entry, content->name);
    memcpy(base, content->tokens, (size_t)text.n_tokens * sizeof(int32_t));
    if (snapshot_bytes > 0)
        weir_ledger_copy(p->ledger, base + text.recurrent, content->recurrent, snapshot_bytes);
    weir_table_snapshot_take(base + text.snapshot, table, p->store);
    memcpy(base + text.policy, content->policy, policy_bytes);
    p->stats.n_pruned++;
    p->stats.n_pruned_tokens += text.n_tokens;
    return entry;
}

const char *weir_pruned_insert(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *name
)
{
    const char *reason;
    weir_pruned_entry content = { .tokens = sequence->tokens,
                                  .n_tokens = sequence->n_computed,
                                  .salt = salt_text(salt),
                                  .name = name != NULL ? name : "",
                                  .policy = weir_policy_run_policy_text(sequence->policy_run),
                                  .recurrent = sequence->recurrent,
                                  .state_bytes =
                                      weir_policy_run_saved_bytes(sequence->policy_run) };
    weir_policy_history_of(&content.past, sequence->policy_run);
    pruned_entry *const entry = make_entry(prefix, &content, &sequence->table, &reason);
    if (entry == NULL) return reason;
    weir_policy_run_save(sequence->policy_run, prefix->pruned_memory + entry->at + entry->state);
    return NULL;
}

/* ---- taking ---------------------------------------------------------------------------------- */
weir_prefix_hit weir_pruned_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, bool again
)
{
    weir_prefix_hit hit = { .reason = "no text of this KV policy is kept under this salt" };
    weir_policy_history past;
    WEIR_ASSERT(sequence->n_computed == 0 && sequence->policy_run != NULL);
    weir_policy_history_of(&past, sequence->policy_run);
    pruned_entry *const text =
        find(prefix, sequence->tokens, sequence->n_tokens - 1, &past, salt, again, &hit);
    if (text == NULL) return hit;
    const char *const base = prefix->pruned_memory + text->at;
    if (weir_table_snapshot_restore(base + text->snapshot, &sequence->table, prefix->store) !=
        WEIR_OK) {
        hit.reason = "there is no memory for its page table";
        return hit;
    }
    if (weir_policy_run_load(
            sequence->policy_run, &text->past, &sequence->table, base + text->state,
            text->state_bytes, NULL
        ) != WEIR_OK) {
        weir_kv_truncate(&sequence->table, prefix->store, 0);
        hit.reason = "the KV policy's state of the kept text cannot be used";
        return hit;
    }
    sequence->n_computed = text->n_tokens;
    if (sequence->recurrent_bytes > 0)
        weir_ledger_copy(
            sequence->ledger, sequence->recurrent, base + text->recurrent, sequence->recurrent_bytes
        );
    sequence->recurrent_dirty = true;
    text->last_use = ++prefix->clock;
    return (weir_prefix_hit){ .n_rows = text->n_tokens,
                              .n_matched = text->n_tokens,
                              .reason = "all of a kept text is continued" };
}

/* ---- files ----------------------------------------------------------------------------------- */
static pruned_entry *wished(const weir_prefix *p, const weir_pruned_query *wish)
{
    pruned_entry *best = NULL;
    for (pruned_entry *t = p->pruned; p->pruned != NULL && t < p->pruned + p->limits.n_pruned;
         t++) {
        if (!is_used(t)) continue;
        if (wish->name != NULL && strcmp(t->name, wish->name) == 0) return t;
        if (wish->name != NULL || strcmp(t->salt, salt_text(wish->salt)) != 0 ||
            !begins(p, t, wish->tokens, wish->n_tokens))
            continue;
        if (best == NULL || t->n_tokens > best->n_tokens ||
            (t->n_tokens == best->n_tokens && t->last_use > best->last_use))
            best = t;
    }
    return best;
}

static weir_status hold(
    weir_prefix *prefix, pruned_entry *text, weir_kv_sequence *sequence, weir_pruned_entry *content
)
{
    const char *const base = prefix->pruned_memory + text->at;
    WEIR_TRY(weir_table_snapshot_restore(base + text->snapshot, &sequence->table, prefix->store));
    text->n_holds++;
    *content = (weir_pruned_entry
    ){ .tokens = pruned_tokens(prefix, text),
       .n_tokens = text->n_tokens,
       .salt = text->salt,
       .name = text->name,
       .past = text->past,
       .policy = base + text->policy,
       .recurrent = has_states(prefix) ? (const float *)(base + text->recurrent) : NULL,
       .state = base + text->state,
       .state_bytes = text->state_bytes,
       .entry = (int32_t)(text - prefix->pruned) };
    return WEIR_OK;
}

weir_status weir_pruned_pin(
    weir_prefix *prefix, const weir_pruned_query *wish, weir_kv_sequence *sequence,
    weir_pruned_entry *content
)
{
    pruned_entry *const text = wished(prefix, wish);
    return text != NULL ? hold(prefix, text, sequence, content) : WEIR_ENOTFOUND;
}

weir_status weir_pruned_pin_next(
    weir_prefix *prefix, uint64_t *use, weir_kv_sequence *sequence, weir_pruned_entry *content
)
{
    pruned_entry *next = NULL;
    for (pruned_entry *t = prefix->pruned;
         prefix->pruned != NULL && t < prefix->pruned + prefix->limits.n_pruned; t++)
        if (is_used(t) && (*use == 0 || t->last_use < *use) &&
            (next == NULL || t->last_use > next->last_use))
            next = t;
    if (next == NULL) return WEIR_ENOTFOUND;
    *use = next->last_use;
    return hold(prefix, next, sequence, content);
}

void weir_pruned_unpin(weir_prefix *prefix, const weir_pruned_entry *content)
{
    WEIR_ASSERT(prefix->pruned[content->entry].n_holds > 0);
    prefix->pruned[content->entry].n_holds--;
}

const char *weir_pruned_restore(
    weir_prefix *prefix, const weir_kv_table *table, const weir_pruned_entry *content
)
{
    const char *reason;
    pruned_entry *const entry = make_entry(prefix, content, table, &reason);
    if (entry == NULL) return reason;
    memcpy(prefix->pruned_memory + entry->at + entry->state, content->state, content->state_bytes);
    return NULL;
}

bool weir_pruned_has_name(const weir_prefix *prefix, const char *name)
{
    return name[0] != '\0' && wished(prefix, &(weir_pruned_query){ .name = name }) != NULL;
}

/* ---- checking -------------------------------------------------------------------------------- */
bool pruned_is_sound(const weir_prefix *p)
{
    int64_t n = 0, n_tokens = 0;
    for (const pruned_entry *t = p->pruned; p->pruned != NULL && t < p->pruned + p->limits.n_pruned;
         t++) {
        if (!is_used(t)) continue;
        n++;
        n_tokens += t->n_tokens;
        if (t->at + t->bytes > p->limits.pruned_bytes ||
            t->past.turns[t->past.n_turns - 1].end != t->n_tokens)
            return false;
        for (const pruned_entry *o = p->pruned; o < t; o++)
            if (is_used(o) && o->at < t->at + t->bytes && t->at < o->at + o->bytes) return false;
    }
    return n == p->stats.n_pruned && n_tokens == p->stats.n_pruned_tokens;
}
