/* engine/cli/run_db_text.c - weir db ingest and query: documents are computed to states, and
 * answers continue them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/cli/db.h"
#include "engine/cli/generate.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/formats/json.h"

/* ---- ingest ---------------------------------------------------------------------------------- */
typedef struct document {
    const weir_engine *engine;
    weir_state_service documents;
    const char *label, *metadata; /* metadata NULL: none */
    weir_ids ids;
} document;

static weir_status ingest(document *d, weir_error *error)
{
    weir_state_info info;
    bool is_new;
    const weir_document document = { .tokens = d->ids.data,
                                     .n_tokens = (int32_t)d->ids.count,
                                     .label = d->label,
                                     .metadata = d->metadata };
    const weir_status status =
        weir_state_service_ingest(&d->documents, &document, &info, &is_new, error);
    weir_progress_pause();
    if (status != WEIR_OK) return status;
    return weir_db_print_state(&info, is_new ? "added" : "there already:");
}

static weir_status ingest_one(document *d, const weir_arguments *arguments, weir_error *error)
{
    d->label = weir_argument(arguments, "label");
    d->metadata = weir_argument(arguments, "metadata");
    if (d->label == NULL)
        return weir_error_set(
            error, WEIR_EINVAL, "give the document a --label, or many of them with --documents"
        );
    const char *const messages = weir_argument(arguments, "messages");
    WEIR_TRY(weir_prompt_check(arguments, error));
    WEIR_TRY(
        messages != NULL ? weir_prompt_conversation(&d->ids, d->engine, messages, error)
                         : weir_prompt_from_arguments(&d->ids, d->engine, arguments, error)
    );
    weir_progress_begin("computing the document", "", 0);
    return ingest(d, error);
}

static weir_status ingest_line(document *d, const char *line, size_t n, weir_error *error)
{
    json_t *root = NULL;
    char *metadata = NULL;
    WEIR_TRY(weir_json_parse(&root, line, n, "json", WEIR_JSON_DEPTH, error));
    const json_t *const text = json_object_get(root, "text"),
                        *const label = json_object_get(root, "label"),
                        *const object = json_object_get(root, "metadata");
    weir_status status = WEIR_OK;
    if (!json_is_string(text) || !json_is_string(label) ||
        (object != NULL && !json_is_object(object)))
        status = weir_error_set(
            error, WEIR_EINVAL,
            "an object with the strings \"label\" and \"text\" is expected, and optionally "
            "\"metadata\", an object"
        );
    if (status == WEIR_OK && object != NULL &&
        (metadata = weir_json_text(object, JSON_COMPACT)) == NULL)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for metadata");
    d->label = json_string_value(label);
    d->metadata = metadata;
    d->ids.count = 0;
    if (status == WEIR_OK)
        status = weir_prompt_from_text(&d->ids, d->engine, json_string_value(text), error);
    if (status == WEIR_OK) status = ingest(d, error);
    weir_memory_give(metadata);
    json_decref(root);
    return status;
}

/* True if only this document failed: that is reported, and the others continue. A disk or database
 * error ends the command. */
static bool is_of_document(weir_status status)
{
    return status == WEIR_EINVAL || status == WEIR_EFORMAT || status == WEIR_EUNSUPPORTED ||
           status == WEIR_ENOMEM;
}

static weir_status ingest_lines(document *d, const char *path, weir_error *error)
{
    enum { MOST = 1 << 30 };
    weir_buffer text = { 0 };
    size_t n = 0, n_bad = 0;
    weir_status status = weir_file_read_input(&text, path, MOST, error);
    size_t n_lines = 0;
    for (size_t i = 0; status == WEIR_OK && i < text.size; i++)
        n_lines += i + 1 == text.size || text.data[i] == '\n';
    weir_progress_begin("ingesting", "documents", (int64_t)n_lines);
    for (const char *line = text.data; status == WEIR_OK && line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        char name[64];
        weir_db_count_taken((int64_t)n);
        (void)snprintf(name, sizeof name, "line %zu", ++n);
        status = weir_progress_step((int64_t)n - 1, error);
        if (status == WEIR_OK && strspn(line, " \t\r") < length)
            status = ingest_line(d, line, length, error);
        if (status == WEIR_ECANCELED && weir_interrupted)
            status = weir_progress_interrupted((int64_t)n - 1, error);
        if (is_of_document(status)) {
            weir_log(WEIR_LOG_WARNING, "%s: %s", name, error->text);
            n_bad++;
            status = WEIR_OK;
        }
        line += length + (line[length] == '\n');
    }
    weir_buffer_free(&text);
    if (status == WEIR_OK && n_bad > 0)
        return weir_error_set(
            error, WEIR_EFORMAT, "%zu of %zu lines have no state; each is named above", n_bad, n
        );
    return status;
}

int weir_run_db_ingest(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    const char *const documents = weir_argument(arguments, "documents");
    const int code = weir_db_open_engine(&engine, arguments);
    if (code != WEIR_EXIT_OK) return code;
    document d = { .engine = engine };
    weir_status status = weir_db_open(&d.documents, engine, arguments, true, &error);
    if (status == WEIR_OK)
        status = documents != NULL ? ingest_lines(&d, documents, &error)
                                   : ingest_one(&d, arguments, &error);
    weir_ids_free(&d.ids);
    weir_states_close(d.documents.states);
    weir_engine_close(engine);
    weir_progress_end();
    if (status == WEIR_OK) return WEIR_EXIT_OK;
    const int failed = weir_db_fail(status, &error);
    return weir_interrupted ? WEIR_EXIT_INTERRUPTED : failed;
}

/* ---- query ----------------------------------------------------------------------------------- */
typedef struct question {
    const weir_engine *engine;
    weir_state_service documents;
    const weir_arguments *arguments;
    const char *text;
    size_t n_hits;
    weir_state_hit *hits; /* [n_hits] */
} question;

static weir_status encode(
    weir_ids *ids, const question *q, const char *text, bool is_beginning, weir_error *error
)
{
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(q->engine);
    if (tokenizer == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "the model has no tokenizer: give token ids"
        );
    return weir_tokenizer_encode(
        tokenizer, ids, text, strlen(text), &(weir_encode_options){ .add_special = is_beginning },
        error
    );
}

static weir_status route(question *q, size_t most, weir_error *error)
{
    weir_ids ids = { 0 };
    weir_status status = encode(&ids, q, q->text, true, error);
    if (status == WEIR_OK) {
        const weir_document text = { .tokens = ids.data, .n_tokens = (int32_t)ids.count };
        const weir_states_question wanted = { .most = most };
        status =
            weir_state_service_route(&q->documents, &text, &wanted, q->hits, &q->n_hits, error);
        if (status == WEIR_EMISMATCH)
            status = weir_error_prefix(error, status, "pick a state with --state");
    }
    if (status == WEIR_OK && q->n_hits == 0)
        status = weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s: no state here can be found by a question; `weir db ingest` adds some",
            weir_argument(q->arguments, "dir")
        );
    weir_ids_free(&ids);
    return status;
}

/* Finds the named state, or the nearest ones. */
static weir_status find(question *q, weir_error *error)
{
    const char *const name = weir_argument(q->arguments, "state");
    const size_t most = (size_t)weir_argument_int(q->arguments, "nearest", 1);
    if (name != NULL && weir_argument_given(q->arguments, "nearest"))
        return weir_error_set(error, WEIR_EINVAL, "give --state or --nearest, not both");
    q->hits = calloc(most, sizeof *q->hits);
    if (q->hits == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu states", most);
    if (name == NULL) return route(q, most, error);
    q->n_hits = 1;
    return weir_states_find(q->documents.states, name, &q->hits[0].info, error);
}

/* True if the question becomes a turn of a chat: the model has a template and no other form is
 * requested. */
static bool is_chat(const question *q)
{
    return weir_engine_chat(q->engine) != NULL && !weir_argument_given(q->arguments, "no-chat") &&
           !weir_argument_given(q->arguments, "plain");
}

static weir_status add_question(weir_ids *ids, const question *q, weir_error *error)
{
    weir_buffer text = { 0 };
    const bool is_plain = weir_argument_given(q->arguments, "plain");
    if (is_chat(q)) return weir_prompt_add_question(ids, q->engine, q->text, error);
    weir_status status =
        weir_buffer_format(&text, is_plain ? "%s" : "\n\nQuestion: %s\nAnswer:", q->text);
    if (status == WEIR_OK) status = encode(ids, q, text.data, false, error);
    weir_buffer_free(&text);
    return status;
}

/* The document, followed by the question. */
static weir_status make_prompt(
    weir_ids *ids, const question *q, const weir_beginning *beginning, weir_error *error
)
{
    weir_status status = WEIR_OK;
    for (int32_t i = 0; i < beginning->n_tokens && status == WEIR_OK; i++)
        status = weir_ids_add(ids, beginning->tokens[i]);
    if (status != WEIR_OK) return weir_error_set(error, status, "no memory for the prompt");
    return add_question(ids, q, error);
}

static int print_hits(const question *q)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    const bool as_json = weir_argument_given(q->arguments, "json");
    for (size_t i = 0; i < q->n_hits && status == WEIR_OK; i++) {
        const weir_state_info *const info = &q->hits[i].info;
        status = as_json ? weir_buffer_format(
                               &text, "{\"state\": \"%s\", \"similarity\": %.6f}\n", info->name,
                               (double)q->hits[i].similarity
                           )
                         : weir_buffer_format(
                               &text, "%9.6f  %-32s %s\n", (double)q->hits[i].similarity,
                               info->name, info->label
                           );
    }
    const int code = status == WEIR_OK ? weir_print(&text) : WEIR_EXIT_FAILED;
    weir_buffer_free(&text);
    return code;
}

static int print_answer(const question *q, const weir_cli_answer *answer)
{
    const weir_state_info *const info = &q->hits[0].info;
    const bool is_found = weir_argument(q->arguments, "state") == NULL;
    json_t *const more = json_pack(
        "{s:s, s:b, s:i, s:b}", "state", info->name, "state_exact", weir_state_is_exact(info),
        "state_bits", (int)info->state_bits, "state_merged", info->is_merged
    );
    if (more != NULL && is_found)
        (void)json_object_set_new(more, "similarity", json_real((double)q->hits[0].similarity));
    const int code = weir_cli_print_answer(q->engine, answer, more);
    json_decref(more);
    return code;
}

/* Reports what differs from computing the document. */
static void say_state(const weir_state_info *info)
{
    char form[64];
    weir_db_print_form(form, info);
    weir_log(WEIR_LOG_INFO, "from state %s: %s%s", info->name, info->label, form);
    if (info->is_merged)
        weir_log(
            WEIR_LOG_WARNING,
            "state %s is merged from two: its answers correspond to no document, and their quality "
            "is unknown",
            info->name
        );
    else if (!weir_state_is_exact(info))
        weir_log(
            WEIR_LOG_WARNING,
            "state %s was stored with %d bits: answers are close to those of its document, but not "
            "equal",
            info->name, (int)info->state_bits
        );
}

/* Caches the state and continues it; its file is only read. */
static weir_status answer_from(weir_cli_answer *answer, const question *q, weir_error *error)
{
    weir_ids ids = { 0 };
    weir_beginning beginning = { 0 };
    const weir_state_info *const info = &q->hits[0].info;
    weir_status status = weir_beginning_open(&beginning, &q->documents, info, NULL, error);
    const weir_cli_prompt prompt = { .ids = &ids,
                                     .reuses = true,
                                     .is_quiet = weir_argument_given(q->arguments, "json"),
                                     .salt = beginning.salt,
                                     .n_kept = beginning.n_kept };
    if (status == WEIR_OK) status = make_prompt(&ids, q, &beginning, error);
    if (status == WEIR_OK) status = weir_beginning_load(&beginning, &q->documents, error);
    if (status == WEIR_OK && !prompt.is_quiet) say_state(info);
    if (status == WEIR_OK)
        status = weir_cli_generate(answer, q->engine, &q->arguments->config, &prompt, error);
    if (status == WEIR_OK && !weir_interrupted && answer->usage.n_cached < beginning.n_held)
        weir_log(
            WEIR_LOG_WARNING, "state %s: %d of its %d tokens were computed again: %s", info->name,
            (int)(beginning.n_held - answer->usage.n_cached), (int)beginning.n_held,
            answer->usage.reuse
        );
    weir_ids_free(&ids);
    weir_beginning_close(&beginning);
    return status;
}

int weir_run_db_query(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_cli_answer answer = { 0 };
    const int code = weir_db_open_engine(&engine, arguments);
    if (code != WEIR_EXIT_OK) return code;
    question q = { .engine = engine,
                   .arguments = arguments,
                   .text = weir_argument(arguments, "question") };
    const bool wants_answer = !weir_argument_given(arguments, "nearest");
    weir_status status = weir_db_open(&q.documents, engine, arguments, false, &error);
    if (status == WEIR_OK) status = find(&q, &error);
    if (status == WEIR_OK && wants_answer) status = answer_from(&answer, &q, &error);
    int result = status == WEIR_OK ? WEIR_EXIT_OK : weir_db_fail(status, &error);
    if (status == WEIR_OK && !wants_answer) result = print_hits(&q);
    if (status == WEIR_OK && wants_answer && weir_argument_given(arguments, "json"))
        result = print_answer(&q, &answer);
    if (weir_interrupted) result = 130;
    weir_cli_answer_free(&answer);
    free(q.hits);
    weir_states_close(q.documents.states);
    weir_engine_close(engine);
    return result;
}
