/* engine/session/session_numerics.c - files of other numerics, which sessions.numerics = "any"
 * continues: each set of numerics is an origin (engine/schedule/origins.h), whose sequences have
 * salts of their own in the cache but not in files (docs/decisions/0043). */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/session/session_internal.h"

/* ---- reading --------------------------------------------------------------------------------- */
static bool is_same(const weir_numerics *a, const weir_numerics *b)
{
    weir_numerics left = *a, right = *b;
    left.is_mixed = right.is_mixed = false;
    return a->is_mixed == b->is_mixed && weir_numerics_are_equal(&left, &right);
}

typedef struct addition {
    weir_sessions *sessions;
    const weir_numerics *numerics;
    char text[WEIR_NUMERICS_TEXT];
    int32_t origin;
} addition;
_Static_assert((int)WEIR_NUMERICS_TEXT <= (int)WEIR_ORIGIN_TEXT, "an origin has all of the text");

/* Two jobs may ask at once: the engine thread decides. */
static void find_origin(weir_service *service, void *user)
{
    addition *const a = user;
    weir_numerics *const origins = a->sessions->origins;
    for (a->origin = 0; a->origin < service->origins.n; a->origin++)
        if (is_same(&origins[a->origin], a->numerics)) return;
    a->origin = weir_origin_add(&service->origins, a->text);
    if (a->origin >= 0) origins[a->origin] = *a->numerics;
}

/* Returns its number; adds it if it is new. -1: there are too many. */
static int32_t origin_of(weir_sessions *s, const weir_numerics *numerics)
{
    addition a = { .sessions = s, .numerics = numerics };
    weir_numerics_print(a.text, numerics);
    weir_service_call(s->service, find_origin, &a);
    return a.origin;
}

weir_status session_choose_salt(
    session_transfer *own, const weir_session_header *header, weir_error *error
)
{
    const weir_numerics *const theirs = &header->identity.numerics;
    char plain[WEIR_PREFIX_SALT + 1];
    if (weir_origin_plain_salt(own->salt) != own->salt)
        return weir_error_set(
            error, WEIR_EFORMAT, "session %s: damaged: no request has its salt", own->name
        );
    if (weir_numerics_are_equal(theirs, &own->sessions->identity.numerics)) return WEIR_OK;
    const int32_t origin = origin_of(own->sessions, theirs);
    if (origin < 0)
        return weir_error_set(
            error, WEIR_EFULL,
            "session %s: files of %d other numerics are in use, which are all that an engine can "
            "tell apart; restart it to continue this one",
            own->name, (int)WEIR_ORIGINS
        );
    (void)strcpy(plain, own->salt);
    if (weir_origin_salt(own->salt, origin, plain)) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "session %s: its salt is too long for a file of other numerics",
        own->name
    );
}

weir_status weir_sessions_check_numerics(
    const weir_sessions *sessions, const char *name, weir_error *error
)
{
    session_path path;
    weir_session_reader *reader = NULL;
    if (sessions->identity.takes_any_numerics ||
        session_path_of(path, sessions, name, NULL) != WEIR_OK ||
        weir_session_open(&reader, path, NULL) != WEIR_OK)
        return WEIR_OK;
    const weir_session_identity *const own = &sessions->identity;
    const weir_session_header *const header = weir_session_header_of(reader);
    const weir_status status =
        session_is_refused(sessions, reader)
            ? weir_numerics_check(&header->identity.numerics, &own->numerics, path, error)
            : WEIR_OK;
    weir_session_close(reader);
    return status;
}

const uint64_t *weir_sessions_numerics(const weir_sessions *sessions)
{
    return sessions->identity.takes_any_numerics ? NULL : sessions->numerics;
}

bool session_is_refused(const weir_sessions *sessions, weir_session_reader *reader)
{
    weir_session_identity any = sessions->identity;
    const weir_session_header *const header = weir_session_header_of(reader);
    any.takes_any_numerics = true;
    return !sessions->identity.takes_any_numerics &&
           !weir_numerics_are_equal(&header->identity.numerics, &any.numerics) &&
           weir_session_check(reader, &any, NULL) == WEIR_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */
weir_session_content session_as_written(
    const weir_sessions *sessions, const weir_session_content *content
)
{
    const int32_t origin = weir_origin_of(&sessions->service->origins, content->salt);
    weir_session_content out = *content;
    out.salt = weir_origin_plain_salt(content->salt);
    if (origin >= 0) out.numerics = &sessions->origins[origin];
    return out;
}

bool session_has_origin(const weir_sessions *sessions, const weir_session_content *content)
{
    return weir_origin_of(&sessions->service->origins, content->salt) >= 0;
}

static bool has_numerics(const weir_sessions *s, const char *name, const weir_numerics *numerics)
{
    session_path path;
    weir_session_reader *reader = NULL;
    if (session_path_of(path, s, name, NULL) != WEIR_OK ||
        weir_session_open(&reader, path, NULL) != WEIR_OK)
        return false;
    const bool has = is_same(&weir_session_header_of(reader)->identity.numerics, numerics);
    weir_session_close(reader);
    return has;
}

/* Writing it again would mark all of it as mixed. */
bool session_is_unchanged(
    const weir_sessions *sessions, const char *name, const weir_session_content *content
)
{
    const int32_t origin = weir_origin_of(&sessions->service->origins, content->salt);
    session_contents found;
    if (origin < 0 || !has_numerics(sessions, name, &sessions->origins[origin]) ||
        session_contents_read(&found, sessions, name) != WEIR_OK)
        return false;
    const bool is =
        found.n_tokens == content->n_tokens && found.is_pruned == (content->pruned != NULL) &&
        memcmp(found.tokens, content->tokens, (size_t)found.n_tokens * sizeof *found.tokens) == 0;
    session_contents_free(&found);
    return is;
}
