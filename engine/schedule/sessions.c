/* engine/schedule/sessions.c - saving and restoring. A session goes through one sequence that belongs to the sessions: the engine thread
 * lets it share the pages of a kept text (nobody writes to those) or gives it empty ones, the caller's thread moves the bytes, and the
 * engine thread takes everything back. */
#include "engine/schedule/sessions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/schedule/session_internal.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */
/* With a disk, what the sequence holds may move like that of others. */
static void enter(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    service->guests[0] = &s->own.sequence;
}

static void leave(weir_service *service, void *user)
{
    (void)user;
    service->guests[0] = NULL;
}

weir_status weir_sessions_open(weir_sessions **out, const weir_sessions_options *options, weir_error *error)
{
    weir_sessions *const s = calloc(1, sizeof *s);
    if (s == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the sessions");
    *s = (weir_sessions){ .folder = strdup(options->folder),
                          .identity = options->identity,
                          .service = options->service,
                          .limit = options->limit,
                          .most_states = options->n_states < WEIR_SESSION_STATES ? options->n_states : WEIR_SESSION_STATES,
                          .n_vocab = options->service != NULL ? options->service->info.n_vocab : INT32_MAX,
                          .disk = options->disk };
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->folder_lock, NULL);
    weir_status status = s->folder != NULL ? session_folder_prepare(s, error) : weir_error_set(error, WEIR_ENOMEM, "no memory for a path");
    if (status == WEIR_OK && s->service != NULL)
        status = weir_sequence_open(&s->own.sequence, s->service->store, s->service->ledger, 0, error);
    if (status == WEIR_OK && s->service != NULL) weir_service_call(s->service, enter, s);
    if (status == WEIR_OK && s->service != NULL && options->saves_unasked) {
        status = session_index_open(s, error);
        if (status == WEIR_OK) status = weir_saver_open(&s->saver, s, error);
    }
    if (status != WEIR_OK)
        weir_sessions_close(s);
    else
        *out = s;
    return status;
}

void weir_sessions_close(weir_sessions *sessions)
{
    if (sessions == NULL) return;
    weir_saver_close(sessions->saver);
    session_index_close(sessions);
    if (sessions->service != NULL && sessions->own.sequence.store != NULL) weir_service_call(sessions->service, leave, NULL);
    weir_sequence_close(&sessions->own.sequence);
    (void)pthread_mutex_destroy(&sessions->folder_lock);
    (void)pthread_mutex_destroy(&sessions->lock);
    free(sessions->folder);
    free(sessions);
}

static weir_status begin(weir_sessions *s, weir_error *error)
{
    if (pthread_mutex_trylock(&s->lock) == 0) return WEIR_OK;
    return weir_error_set(error, WEIR_ECANCELED, "another session is being saved or restored; try again");
}

static void end(weir_sessions *s) { (void)pthread_mutex_unlock(&s->lock); }

/* ---- on the engine thread ------------------------------------------------------------------------------------------- */
typedef struct wish { /* of one call */
    weir_sessions           *sessions;
    const weir_session_wish *save;
    weir_prefix_cursor      *cursor;
    uint64_t                *cut_use; /* not NULL: of texts that a policy watched */
    weir_prefix_hit          hit;
    int32_t                  n_states;
    int64_t                  rows; /* that the sequence needs now */
    weir_status              status;
    weir_error               error;
} wish;

/* The sequence has its tokens: it shares their pages, the states are pinned. */
static void share_text(wish *w)
{
    weir_sessions *const s = w->sessions;
    w->hit = weir_prefix_take(s->service->prefix, &s->own.sequence, s->own.salt, s->own.sequence.n_tokens);
    s->own.sequence.n_tokens = s->own.sequence.n_computed;
    const int32_t most = s->identity.state_bytes > 0 ? WEIR_SESSION_STATES : 0;
    s->own.n_marks = most > 0 ? weir_prefix_pin(s->service->prefix, &s->own.sequence, s->own.salt, s->own.marks, most) : 0;
    w->status = s->own.sequence.n_computed > 0 ? WEIR_OK : WEIR_ENOTFOUND;
}

/* One that a policy watched, if it has the name, or more of the tokens than the others. */
static bool take_cut(wish *w)
{
    const weir_session_wish *const save = w->save;
    weir_prefix *const             prefix = w->sessions->service->prefix;
    const weir_cut_wish            cut = {
                   .name = save->tokens == NULL ? save->name : NULL, .salt = save->salt, .tokens = save->tokens, .n_tokens = save->n_tokens
    };
    if (!session_take_cut(w->sessions, &cut)) return false;
    w->status = WEIR_OK;
    if (save->tokens == NULL || w->sessions->own.cut.n_tokens >= weir_prefix_reach(prefix, save->tokens, save->n_tokens, save->salt))
        return true;
    session_let_go_cut(w->sessions);
    weir_sequence_clear(&w->sessions->own.sequence);
    return false;
}

static void take_wished(weir_service *service, void *user)
{
    wish *const                    w = user;
    weir_sessions *const           s = w->sessions;
    const weir_session_wish *const save = w->save;
    w->status = WEIR_ENOTFOUND;
    w->hit = (weir_prefix_hit){ .reason = "no request has named a text so, or it was dropped since" };
    if (take_cut(w)) return;
    if (save->tokens == NULL && !weir_prefix_named(service->prefix, save->name, &s->own.sequence, s->own.salt)) return;
    if (save->tokens != NULL) {
        memcpy(s->own.sequence.tokens, save->tokens, (size_t)save->n_tokens * sizeof *save->tokens);
        s->own.sequence.n_tokens = save->n_tokens;
        (void)snprintf(s->own.salt, sizeof s->own.salt, "%s", save->salt != NULL ? save->salt : WEIR_PREFIX_NO_SALT);
    }
    share_text(w);
}

static void take_next(weir_service *service, void *user)
{
    wish *const          w = user;
    weir_sessions *const s = w->sessions;
    w->status = WEIR_ENOTFOUND;
    if (w->cut_use != NULL) {
        if (session_take_next_cut(s, w->cut_use)) w->status = WEIR_OK;
        return;
    }
    if (weir_prefix_next(service->prefix, w->cursor, &s->own.sequence, s->own.salt, s->own.name)) {
        share_text(w);
        if (w->status != WEIR_OK) w->status = WEIR_EMISMATCH; /* nothing of this one can be continued; there may be others */
    }
}

typedef struct question { /* is a text of this name kept? */
    const char *name;
    bool        is_kept;
} question;

static void answer(weir_service *service, void *user)
{
    question *const q = user;
    q->is_kept = weir_prefix_has_name(service->prefix, q->name) || weir_prefix_has_cut_name(service->prefix, q->name);
}

static void let_go(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    if (s->own.is_cut) session_let_go_cut(s);
    weir_prefix_unpin(service->prefix, s->own.marks, s->own.n_marks);
    s->own.n_marks = 0;
    weir_sequence_clear(&s->own.sequence);
}

static bool is_tiered(const weir_sessions *s) { return weir_kv_store_spec(s->service->store)->n_disk_pages > 0; }

/* Of a text that is restored beside a disk, at a time: what running sequences can spare for sure. */
static int64_t piece_rows(const weir_sessions *s)
{
    enum { LEAST_BLOCKS = 2, MOST_BLOCKS = 16 };
    const weir_kv_spec *const spec = weir_kv_store_spec(s->service->store);
    const int64_t             blocks = (spec->n_pages - spec->n_disk_pages - spec->n_sink_pages) / weir_kv_pages_for(spec, 1);
    const int64_t             least =
        weir_tiers_least_blocks(s->service->info.n_slots + 1, s->service->chunk, weir_runner_limits_of(s->service->runner)->hot);
    const int64_t wanted = LEAST_BLOCKS + (blocks - least) / 2;
    return (wanted < LEAST_BLOCKS ? LEAST_BLOCKS : wanted < MOST_BLOCKS ? wanted : MOST_BLOCKS) * WEIR_PAGE_TOKENS;
}

/* Pages for so many rows: what was read before is whole, and may move. */
static void grow(weir_service *service, void *user)
{
    wish *const          w = user;
    weir_sequence *const sequence = &w->sessions->own.sequence;
    if (is_tiered(w->sessions)) {
        weir_kv_commit(&sequence->table, sequence->table.n_pages * WEIR_PAGE_TOKENS - sequence->table.n_rows);
        const int64_t       end = (w->rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
        const weir_kv_pages pages = weir_kv_pages_of(weir_kv_store_spec(service->store), sequence->table.n_pages, end);
        w->status = weir_runner_make_room(service->runner, service->store,
                                          pages.others / weir_kv_pages_for(weir_kv_store_spec(service->store), 1), &w->error);
        if (w->status != WEIR_OK) return;
    }
    w->status = weir_kv_reserve(&sequence->table, service->store, w->rows - sequence->table.n_rows);
}

static weir_kv_pages pages_of_text(const weir_kv_spec *spec, int32_t n_tokens)
{
    return weir_kv_pages_of(spec, 0, (n_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS);
}

/* Pages that nobody has a claim to, and slots for the last states; all or none. */
static void make_place(weir_service *service, void *user)
{
    wish *const          w = user;
    weir_sessions *const s = w->sessions;
    const weir_kv_pages  pages = pages_of_text(weir_kv_store_spec(service->store), s->own.sequence.n_tokens);
    w->status = WEIR_EFULL;
    if (!weir_saver_makes_room(s->saver, service, pages) || !weir_prefix_reclaim(service->prefix, pages)) return;
    w->rows = s->own.sequence.n_tokens;
    if (is_tiered(s) && w->rows > piece_rows(s)) w->rows = piece_rows(s);
    grow(service, w);
    if (w->status != WEIR_OK) {
        weir_sequence_clear(&s->own.sequence);
        return;
    }
    w->status = WEIR_EFULL;
    const int32_t want = w->n_states < s->most_states ? w->n_states : s->most_states;
    while (s->own.n_marks < want) {
        float *const state = weir_prefix_lend(service->prefix);
        if (state == NULL) break;
        s->own.marks[s->own.n_marks++] = (weir_prefix_mark){ .state = state };
    }
    if (s->own.n_marks > 0 || w->n_states == 0)
        w->status = WEIR_OK;
    else
        weir_sequence_clear(&s->own.sequence);
}

/* What was read is right: others may continue it from now on. */
static void take_in(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    weir_kv_commit(&s->own.sequence.table, s->own.sequence.n_tokens - s->own.sequence.table.n_rows);
    s->own.sequence.n_computed = s->own.sequence.n_tokens;
    (void)weir_prefix_keep(service->prefix, &s->own.sequence, s->own.salt, s->own.marks, s->own.n_marks, false);
    weir_prefix_name(service->prefix, &s->own.sequence, s->own.salt, s->own.name);
    weir_prefix_tried(service->prefix, s->own.sequence.tokens, s->own.sequence.n_tokens, s->own.sequence.n_tokens, s->own.salt);
    s->own.n_marks = 0;
    weir_sequence_clear(&s->own.sequence);
}

static void throw_away(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    for (int32_t i = 0; i < s->own.n_marks; i++) weir_prefix_give_back(service->prefix, s->own.marks[i].state);
    s->own.n_marks = 0;
    weir_sequence_clear(&s->own.sequence);
}

/* ---- saving ---------------------------------------------------------------------------------------------------------- */
weir_status session_write_text(weir_sessions *sessions, int writer, const char *name, const weir_session_text *text,
                               weir_session_result *result, weir_error *error)
{
    const size_t bytes = weir_session_file_bytes(&sessions->identity, text);
    session_path path;
    size_t       written = 0;
    WEIR_TRY(session_path_of(path, sessions, name, error));
    WEIR_TRY(session_folder_make_room(sessions, writer, name, bytes, error));
    const weir_status status = weir_session_write(path, &sessions->identity, text, &written, error);
    session_folder_done(sessions, writer);
    if (status == WEIR_OK) *result = (weir_session_result){ .n_tokens = text->n_tokens, .n_bytes = (int64_t)written };
    return status;
}

/* The text that the sequence shares. `cut` is filled if a policy watched it. */
static weir_session_text shared_text(const weir_sessions *s, bool is_automatic, weir_session_cut *cut)
{
    if (s->own.is_cut) session_cut_of(cut, s);
    return (weir_session_text){ .cut = s->own.is_cut ? cut : NULL,
                                .tokens = s->own.sequence.tokens,
                                .n_tokens = s->own.sequence.n_computed,
                                .n_states = s->own.n_marks,
                                .salt = s->own.salt,
                                .pages = s->own.sequence.table.pages,
                                .page_stride = s->own.sequence.table.capacity,
                                .spec = weir_kv_store_spec(s->service->store),
                                .store = s->service->store,
                                .states = s->own.marks,
                                .is_automatic = is_automatic };
}

static weir_status write_shared(weir_sessions *s, const char *name, bool is_automatic, weir_session_result *result, weir_error *error)
{
    weir_session_cut        cut;
    const weir_session_text text = shared_text(s, is_automatic, &cut);
    return session_write_text(s, 0, name, &text, result, error);
}

static weir_status check_wish(const weir_sessions *s, const weir_session_wish *save, weir_error *error)
{
    session_path path;
    WEIR_TRY(session_path_of(path, s, save->name, error));
    if (save->tokens != NULL && (save->n_tokens < 1 || save->n_tokens > s->service->info.window))
        return weir_error_set(error, WEIR_EINVAL, "a session has 1 to %d tokens here, not %d", (int)s->service->info.window,
                              (int)save->n_tokens);
    if (save->salt != NULL && strlen(save->salt) > WEIR_PREFIX_SALT) return weir_error_set(error, WEIR_EINVAL, "the salt is too long");
    return WEIR_OK;
}

weir_status weir_sessions_save(weir_sessions *sessions, const weir_session_wish *save, weir_session_result *result, weir_error *error)
{
    const int64_t start = weir_clock_ns();
    WEIR_TRY(check_wish(sessions, save, error));
    WEIR_TRY(begin(sessions, error));
    wish w = { .sessions = sessions, .save = save };
    weir_saver_pause(sessions->saver); /* what it writes takes room that is wanted here; written, it can give way */
    weir_service_call(sessions->service, take_wished, &w);
    weir_status status = w.status == WEIR_OK ? write_shared(sessions, save->name, false, result, error)
                                             : weir_error_set(error, w.status, "nothing to save as %s: %s", save->name, w.hit.reason);
    weir_service_call(sessions->service, let_go, sessions);
    weir_saver_resume(sessions->saver);
    end(sessions);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status;
}

void session_name_text(char name[WEIR_PREFIX_NAME + 1], const int32_t *tokens, int32_t n_tokens, const char *salt,
                       const weir_session_cut *cut)
{
    const XXH64_hash_t salted = XXH3_64bits(salt, strlen(salt));
    const XXH64_hash_t seed =
        cut != NULL ? XXH3_64bits_withSeed(&cut->past.policy, sizeof cut->past.policy, salted ^ (uint64_t)cut->past.budget) : salted;
    const XXH64_hash_t hash = XXH3_64bits_withSeed(tokens, (size_t)n_tokens * sizeof *tokens, seed);
    (void)snprintf(name, WEIR_PREFIX_NAME + 1, "auto-%016" PRIx64, (uint64_t)hash);
}

void session_touch(const weir_sessions *sessions, const char *name)
{
    session_path path;
    if (session_path_of(path, sessions, name, NULL) == WEIR_OK) (void)utimensat(AT_FDCWD, path, NULL, 0);
}

bool session_is_there(const weir_sessions *sessions, const char *name, const weir_session_text *text)
{
    session_path         path;
    weir_session_reader *reader = NULL;
    if (session_path_of(path, sessions, name, NULL) != WEIR_OK || weir_session_open(&reader, path, NULL) != WEIR_OK) return false;
    const weir_session_header *const header = weir_session_header_of(reader);
    const bool is = header->is_automatic && header->n_tokens == text->n_tokens && header->n_states >= text->n_states &&
                    weir_session_check(reader, &sessions->identity, NULL) == WEIR_OK && utimensat(AT_FDCWD, path, NULL, 0) == 0;
    weir_session_close(reader);
    return is;
}

static bool save_shared(weir_sessions *s, weir_log_causes *causes)
{
    weir_error              error = { 0 };
    weir_session_result     result;
    const bool              is_named = s->own.name[0] != '\0';
    weir_session_cut        cut;
    const weir_session_text text = shared_text(s, !is_named, &cut);
    if (!is_named) session_name_text(s->own.name, text.tokens, text.n_tokens, text.salt, text.cut);
    bool is_saved = !is_named && session_is_there(s, s->own.name, &text);
    if (!is_saved) is_saved = session_write_text(s, 0, s->own.name, &text, &result, &error) == WEIR_OK;
    if (!is_saved && weir_log_is_new(causes, error.text))
        weir_log(WEIR_LOG_WARNING, "a conversation of %d tokens is not saved: %s", (int)text.n_tokens, error.text);
    if (is_saved && !is_named && text.cut == NULL) session_index_add(s, s->own.name, &text);
    if (is_saved && text.cut == NULL) session_folder_drop_beginnings(s, &text, s->own.name);
    return is_saved;
}

int32_t weir_sessions_save_recent(weir_sessions *sessions)
{
    enum { SHORTEST = WEIR_PAGE_TOKENS };
    weir_prefix_cursor cursor = { 0 };
    weir_log_causes    causes = { 0 };
    uint64_t           cut_use = 0;
    bool               has_texts = true, has_cut = true, is_cut = true;
    int32_t            n = 0, n_tried = 0;
    (void)pthread_mutex_lock(&sessions->lock);
    weir_saver_pause(sessions->saver);
    while (n_tried < sessions->limit && (has_texts || has_cut)) {
        wish w = { .sessions = sessions, .cursor = &cursor, .cut_use = is_cut && has_cut ? &cut_use : NULL };
        weir_service_call(sessions->service, take_next, &w);
        const bool is_worth_it = w.status == WEIR_OK && (sessions->own.sequence.n_computed >= SHORTEST || sessions->own.name[0] != '\0');
        if (is_worth_it) {
            n += save_shared(sessions, &causes);
            n_tried++;
        }
        weir_service_call(sessions->service, let_go, sessions);
        if (w.status == WEIR_ENOTFOUND) *(w.cut_use != NULL ? &has_cut : &has_texts) = false;
        is_cut = has_texts ? !is_cut && has_cut : true; /* in turn, as long as there are both */
    }
    weir_saver_resume(sessions->saver);
    (void)pthread_mutex_unlock(&sessions->lock);
    if (n < n_tried)
        weir_log(WEIR_LOG_WARNING, "%s: %d of %d conversations are not saved; make room there, or set sessions.dir to a folder that has it",
                 sessions->folder, (int)(n_tried - n), (int)n_tried);
    return n;
}

/* ---- restoring -------------------------------------------------------------------------------------------------------- */
static weir_status read_text(weir_sessions *s, weir_session_reader *reader, int32_t *places, weir_error *error)
{
    const int32_t n = weir_session_header_of(reader)->n_tokens;
    WEIR_TRY(weir_session_check(reader, &s->identity, error));
    if (n > s->service->info.window)
        return weir_error_set(error, WEIR_EFULL, "the session has %d tokens, the window here is %d; raise model.context", (int)n,
                              (int)s->service->info.window);
    WEIR_TRY(weir_session_read_tokens(reader, s->own.sequence.tokens, s->n_vocab, error));
    WEIR_TRY(weir_session_read_salt(reader, s->own.salt, error));
    WEIR_TRY(weir_session_read_places(reader, places, error));
    s->own.sequence.n_tokens = n;
    return WEIR_OK;
}

/* With a disk in pieces, so that what is larger than memory goes through it. */
static weir_status read_pages(weir_sessions *s, weir_session_reader *reader, weir_error *error)
{
    const weir_kv_spec *const  spec = weir_kv_store_spec(s->service->store);
    const weir_kv_table *const table = &s->own.sequence.table;
    if (!is_tiered(s)) return weir_session_read_pages(reader, table->pages, table->capacity, spec, error);
    const int64_t n = s->own.sequence.n_tokens;
    int64_t       first = 0;
    for (;;) {
        const int64_t end = table->n_pages;
        WEIR_TRY(weir_session_read_blocks(reader, table->pages, table->capacity, spec, first, end, error));
        if (end * WEIR_PAGE_TOKENS >= n) return WEIR_OK;
        const int64_t rows = end * WEIR_PAGE_TOKENS + piece_rows(s);
        wish          w = { .sessions = s, .rows = rows < n ? rows : n };
        weir_service_call(s->service, grow, &w);
        if (w.status != WEIR_OK)
            return weir_error_set(error, w.status, "no room for the %d tokens of session %s: %s", (int)n, s->own.name,
                                  w.error.text[0] != '\0' ? w.error.text : "others took it; try later");
        first = end;
    }
}

/* The last states of the file go to the slots; those before them pass through the first. */
static weir_status read_memory(weir_sessions *s, weir_session_reader *reader, const int32_t *places, weir_error *error)
{
    const int32_t n = weir_session_header_of(reader)->n_states, skipped = n - s->own.n_marks;
    float        *states[WEIR_SESSION_STATES];
    for (int32_t i = 0; i < n; i++) states[i] = s->own.marks[i < skipped ? 0 : i - skipped].state;
    for (int32_t i = 0; i < s->own.n_marks; i++) s->own.marks[i].at = places[skipped + i];
    WEIR_TRY(weir_session_read_states(reader, states, error));
    return read_pages(s, reader, error);
}

static weir_status restore_from(weir_sessions *s, weir_session_reader *reader, weir_session_result *result, weir_error *error)
{
    int32_t                          places[WEIR_SESSION_STATES];
    const weir_session_header *const header = weir_session_header_of(reader);
    weir_status                      status = read_text(s, reader, places, error);
    wish                             w = { .sessions = s, .n_states = header->n_states };
    if (status == WEIR_OK) {
        weir_service_call(s->service, make_place, &w);
        status = w.status;
        if (status != WEIR_OK)
            (void)weir_error_set(error, status,
                                 "no room for the %d tokens of session %s beside what runs now; try later, or raise memory.host",
                                 (int)header->n_tokens, s->own.name);
    }
    if (status == WEIR_OK) status = read_memory(s, reader, places, error);
    weir_service_call(s->service, status == WEIR_OK ? take_in : throw_away, s);
    if (status == WEIR_OK) *result = (weir_session_result){ .n_tokens = header->n_tokens, .n_bytes = (int64_t)header->bytes };
    return status;
}

weir_status session_restore_named(weir_sessions *s, const char *name, weir_session_result *result, weir_error *error)
{
    weir_session_reader *reader = NULL;
    session_path         path;
    WEIR_TRY(session_path_of(path, s, name, error));
    const weir_status opened = weir_session_open(&reader, path, error);
    if (opened == WEIR_ENOTFOUND) return weir_error_set(error, opened, "there is no session %s", name);
    if (opened != WEIR_OK) return opened;
    (void)snprintf(s->own.name, sizeof s->own.name, "%s", name);
    if (weir_session_header_of(reader)->is_automatic) s->own.name[0] = '\0';
    const weir_status status =
        weir_session_header_of(reader)->is_cut ? session_restore_cut(s, reader, result, error) : restore_from(s, reader, result, error);
    weir_session_close(reader);
    return status;
}

weir_status weir_sessions_restore(weir_sessions *sessions, const char *name, weir_session_result *result, weir_error *error)
{
    const int64_t start = weir_clock_ns();
    WEIR_TRY(begin(sessions, error));
    const weir_status status = session_restore_named(sessions, name, result, error);
    end(sessions);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status;
}

weir_status weir_sessions_resume(weir_sessions *sessions, const char *name, weir_error *error)
{
    question            q = { .name = name };
    weir_session_result result;
    (void)pthread_mutex_lock(&sessions->lock);
    weir_service_call(sessions->service, answer, &q);
    const weir_status status = q.is_kept ? WEIR_OK : session_restore_named(sessions, name, &result, error);
    (void)pthread_mutex_unlock(&sessions->lock);
    return status == WEIR_ENOTFOUND ? WEIR_OK : status;
}

static int by_age(const void *a, const void *b)
{
    const int64_t left = ((const weir_session_info *)a)->changed_ns, right = ((const weir_session_info *)b)->changed_ns;
    return (left > right) - (left < right);
}

/* Of the usable files, the newest that fit in free pages are moved to the end of the list; returns where they begin. */
static size_t choose(const weir_sessions *s, weir_session_info *list, size_t n)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(s->service->store);
    weir_kv_pages             pages = weir_kv_store_free(s->service->store);
    size_t                    first = n;
    qsort(list, n, sizeof *list, by_age);
    for (size_t i = n; i-- > 0;) {
        const weir_session_info info = list[i];
        const weir_kv_pages     wanted = pages_of_text(spec, info.n_tokens);
        if (info.problem != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "session %s is left alone: %s; `weir session list` says more", info.name,
                     weir_status_text(info.problem));
        if (info.problem != WEIR_OK || !weir_kv_pages_fit(wanted, pages) || info.n_tokens > s->service->info.window) continue;
        pages.sinks -= wanted.sinks;
        pages.others -= wanted.others;
        list[i] = list[--first];
        list[first] = info;
    }
    return first;
}

int32_t weir_sessions_restore_recent(weir_sessions *sessions)
{
    weir_session_info *list = NULL;
    size_t             n = 0;
    int32_t            n_restored = 0;
    weir_error         error = { 0 };
    if (weir_sessions_list(sessions, &list, &n, &error) != WEIR_OK) {
        weir_log(WEIR_LOG_WARNING, "no session is restored: %s", error.text);
        return 0;
    }
    for (size_t i = n > 0 ? choose(sessions, list, n) : 0; i < n; i++) { /* the newest last: it is the last to be dropped */
        weir_session_result result;
        if (weir_sessions_restore(sessions, list[i].name, &result, &error) == WEIR_OK)
            n_restored++;
        else
            weir_log(WEIR_LOG_WARNING, "session %s is not restored: %s", list[i].name, error.text);
    }
    weir_memory_give(list);
    return n_restored;
}

/* ---- the folder ------------------------------------------------------------------------------------------------------- */
weir_status weir_sessions_delete(weir_sessions *sessions, const char *name, weir_error *error)
{
    session_path path;
    WEIR_TRY(session_path_of(path, sessions, name, error));
    (void)pthread_mutex_lock(&sessions->folder_lock);
    const int reason = session_folder_drop(sessions, name);
    (void)pthread_mutex_unlock(&sessions->folder_lock);
    if (reason == 0) return WEIR_OK;
    if (reason == ENOENT) return weir_error_set(error, WEIR_ENOTFOUND, "there is no session %s", name);
    return weir_error_set(error, WEIR_EIO, "%s: cannot delete: %s", path, strerror(reason));
}

weir_status weir_sessions_list(weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error)
{
    return session_folder_list(sessions, out, n, error);
}
