/* engine/schedule/session_internal.h - shared by what runs sessions and what keeps their folder. */
#pragma once
#include <limits.h>

#include "engine/schedule/job.h"
#include "engine/schedule/session_store.h"

struct weir_sessions {
    char                 *folder;
    weir_session_identity identity;
    weir_service         *service;
    int32_t               limit, most_states, n_vocab;
    int64_t               disk;
    pthread_mutex_t       lock; /* one is saved or restored at a time; guards what is below */
    weir_sequence         sequence; /* its pages and tokens; its table changes on the engine thread only */
    char                  salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    weir_prefix_mark      marks[WEIR_SESSION_STATES]; /* [n_marks]: pinned (saving) or lent (restoring) */
    int32_t               n_marks;
};

/* session_folder.c */
typedef char                session_path[PATH_MAX];
WEIR_MUST_CHECK weir_status session_path_of(session_path out, const weir_sessions *sessions, const char *name, weir_error *error);
WEIR_MUST_CHECK weir_status session_folder_prepare(const weir_sessions *sessions, weir_error *error);
WEIR_MUST_CHECK weir_status session_folder_list(const weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error);
/* Deletes automatic files, those that were used longest ago first, until one of n_bytes may be added under `name`. */
WEIR_MUST_CHECK weir_status session_folder_make_room(const weir_sessions *sessions, const char *name, size_t n_bytes, weir_error *error);
/* Deletes automatic files whose text the sequence of `sessions` continues, other than `name`. */
void session_folder_drop_beginnings(const weir_sessions *sessions, const char *name);
