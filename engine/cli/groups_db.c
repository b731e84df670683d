/* engine/cli/groups_db.c - options of the state database. */
#include "engine/cli/groups.h"

#define DATABASE_OPTION                                                                            \
    TEXT("dir", "DIR", "Folder of the state database.", .required = true, .letter = 'd')

static const weir_option db_create_options[] = {
    DATABASE_OPTION,
    TEXT(
        "states", "FORM",
        "How states are kept: exact, or int8 or int4, with keys and values of CoDA layers in so "
        "many bits. Default: exact."
    ),
    FLAG(
        "no-vectors", "States are asked for by name only; each is smaller by 4 bytes for each of "
                      "the model's dimensions."
    ),
};
GROUP(db_create, "Database");

static const weir_option db_ingest_options[] = {
    DATABASE_OPTION,
    TEXT("label", "TEXT", "What the document is called; its name follows from it."),
    TEXT("metadata", "JSON", "An object of at most 1024 bytes that is kept with the state."),
    TEXT(
        "documents", "FILE",
        "Many documents in place of one: a JSON object per line with \"label\", \"text\" and, if "
        "wanted, \"metadata\"; - is stdin."
    ),
};
GROUP(db_ingest, "Documents");

static const weir_option db_list_options[] = {
    DATABASE_OPTION,
    INT("limit", "N", 1, INT32_MAX, "At most so many. Default: all."),
    FLAG("metadata", "With --json, also what was kept with each."),
    FLAG("json", "Print one JSON object per line."),
};
GROUP(db_list, "Database");

static const weir_option db_query_options[] = {
    DATABASE_OPTION,
    TEXT("question", "TEXT", "What is asked.", .required = true),
    TEXT("state", "NAME", "The state that answers. Default: the nearest to the question."),
    INT("nearest", "K", 1, 1024,
        "Print the K nearest states and how near they are, and no answer."),
    FLAG(
        "no-chat", "Put \"Question:\" before the question and \"Answer:\" behind it instead of "
                   "asking through the chat "
                   "template, as models without one are asked."
    ),
    FLAG("plain", "Put nothing around the question: the document goes on with it."),
    FLAG("json", "Print JSON with the state, the text and its tokens."),
};
GROUP(db_query, "Question");

static const weir_option db_merge_options[] = {
    DATABASE_OPTION,
    TEXT("earlier", "NAME", "The state whose banks are added.", .required = true),
    TEXT("later", "NAME", "The state where the new one goes on.", .required = true),
    TEXT("label", "TEXT", "What the new state is called.", .required = true),
    TEXT("metadata", "JSON", "An object that is kept with it, beside \"merged\" with both names."),
    FLAG("json", "Print one JSON object instead of text."),
};
GROUP(db_merge, "States");

static const weir_option db_delete_options[] = {
    DATABASE_OPTION,
    TEXT("name", "NAME", "The state's name.", .required = true),
};
GROUP(db_delete, "Database");
