/* engine/cli/chat.h - a conversation in the terminal: turns, and the commands between them. */
#pragma once
#include <jansson.h>
#include <limits.h>

#include "engine/cli/answer.h"
#include "engine/engine.h"

typedef struct weir_chat {
    const weir_engine *engine;
    json_t *messages; /* owned */
    weir_detokenizer stream;
    weir_buffer answer; /* so far */
    int lost; /* errno of a write of an answer that failed; 0: none did */
    weir_sampling sampling;
    int32_t max_tokens;
    /* Of the next answers. has_policy: not the configuration's. */
    bool has_policy;
    weir_policy_options policy;
    int64_t kv_budget; /* 0: the configuration's */
    bool has_usage;
    weir_usage usage; /* of the last answer, with has_usage */
    char saved[PATH_MAX]; /* the file of the last /save, which another one may replace */
} weir_chat;

/* What opens a conversation; NULL: nothing. */
typedef struct weir_chat_start {
    const char *system; /* the system message; goes before that of `messages` */
    const char *messages; /* file with earlier messages, as /save writes it */
} weir_chat_start;

/* Talks until the input ends. Returns the exit code. */
int weir_chat_run(const weir_config *config, const weir_chat_start *start);

WEIR_MUST_CHECK weir_status weir_chat_add(
    weir_chat *chat, const char *role, const char *text, size_t length, weir_error *error
);
/* Sets the system message, or removes it if the text is empty. */
WEIR_MUST_CHECK weir_status
weir_chat_set_system(weir_chat *chat, const char *text, size_t length, weir_error *error);

/* ---- chat_commands.c ------------------------------------------------------------------------- */
/* True for "/undo": a line that is a command. A line that begins with "//" is a message that begins
 * with "/". */
bool weir_chat_is_command(const char *line, size_t length);
/* Does what the command says, and prints it. Returns false for /exit. */
bool weir_chat_command(weir_chat *chat, const char *line, size_t length);
