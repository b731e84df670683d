/* engine/serve/llama_slots.c - llama-server's /slots. A request that names a slot (id_slot) leaves
 * its text there, by which it is saved to a file of the sessions, restored and forgotten; slots of
 * running sequences are the engine's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"
#include "engine/serve/llama_api.h"

/* The last text of a slot. */
typedef struct slot {
    weir_ids ids; /* prompt and answer */
    char salt[WEIR_SALT_BYTES + 24]; /* weir_own_name.salt of the request: others do not see it */
} slot;

struct weir_llama_slots {
    pthread_mutex_t lock; /* taken last */
    int32_t n;
    slot slot[];
};

weir_llama_slots *weir_llama_slots_open(int32_t n_slots)
{
    weir_llama_slots *const slots = calloc(1, sizeof *slots + (size_t)n_slots * sizeof(slot));
    if (slots == NULL) return NULL;
    slots->n = n_slots;
    (void)pthread_mutex_init(&slots->lock, NULL);
    return slots;
}

void weir_llama_slots_close(weir_llama_slots *slots)
{
    if (slots == NULL) return;
    for (int32_t i = 0; i < slots->n; i++) weir_ids_free(&slots->slot[i].ids);
    (void)pthread_mutex_destroy(&slots->lock);
    free(slots);
}

static weir_status add_ids(weir_ids *out, const weir_ids *ids)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < ids->count && status == WEIR_OK; i++)
        status = weir_ids_add(out, ids->data[i]);
    return status;
}

/* Outlives the request, so it is charged to the server. Without memory the slot is empty. */
void weir_llama_slots_keep(const weir_generation *g, int32_t index)
{
    weir_server *const server = g->exchange->server;
    slot *const s = &server->slots->slot[index];
    weir_memory_tracker *const before = weir_memory_tracker_set(&server->tracker.tracker);
    weir_ids ids = { 0 };
    if (add_ids(&ids, &g->prompts[0].ids) != WEIR_OK ||
        add_ids(&ids, &g->answers[0].ids) != WEIR_OK)
        weir_ids_free(&ids);
    (void)pthread_mutex_lock(&server->slots->lock);
    weir_ids_free(&s->ids);
    s->ids = ids;
    (void)snprintf(s->salt, sizeof s->salt, "%s", g->own.salt);
    (void)pthread_mutex_unlock(&server->slots->lock);
    (void)weir_memory_tracker_set(before);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void write_slot(
    weir_json_out *json, const weir_server *server, int32_t index, const weir_service_sequence *by
)
{
    weir_json_open(json, '{');
    weir_json_put_integer(json, "id", index);
    weir_json_put_integer(json, "n_ctx", server->limits.window);
    weir_json_put_bool(json, "speculative", false);
    weir_json_put_bool(json, "is_processing", by != NULL);
    if (by != NULL) {
        weir_json_put_integer(json, "id_task", by->job);
        weir_json_put_integer(json, "n_past", by->tokens);
    }
    weir_json_close(json, '}');
}

static void write_slots(weir_exchange *x, const weir_service_sequence *running, int32_t n)
{
    const weir_server *const server = x->server;
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '[');
    for (int32_t i = 0; i < server->limits.n_slots; i++)
        write_slot(&json, server, i, i < n ? &running[i] : NULL);
    weir_json_close(&json, ']');
    weir_reply_result(x, &text, json.status);
}

void weir_llama_slots_get(weir_exchange *x)
{
    const int32_t n_slots = x->server->limits.n_slots;
    weir_service_sequence *const running = weir_memory_take_zero((size_t)n_slots, sizeof *running);
    if (running == NULL) {
        weir_reply_status(x, WEIR_ENOMEM);
        return;
    }
    const int32_t n = weir_service_sequences_of(x->server->options.service, running);
    if (n >= n_slots && strcmp(x->query, "fail_on_no_slot=1") == 0) {
        (void)!weir_api_fail(&x->error, 503, NULL, NULL, "no slot is free; try again");
        weir_reply_error(x);
    } else {
        write_slots(x, running, n);
    }
    weir_memory_give(running);
}

/* ---- actions --------------------------------------------------------------------------------- */

static weir_status find_slot(weir_exchange *x, int32_t *index)
{
    const char *const name = x->path + strlen(x->route->path);
    const size_t digits = strspn(name, "0123456789");
    const long number = digits > 0 && digits < 7 && name[digits] == 0 ? strtol(name, NULL, 10) : -1;
    *index = (int32_t)number;
    if (number >= 0 && number < x->server->limits.n_slots) return WEIR_OK;
    return weir_api_fail(
        &x->error, 404, "slot_not_found", "id_slot", "there is no slot %s; see /slots",
        weir_quote(name).text
    );
}

static weir_status read_filename(weir_exchange *x, char name[WEIR_SESSION_NAME + 1])
{
    json_t *root = NULL;
    const char *text = NULL;
    weir_status status =
        weir_json_read(&root, x->body.data != NULL ? x->body.data : "", x->body.size, &x->error);
    if (status == WEIR_OK) status = weir_exchange_check_fields(x, root, WEIR_BODY_SLOT);
    if (status == WEIR_OK) status = weir_openai_session_name(root, "filename", &text, &x->error);
    if (status == WEIR_OK && text == NULL)
        status = weir_api_bad(&x->error, "filename", "filename is missing");
    if (status == WEIR_OK) (void)snprintf(name, WEIR_SESSION_NAME + 1, "%s", text);
    json_decref(root);
    return status;
}

/* Copies what the slot holds, if this client put it there. */
static weir_status copy_slot(weir_exchange *x, int32_t index, weir_ids *ids)
{
    weir_llama_slots *const slots = x->server->slots;
    const weir_own_name own = weir_exchange_own(x, NULL, "");
    (void)pthread_mutex_lock(&slots->lock);
    const slot *const s = &slots->slot[index];
    const weir_status status = strcmp(s->salt, own.salt) == 0 ? add_ids(ids, &s->ids) : WEIR_OK;
    (void)pthread_mutex_unlock(&slots->lock);
    if (status != WEIR_OK || ids->count > 0) return status;
    return weir_api_fail(
        &x->error, 409, "slot_empty", "id_slot",
        "slot %d is empty: send a request with \"id_slot\": %d first", (int)index, (int)index
    );
}

static void write_erased(weir_exchange *x, int32_t index, size_t n)
{
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    weir_json_put_integer(&json, "id_slot", index);
    weir_json_put_integer(&json, "n_erased", (int64_t)n);
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}

static void erase(weir_exchange *x, int32_t index)
{
    weir_llama_slots *const slots = x->server->slots;
    const weir_own_name own = weir_exchange_own(x, NULL, "");
    (void)pthread_mutex_lock(&slots->lock);
    slot *const s = &slots->slot[index];
    const bool is_own = strcmp(s->salt, own.salt) == 0;
    const size_t n = is_own ? s->ids.count : 0;
    if (is_own) weir_ids_free(&s->ids);
    (void)pthread_mutex_unlock(&slots->lock);
    write_erased(x, index, n);
}

static void use_file(weir_exchange *x, weir_session_work work, int32_t index)
{
    char name[WEIR_SESSION_NAME + 1];
    weir_ids ids = { 0 };
    weir_buffer none = { 0 };
    weir_status status = read_filename(x, name);
    if (status == WEIR_OK) status = weir_sessions_need(x);
    if (status == WEIR_OK && work == WEIR_SESSION_SAVE) status = copy_slot(x, index, &ids);
    if (status == WEIR_OK) {
        weir_sessions_post_slot(x, work, name, index, &ids);
        return;
    }
    weir_ids_free(&ids);
    weir_reply_result(x, &none, status);
}

void weir_llama_slots_post(weir_exchange *x)
{
    int32_t index = -1;
    if (find_slot(x, &index) != WEIR_OK) {
        weir_reply_error(x);
    } else if (strcmp(x->query, "action=save") == 0) {
        use_file(x, WEIR_SESSION_SAVE, index);
    } else if (strcmp(x->query, "action=restore") == 0) {
        use_file(x, WEIR_SESSION_RESTORE, index);
    } else if (strcmp(x->query, "action=erase") == 0) {
        erase(x, index);
    } else {
        (void)!weir_api_bad(&x->error, "action", "action must be save, restore or erase");
        weir_reply_error(x);
    }
}
