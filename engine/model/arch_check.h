/* engine/model/arch_check.h - shared by the checks of arch files. */
#pragma once
#include "engine/model/arch_internal.h"

/* Names of a list are tried in turn for every tensor, so the list is short; a pattern may list all
 * layers. */
enum { MAX_NAMES = 64, MAX_PATTERN = 1024, TEXT_LENGTH = 256 };

typedef struct checker {
    const weir_arch *arch;
    weir_error *error;
} checker;

/* The type of a value. */
typedef enum form {
    FORM_TEXT,
    FORM_FLAG,
    FORM_NAMES, /* TEXT or [TEXT ..] */
    FORM_LIST, /* [TEXT ..] */
    FORM_WORDS, /* { key = TEXT .. } */
    FORM_DEFAULT, /* NUMBER or TEXT */
    FORM_NUMBER,
    FORM_TABLE, /* checked apart */
    FORM_SCALARS, /* TEXT, NUMBER, boolean or a list of them */
} form;

enum {
    ONCE = 0,
    DIFFERS = 1, /* may differ by container: also { gguf = .., hf = .. } */
    NEEDED = 2,
};

/* A key of a table; lists end with a name of NULL. */
typedef struct member {
    const char *name;
    form form;
    unsigned how;
} member;

/* Returns NULL past the last. */
typedef const char *(*name_list)(const void *names, size_t index);

/* arch_check_values.c */

/* "FILE:LINE: [where] ", the beginning of all messages. */
const char *arch_place(char out[2 * TEXT_LENGTH], const weir_toml_node *node, const char *where);
const char *arch_shown(char out[80], const char *text);
const char *arch_nearest(const char *name, name_list at, const void *names);
/* `what`: the kind of name. */
weir_status arch_unknown(
    const checker *c, const weir_toml_node *node, const char *where, const char *what,
    const char *name, name_list list, const void *names
);
bool arch_is_listed(const char *name, name_list at, const void *names);
bool arch_is_text(const weir_toml_node *node);
/* At most `most` children, which all fit. */
bool arch_all_children(
    const weir_toml_node *node, size_t most, bool (*fits)(const weir_toml_node *)
);
bool arch_fits(const weir_toml_node *node, form f);
weir_status arch_check_value(
    const checker *c, const weir_toml_node *value, const char *where, const member *m
);
/* Checks keys and types of a table; NULL passes. */
weir_status arch_check_members(
    const checker *c, const weir_toml_node *table, const char *where, const member *known
);
/* A list for arch_unknown: the names of members. */
const char *arch_member_at(const void *names, size_t index);

/* arch_check.c */

const weir_toml_node *arch_get(const checker *c, const char *table, const char *key);
/* A list for arch_unknown: the keys of a table. */
const char *arch_key_at(const void *table, size_t index);

/* arch_check_blocks.c: [block.NAME] and [ffn]. */
weir_status arch_check_blocks(const checker *c);

/* arch_check_gguf.c: [gguf]. */
weir_status arch_check_gguf(const checker *c);

/* arch_check_tensors.c: [tensor]. */
weir_status arch_check_tensors(const checker *c);
