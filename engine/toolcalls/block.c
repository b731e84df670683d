#include "engine/toolcalls/block.h"

#include <string.h>

enum { NAME_BYTES = 256 };

/* What a step did. */
typedef enum outcome {
    GO, /* the next step follows */
    WAIT, /* for more text */
    FAIL,
    STOP, /* the block is complete */
} outcome;

typedef struct input {
    const char *text;
    size_t n;
    bool is_last;
} input;

void weir_call_block_begin(
    weir_call_block *block, const weir_chat_format *format, const weir_format_opener *opener,
    const json_t *tools
)
{
    weir_call_block_clear(block);
    block->format = format;
    block->opener = opener;
    block->tools = tools;
    block->step = opener->step;
    block->at = block->scanned = opener->is_bare ? 0 : strlen(opener->text);
}

void weir_call_block_clear(weir_call_block *block)
{
    for (size_t i = 0; i < block->n_calls; i++) weir_tool_call_free(&block->call[i]);
    block->n_calls = 0;
    block->has_calls = false;
    weir_call_draft_clear(&block->draft);
}

void weir_call_block_free(weir_call_block *block)
{
    weir_call_block_clear(block);
    weir_call_draft_free(&block->draft);
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static outcome go(weir_call_block *block, size_t at, int skip)
{
    block->at = block->scanned = at;
    block->step += skip;
    return GO;
}

/* ---- fixed texts ----------------------------------------------------------------------------- */

typedef enum found { ABSENT, PARTIAL, PRESENT } found;

static found find_here(const weir_call_block *block, input in, const char *text)
{
    const size_t length = strlen(text), left = in.n - block->at;
    const size_t n = left < length ? left : length;
    if (n > 0 && memcmp(in.text + block->at, text, n) != 0) return ABSENT;
    return n == length ? PRESENT : in.is_last ? ABSENT : PARTIAL;
}

static outcome step_text(weir_call_block *block, input in, const weir_format_step *step)
{
    const found found = find_here(block, in, step->text);
    if (found == PARTIAL) return WAIT;
    if (found == PRESENT) return go(block, block->at + strlen(step->text), 1);
    /* Some models end the answer before the last tag, some servers within it. */
    const size_t left = in.n - block->at;
    const bool is_cut = in.is_last && left < strlen(step->text) &&
                        (left == 0 || memcmp(in.text + block->at, step->text, left) == 0);
    if (!is_cut || !block->has_calls || block->draft.name.size > 0) return FAIL;
    block->at = block->scanned = in.n; /* the beginning of the tag is markup, too */
    return STOP;
}

static outcome step_if(weir_call_block *block, input in, const weir_format_step *step)
{
    const found found = find_here(block, in, step->text);
    if (found == PARTIAL) return WAIT;
    if (found == ABSENT) return go(block, block->at, step->skip);
    return go(block, block->at + (step->kind == WEIR_FORMAT_IF ? strlen(step->text) : 0), 1);
}

static outcome step_space(weir_call_block *block, input in)
{
    size_t at = block->at;
    while (at < in.n && is_space(in.text[at])) at++;
    block->at = block->scanned = at;
    return at < in.n || in.is_last ? go(block, at, 1) : WAIT;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_name(weir_format_step_kind kind, char c)
{
    if ((unsigned char)c <= ' ' || c == 0x7f) return false;
    const char *const not_in = kind == WEIR_FORMAT_KEY ? "<>\"" : "<>\"'{}[](),=";
    return strchr(not_in, c) == NULL;
}

/* "functions.NAME:0" */
static weir_status set_id_and_name(weir_call_draft *draft, const char *text, size_t n)
{
    static const char prefix[] = "functions.";
    WEIR_TRY(weir_buffer_add(&draft->id, text, n));
    if (n > sizeof prefix - 1 && memcmp(text, prefix, sizeof prefix - 1) == 0) {
        text += sizeof prefix - 1;
        n -= sizeof prefix - 1;
    }
    const char *const colon = memrchr(text, ':', n);
    return weir_buffer_add(&draft->name, text, colon != NULL ? (size_t)(colon - text) : n);
}

static weir_status keep_name(
    weir_call_block *block, weir_format_step_kind kind, const char *text, size_t n
)
{
    weir_call_draft *const draft = &block->draft;
    if (kind == WEIR_FORMAT_ID_NAME) return set_id_and_name(draft, text, n);
    weir_buffer *const out = kind == WEIR_FORMAT_NAME ? &draft->name
                             : kind == WEIR_FORMAT_ID ? &draft->id
                                                      : &draft->key;
    weir_buffer_clear(out);
    return weir_buffer_add(out, text, n);
}

static weir_status step_name(
    weir_call_block *block, input in, const weir_format_step *step, outcome *out
)
{
    const size_t begin = block->at;
    size_t at = block->scanned;
    while (at < in.n && is_name(step->kind, in.text[at]) && at - begin <= NAME_BYTES) at++;
    block->scanned = at;
    *out = at - begin > NAME_BYTES ? FAIL : at < in.n ? GO : in.is_last ? FAIL : WAIT;
    if (*out != GO) return WEIR_OK;
    *out = at == begin ? FAIL : GO;
    if (*out != GO) return WEIR_OK;
    if (step->text != NULL) {
        block->at = at;
        const found found = find_here(block, in, step->text);
        block->at = begin;
        *out = found == PRESENT ? GO : found == PARTIAL ? WAIT : FAIL;
        if (*out != GO) return WEIR_OK;
    }
    WEIR_TRY(keep_name(block, step->kind, in.text + begin, at - begin));
    *out = go(block, at + (step->text != NULL ? strlen(step->text) : 0), 1);
    return WEIR_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* All up to the end tag. */
static weir_status step_value(
    weir_call_block *block, input in, const weir_format_step *step, outcome *out
)
{
    const size_t tag = strlen(step->text), begin = block->at;
    const size_t from = block->scanned > begin + tag ? block->scanned - tag : begin;
    const char *const end = memmem(in.text + from, in.n - from, step->text, tag);
    block->scanned = in.n;
    *out = in.is_last ? FAIL : WAIT;
    if (end == NULL) return WEIR_OK;
    const size_t n = (size_t)(end - in.text) - begin;
    block->scanned = begin + n + tag;
    const weir_status status = weir_call_add_parameter(
        &block->draft, block->tools, (weir_value_type)step->value, in.text + begin, n
    );
    if (status == WEIR_OK) *out = go(block, begin + n + tag, 1);
    if (status == WEIR_EINVAL) *out = FAIL;
    return status == WEIR_EINVAL ? WEIR_OK : status;
}

/* Scans a value of the dialect into `to`. */
static weir_status scan(
    weir_call_block *block, input in, weir_value_dialect dialect, weir_buffer *to, outcome *out
)
{
    weir_value_end end;
    size_t used;
    if (block->scanned == block->at) {
        block->value = (weir_value_scanner){ .dialect = dialect };
        weir_buffer_clear(to);
    }
    WEIR_TRY(weir_value_scan(
        &block->value, to, in.text + block->scanned, in.n - block->scanned, &used, &end
    ));
    block->scanned += used;
    *out = end == WEIR_VALUE_DONE  ? go(block, block->scanned, 1)
           : end == WEIR_VALUE_BAD ? FAIL
           : in.is_last            ? FAIL
                                   : WAIT;
    return WEIR_OK;
}

static bool is_expected(const weir_call_draft *draft)
{
    static const char *const keys[] = { "\"name\"", "\"arguments\"", "\"parameters\"", "\"type\"",
                                        "\"id\"" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strlen(keys[i]) == draft->key.size &&
            memcmp(keys[i], draft->key.data, draft->key.size) == 0)
            return true;
    return false;
}

static weir_status step_member_key(weir_call_block *block, input in, outcome *out)
{
    *out = block->at < in.n && in.text[block->at] != '"' ? FAIL : WAIT;
    if (*out == FAIL) return WEIR_OK;
    WEIR_TRY(scan(block, in, WEIR_VALUE_JSON, &block->draft.key, out));
    weir_buffer_clear(&block->draft.value);
    /* A bare object is soon seen not to be a call. */
    if (*out == GO && block->opener->is_bare && !is_expected(&block->draft)) *out = FAIL;
    return WEIR_OK;
}

static weir_status step_member(weir_call_block *block, input in, outcome *out)
{
    WEIR_TRY(scan(block, in, WEIR_VALUE_JSON, &block->draft.value, out));
    if (*out != GO) return WEIR_OK;
    const weir_status status = weir_call_add_member(&block->draft, block->format->has_ids);
    if (status == WEIR_EINVAL) *out = FAIL;
    return status == WEIR_EINVAL ? WEIR_OK : status;
}

const weir_buffer *weir_call_block_arguments(const weir_call_block *block)
{
    const weir_call_draft *const draft = &block->draft;
    const bool in_member = block->format->steps[block->step].kind == WEIR_FORMAT_MEMBER &&
                           weir_call_is_arguments(draft);
    const weir_buffer *const text = in_member ? &draft->value : &draft->arguments;
    const bool is_object = text->size > 0 && text->data[0] == '{';
    if (draft->name.size == 0 || !is_object) return NULL;
    /* As in step_commit: without a tag, what names no tool is text. */
    const bool is_known = !block->opener->is_bare ||
                          weir_tools_have(block->tools, draft->name.data, draft->name.size);
    return is_known ? text : NULL;
}

static weir_status step_commit(weir_call_block *block, outcome *out)
{
    const weir_buffer *const name = &block->draft.name;
    *out = FAIL;
    if (block->n_calls == WEIR_TOOL_CALLS) return WEIR_OK;
    if (block->opener->is_bare &&
        (name->size == 0 || !weir_tools_have(block->tools, name->data, name->size)))
        return WEIR_OK;
    const weir_status status = weir_call_take(&block->draft, &block->call[block->n_calls]);
    if (status != WEIR_OK) return status == WEIR_EINVAL ? WEIR_OK : status;
    block->n_calls++;
    block->has_calls = true;
    *out = go(block, block->at, 1);
    return WEIR_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static weir_status run_step(weir_call_block *block, input in, outcome *out)
{
    const weir_format_step *const step = &block->format->steps[block->step];
    switch (step->kind) {
    case WEIR_FORMAT_TEXT: *out = step_text(block, in, step); break;
    case WEIR_FORMAT_SPACE: *out = step_space(block, in); break;
    case WEIR_FORMAT_IF:
    case WEIR_FORMAT_PEEK: *out = step_if(block, in, step); break;
    case WEIR_FORMAT_JUMP: *out = go(block, block->at, step->skip); break;
    case WEIR_FORMAT_NAME:
    case WEIR_FORMAT_ID:
    case WEIR_FORMAT_ID_NAME:
    case WEIR_FORMAT_KEY: return step_name(block, in, step, out);
    case WEIR_FORMAT_VALUE: return step_value(block, in, step, out);
    case WEIR_FORMAT_ARGUMENTS:
        return scan(block, in, (weir_value_dialect)step->value, &block->draft.arguments, out);
    case WEIR_FORMAT_MEMBER_KEY: return step_member_key(block, in, out);
    case WEIR_FORMAT_MEMBER: return step_member(block, in, out);
    case WEIR_FORMAT_COMMIT: return step_commit(block, out);
    case WEIR_FORMAT_END: *out = block->has_calls ? STOP : FAIL; break;
    }
    return WEIR_OK;
}

weir_status weir_call_block_read(
    weir_call_block *block, const char *text, size_t n, bool is_last, weir_call_block_end *end
)
{
    const bool is_full = n >= WEIR_CALL_BLOCK_BYTES;
    const input in = { text, is_full ? WEIR_CALL_BLOCK_BYTES : n, is_last && !is_full };
    outcome out = GO;
    while (out == GO) WEIR_TRY(run_step(block, in, &out));
    if (out == WAIT && is_full) out = FAIL;
    /* What was looked at and is no call is not read again: the whole takes linear time. */
    if (out == FAIL) block->at = block->scanned;
    *end = out == STOP   ? WEIR_CALL_BLOCK_DONE
           : out == FAIL ? WEIR_CALL_BLOCK_BAD
                         : WEIR_CALL_BLOCK_OPEN;
    return WEIR_OK;
}
