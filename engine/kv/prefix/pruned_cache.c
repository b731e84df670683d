/* engine/kv/prefix/pruned_cache.c - the entries of the pruned cache: their memory, which of them
 * stay, and how they are made. */
#include "engine/kv/prefix/pruned_cache.h"

#include "engine/base/checked.h"
#include "engine/kv/prefix/pruned_cache_internal.h"

enum { ALIGNMENT = 64 };

/* ---- memory ---------------------------------------------------------------------------------- */
static size_t rounded(size_t n) { return (n + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

size_t pruned_bytes(const weir_prefix_limits *limits)
{
    size_t entries;
    if (limits->n_pruned == 0) return 0;
    if (limits->n_pruned < 0 || limits->n_pruned > WEIR_PRUNED_ENTRIES ||
        !weir_mul_size(&entries, 2 * (size_t)limits->n_pruned, sizeof(pruned_entry)) ||
        !weir_add_size(&entries, rounded(entries), limits->pruned_bytes))
        return SIZE_MAX;
    return entries;
}

void pruned_open(weir_prefix *p)
{
    if (p->pruned != NULL)
        p->pruned_memory =
            (char *)p->pruned + rounded((size_t)pruned_places(p) * sizeof *p->pruned);
}

/* The same layout for a cached sequence and for the largest possible one. */
static void lay_out(
    pruned_entry *entry, size_t snapshot_bytes, size_t table_bytes, size_t policy_bytes,
    size_t state_bytes
)
{
    entry->recurrent = rounded((size_t)entry->n_tokens * sizeof(int32_t));
    entry->snapshot = entry->recurrent + rounded(snapshot_bytes);
    entry->policy = entry->snapshot + rounded(table_bytes);
    entry->state = entry->policy + rounded(policy_bytes);
    entry->state_bytes = state_bytes;
    entry->bytes = entry->state + rounded(state_bytes);
}

size_t weir_pruned_entry_bytes(
    const weir_kv_spec *spec, size_t snapshot_bytes, int64_t n_tokens, int64_t n_rows,
    size_t state_bytes
)
{
    enum { OPTIONS = 1 << 10 }; /* of a policy, printed */
    pruned_entry entry = { .n_tokens = (int32_t)n_tokens };
    lay_out(
        &entry, snapshot_bytes, weir_table_snapshot_max_bytes(spec, n_rows), OPTIONS, state_bytes
    );
    return entry.bytes;
}

/* Finds a gap of this many bytes: at the beginning, or after an entry. past_spare: counts the
 * memory of spare entries as free. */
static bool find_gap(const weir_prefix *p, size_t bytes, bool past_spare, size_t *at)
{
    const pruned_entry *const all = p->pruned;
    for (int32_t i = -1; i < pruned_places(p); i++) {
        if (i >= 0 && !pruned_is_used(&all[i])) continue;
        const size_t first = i < 0 ? 0 : all[i].at + all[i].bytes;
        bool is_free = first + bytes <= p->limits.pruned_bytes;
        for (int32_t k = 0; is_free && k < pruned_places(p); k++)
            is_free = !pruned_is_used(&all[k]) || (past_spare && all[k].is_spare) ||
                      all[k].at + all[k].bytes <= first || all[k].at >= first + bytes;
        if (!is_free) continue;
        *at = first;
        return true;
    }
    return false;
}

/* The first place of ends of turns, or of checkpoints; n_pruned of each. */
static pruned_entry *places_of(const weir_prefix *p, bool is_checkpoint)
{
    return p->pruned + (is_checkpoint ? p->limits.n_pruned : 0);
}

static pruned_entry *free_entry(const weir_prefix *p, bool is_checkpoint)
{
    pruned_entry *const first = places_of(p, is_checkpoint);
    for (pruned_entry *t = first; t < first + p->limits.n_pruned; t++)
        if (!pruned_is_used(t)) return t;
    return NULL;
}

/* ---- dropping -------------------------------------------------------------------------------- */
static void drop(weir_prefix *p, pruned_entry *entry)
{
    weir_table_snapshot_release(entry_snapshot(p, entry), p->store);
    p->stats.n_pruned -= !entry->is_checkpoint;
    p->stats.n_pruned_tokens -= entry->is_checkpoint ? 0 : entry->n_tokens;
    *entry = (pruned_entry){ 0 };
}

/* The least recently used entry of `n` places that is not held; of spare ones, if there are any and
 * these go first. */
static pruned_entry *oldest_of(pruned_entry *first, int32_t n, bool spare_first)
{
    pruned_entry *oldest = NULL;
    for (int32_t i = 0; i < n; i++) {
        pruned_entry *const t = &first[i];
        if (!pruned_is_used(t) || t->n_holds > 0) continue;
        const bool is_other = spare_first && oldest != NULL && t->is_spare != oldest->is_spare;
        if (oldest == NULL || (is_other ? t->is_spare : t->last_use < oldest->last_use)) oldest = t;
    }
    return oldest;
}

pruned_entry *pruned_oldest(const weir_prefix *p)
{
    return oldest_of(p->pruned, pruned_places(p), false);
}

void pruned_drop(weir_prefix *p, pruned_entry *entry)
{
    p->stats.dropped_tokens += entry->is_checkpoint ? 0 : entry->n_tokens;
    p->stats.unsaved_tokens += entry->is_checkpoint ? 0 : entry->n_tokens;
    drop(p, entry);
}

/* Drops the first of `n` places for another entry; a spare one takes the place of spare ones. */
static bool displace(weir_prefix *p, pruned_entry *first, int32_t n, bool for_spare)
{
    pruned_entry *const oldest = oldest_of(first, n, true);
    if (oldest == NULL || (for_spare && !oldest->is_spare)) return false;
    pruned_drop(p, oldest);
    return true;
}

bool weir_pruned_drop_oldest(weir_prefix *prefix)
{
    return displace(prefix, prefix->pruned, pruned_places(prefix), false);
}

void pruned_close(weir_prefix *p)
{
    while (weir_pruned_drop_oldest(p)) {
    }
}

/* ---- what stays ------------------------------------------------------------------------------ */
/* Of the entries that are prefixes of a new one (pruned_cache.h). */
typedef struct staying {
    const pruned_entry *turn, *first_checkpoint, *last_checkpoints[2], *used_checkpoint;
} staying;

static const pruned_entry *longer(const pruned_entry *a, const pruned_entry *b)
{
    return a == NULL || b->n_tokens > a->n_tokens ? b : a;
}

static void choose(staying *s, const pruned_entry *entry)
{
    if (!entry->is_checkpoint) {
        s->turn = longer(s->turn, entry);
        return;
    }
    if (s->first_checkpoint == NULL || entry->n_tokens < s->first_checkpoint->n_tokens)
        s->first_checkpoint = entry;
    if (longer(s->last_checkpoints[0], entry) == entry) {
        s->last_checkpoints[1] = s->last_checkpoints[0];
        s->last_checkpoints[0] = entry;
    } else {
        s->last_checkpoints[1] = longer(s->last_checkpoints[1], entry);
    }
    if (!entry->is_spare) s->used_checkpoint = longer(s->used_checkpoint, entry);
}

static bool stays(const staying *s, const pruned_entry *entry)
{
    return entry == s->turn || entry == s->first_checkpoint || entry == s->last_checkpoints[0] ||
           entry == s->last_checkpoints[1] || entry == s->used_checkpoint;
}

/* A checkpoint drops other checkpoints only: its turn may not come to its end. */
static void drop_beginnings(weir_prefix *p, const weir_pruned_entry *content, bool is_checkpoint)
{
    staying s = { 0 };
    const int32_t n = content->n_tokens;
    pruned_entry *const first = places_of(p, is_checkpoint), *const end =
                                                                 p->pruned + pruned_places(p);
    for (pruned_entry *t = first; t < end; t++)
        if (pruned_compare(t, &content->past, content->salt) == ALIKE &&
            pruned_begins(p, t, content->tokens, n - 1))
            choose(&s, t);
    for (pruned_entry *t = first; t < end; t++) {
        if (t->n_holds > 0 || pruned_compare(t, &content->past, content->salt) != ALIKE ||
            stays(&s, t) || (t->n_tokens == n && t->is_checkpoint != is_checkpoint) ||
            !pruned_begins(p, t, content->tokens, n))
            continue;
        drop(p, t);
    }
}

/* ---- keeping --------------------------------------------------------------------------------- */
void weir_pruned_remove_name(weir_prefix *prefix, const char *name)
{
    for (int32_t i = 0; i < pruned_places(prefix); i++)
        if (strcmp(prefix->pruned[i].name, name) == 0) prefix->pruned[i].name[0] = '\0';
}

static void set_name(weir_prefix *p, pruned_entry *entry, const char *name)
{
    if (name[0] == '\0' || strlen(name) > WEIR_PREFIX_NAME) return;
    weir_pruned_remove_name(p, name);
    prefix_unname(p, name);
    (void)strcpy(entry->name, name);
    entry->is_spare = false;
}

/* Allocates a place and memory; a spare entry takes them only from spare ones. */
static pruned_entry *take_entry(weir_prefix *p, pruned_entry *entry)
{
    const int32_t n = p->limits.n_pruned;
    pruned_entry *const places = places_of(p, entry->is_checkpoint);
    if (!find_gap(p, entry->bytes, entry->is_spare, &entry->at) && entry->is_spare) return NULL;
    while (free_entry(p, entry->is_checkpoint) == NULL)
        if (!displace(p, places, n, entry->is_spare)) return NULL;
    while (!find_gap(p, entry->bytes, false, &entry->at))
        if (!displace(p, p->pruned, pruned_places(p), entry->is_spare)) return NULL;
    return free_entry(p, entry->is_checkpoint);
}

static bool is_checkpoint(const weir_pruned_entry *content)
{
    const weir_policy_history *const past = &content->past;
    const int32_t end = past->n_turns > 0 ? past->turns[past->n_turns - 1].end : 0;
    WEIR_ASSERT(end <= content->n_tokens);
    return end < content->n_tokens;
}

pruned_entry *pruned_make(
    weir_prefix *p, const weir_pruned_entry *content, const weir_kv_table *table, bool is_spare,
    const char **reason
)
{
    const size_t snapshot_bytes = content->recurrent != NULL ? p->limits.snapshot_bytes : 0,
                 policy_bytes = strlen(content->policy) + 1;
    pruned_entry made = { .n_tokens = content->n_tokens,
                          .past = content->past,
                          .is_checkpoint = is_checkpoint(content),
                          .is_spare = is_spare };
    made.stands_for_end = made.is_checkpoint && !is_spare;
    *reason = "none is kept (kv.policy.kept = 0, or no room for any)";
    if (p->limits.n_pruned == 0) return NULL;
    *reason = "its salt is too long";
    if (strlen(content->salt) > WEIR_PREFIX_SALT) return NULL;
    lay_out(
        &made, snapshot_bytes, weir_table_snapshot_bytes(table, p->store), policy_bytes,
        content->state_bytes
    );
    *reason = "it takes more memory than the pruned cache has; raise kv.policy.kept";
    if (made.bytes > p->limits.pruned_bytes) return NULL;
    drop_beginnings(p, content, made.is_checkpoint);
    *reason = is_spare ? "cached sequences that are continued need the memory"
                       : "another one is being saved";
    pruned_entry *const entry = take_entry(p, &made);
    if (entry == NULL) return NULL;
    char *const base = p->pruned_memory + made.at;
    made.last_use = ++p->clock;
    *entry = made;
    (void)strcpy(entry->salt, content->salt);
    set_name(p, entry, content->name);
    memcpy(base, content->tokens, (size_t)made.n_tokens * sizeof(int32_t));
    if (snapshot_bytes > 0)
        weir_ledger_copy(p->ledger, base + made.recurrent, content->recurrent, snapshot_bytes);
    weir_table_snapshot_take(base + made.snapshot, table, p->store);
    memcpy(base + made.policy, content->policy, policy_bytes);
    p->stats.n_pruned += !made.is_checkpoint;
    p->stats.n_pruned_tokens += made.is_checkpoint ? 0 : made.n_tokens;
    return entry;
}

/* The checkpoint after these tokens, computed in the same turns: what it would hold is the same. */
static pruned_entry *same_checkpoint(const weir_prefix *p, const weir_pruned_entry *content)
{
    for (int32_t i = 0; is_checkpoint(content) && i < p->limits.n_pruned; i++) {
        pruned_entry *const t = &places_of(p, true)[i];
        if (pruned_compare(t, &content->past, content->salt) == ALIKE &&
            t->n_tokens == content->n_tokens && pruned_has_turns(t, &content->past) &&
            pruned_begins(p, t, content->tokens, content->n_tokens))
            return t;
    }
    return NULL;
}

const char *weir_pruned_insert(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *name,
    bool is_spare
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
    pruned_entry *const same = same_checkpoint(prefix, &content);
    if (same != NULL) {
        same->last_use = ++prefix->clock;
        same->is_spare = same->is_spare && is_spare;
        same->stands_for_end = same->stands_for_end || !is_spare;
        return NULL;
    }
    pruned_entry *const entry = pruned_make(prefix, &content, &sequence->table, is_spare, &reason);
    if (entry == NULL) return reason;
    prefix->stats.n_inserted++;
    weir_policy_run_save(sequence->policy_run, prefix->pruned_memory + entry->at + entry->state);
    return NULL;
}

bool weir_pruned_has_places(const weir_prefix *prefix)
{
    return prefix != NULL && pruned_places(prefix) > 0;
}

/* ---- checking -------------------------------------------------------------------------------- */
static bool is_entry_sound(const weir_prefix *p, const pruned_entry *entry)
{
    const weir_policy_history *const past = &entry->past;
    const int32_t end = past->n_turns > 0 ? past->turns[past->n_turns - 1].end : 0;
    bool is_sound = entry->at + entry->bytes <= p->limits.pruned_bytes &&
                    entry->is_checkpoint == (entry >= places_of(p, true)) &&
                    entry->is_checkpoint == (end < entry->n_tokens) && end <= entry->n_tokens;
    for (const pruned_entry *o = p->pruned; o < entry; o++)
        is_sound = is_sound && (!pruned_is_used(o) || o->at >= entry->at + entry->bytes ||
                                entry->at >= o->at + o->bytes);
    return is_sound;
}

bool pruned_is_sound(const weir_prefix *p)
{
    int64_t n = 0, n_tokens = 0;
    for (int32_t i = 0; i < pruned_places(p); i++) {
        const pruned_entry *const entry = &p->pruned[i];
        if (!pruned_is_used(entry)) continue;
        n += !entry->is_checkpoint;
        n_tokens += entry->is_checkpoint ? 0 : entry->n_tokens;
        if (!is_entry_sound(p, entry)) return false;
    }
    return n == p->stats.n_pruned && n_tokens == p->stats.n_pruned_tokens;
}
