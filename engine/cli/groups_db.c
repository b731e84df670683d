/* engine/cli/groups_db.c - the option groups of the state database. */
#include "engine/cli/groups.h"

#define DATABASE_OPTION                                                                            \
    TEXT("dir", "DIR", "Folder of the state database.", .required = true, .letter = 'd')

static const weir_option db_create_options[] = {
    DATABASE_OPTION,
    TEXT(
        "states", "FORM",
        "How states are stored: exact, or with keys and values of CoDA layers in "
        "int8 or int4. Default: exact."
    ),
    FLAG(
        "no-vectors", "Store no vectors: states are found by name only, and each is smaller by 4 "
                      "bytes per dimension of the model."
    ),
};
GROUP(db_create, "Database");

static const weir_option db_ingest_options[] = {
    DATABASE_OPTION,
    TEXT("label", "TEXT", "Title of the document; its name is made from it."),
    TEXT("metadata", "JSON", "An object of at most 1024 bytes that is stored with the state."),
    TEXT(
        "documents", "FILE",
        "Many documents instead of one: a JSON object per line with \"label\", "
        "\"text\" and optionally \"metadata\"; - is stdin."
    ),
};
GROUP(db_ingest, "Documents");

static const weir_option db_list_options[] = {
    DATABASE_OPTION,
    INT("limit", "N", 1, INT32_MAX, "Maximum number. Default: all."),
    FLAG("metadata", "With --json, also the metadata of each."),
    FLAG("json", "Print one JSON object per line."),
};
GROUP(db_list, "Database");

static const weir_option db_query_options[] = {
    DATABASE_OPTION,
    TEXT("question", "TEXT", "What is asked.", .required = true),
    TEXT("state", "NAME", "The state to continue. Default: the nearest to the question."),
    INT("nearest", "K", 1, 1024, "Print the K nearest states and their similarity, and no answer."),
    FLAG(
        "no-chat", "Put \"Question:\" before the question and \"Answer:\" after it instead of "
                   "using the chat template, as for models without one."
    ),
    FLAG("plain", "Put nothing around the question: it directly follows the document."),
    FLAG("json", "Print JSON with the state, the text and its tokens."),
};
GROUP(db_query, "Question");

static const weir_option db_merge_options[] = {
    DATABASE_OPTION,
    TEXT("earlier", "NAME", "The state whose banks are merged in.", .required = true),
    TEXT("later", "NAME", "The state that the new one continues.", .required = true),
    TEXT("label", "TEXT", "Title of the new state.", .required = true),
    TEXT(
        "metadata", "JSON",
        "An object that is stored with it, in addition to \"merged\" with both "
        "names."
    ),
    FLAG("json", "Print one JSON object instead of text."),
};
GROUP(db_merge, "States");

static const weir_option db_delete_options[] = {
    DATABASE_OPTION,
    TEXT("name", "NAME", "The state's name.", .required = true),
};
GROUP(db_delete, "Database");
