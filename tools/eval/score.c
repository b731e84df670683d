#include "tools/eval/score.h"

#include <jansson.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/formats/json.h"

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool holds(const char *text, const char *part)
{
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (part[i] != '\0' && lower(text[i]) == lower(part[i])) i++;
        if (part[i] == '\0') return true;
    }
    return *part == '\0';
}

static size_t count_held(const char *reply, const char *answers, size_t n)
{
    size_t held = 0;
    for (size_t i = 0; i < n; i++, answers += strlen(answers) + 1) held += holds(reply, answers);
    return held;
}

double weir_score_all(const char *reply, const char *answers, size_t n)
{
    return n > 0 ? (double)count_held(reply, answers, n) / (double)n : 0.0;
}

double weir_score_part(const char *reply, const char *answers, size_t n)
{
    return count_held(reply, answers, n) > 0 ? 1.0 : 0.0;
}

double weir_score_line(const char *reply, const char *answer)
{
    reply += strspn(reply, " \t\r\n");
    size_t n = strcspn(reply, "\r\n");
    while (n > 0 && strchr(" \t", reply[n - 1]) != NULL) n--;
    return n == strlen(answer) && strncmp(reply, answer, n) == 0 ? 1.0 : 0.0;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Nodes 0 .. 63. */
static bool read_node(const json_t *value, int64_t *out)
{
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out < 64;
}

static bool read_state(weir_state *out, const json_t *object)
{
    const json_t *const current = json_object_get(object, "current_node"),
                        *const stack = json_object_get(object, "stack"),
                        *const visited = json_object_get(object, "visited_nodes");
    *out = (weir_state){ .current = -1 };
    if (!json_is_null(current) && !read_node(current, &out->current)) return false;
    if (!json_is_array(stack) ||
        json_array_size(stack) > sizeof out->stack / sizeof out->stack[0] ||
        !json_is_array(visited))
        return false;
    for (size_t i = 0; i < json_array_size(stack); i++)
        if (!read_node(json_array_get(stack, i), &out->stack[out->n_stack++])) return false;
    for (size_t i = 0; i < json_array_size(visited); i++) {
        int64_t node;
        if (!read_node(json_array_get(visited, i), &node)) return false;
        out->visited |= (uint64_t)1 << node;
    }
    return true;
}

/* Parses the object that begins at text[0] == '{'; states contain no nested braces. */
static bool read_object(weir_state *out, const char *text)
{
    enum { DEPTH = 4 };
    const char *const end = strchr(text, '}');
    json_t *object = NULL;
    bool is_state = false;
    if (end != NULL &&
        weir_json_parse(&object, text, (size_t)(end - text) + 1, "", DEPTH, NULL) == WEIR_OK)
        is_state = json_object_get(object, "current_node") != NULL && read_state(out, object);
    json_decref(object);
    return is_state;
}

bool weir_state_read(weir_state *out, const char *text)
{
    static const char mark[] = "Answer:";
    for (const char *at = strstr(text, mark); at != NULL; at = strstr(text, mark))
        text = at + strlen(mark);
    for (const char *at = text + strlen(text); at-- > text;)
        if (*at == '{' && read_object(out, at)) return true;
    return false;
}

weir_state_score weir_score_state(const weir_state *got, const weir_state *want)
{
    const double both = __builtin_popcountll(got->visited & want->visited),
                 either = __builtin_popcountll(got->visited | want->visited),
                 n_got = __builtin_popcountll(got->visited),
                 n_want = __builtin_popcountll(want->visited);
    weir_state_score score = { .current = got->current == want->current,
                               .depth = got->n_stack == want->n_stack };
    score.stack = score.depth &&
                  memcmp(got->stack, want->stack, (size_t)want->n_stack * sizeof *want->stack) == 0;
    score.top =
        (got->n_stack > 0) == (want->n_stack > 0) &&
        (want->n_stack == 0 || got->stack[got->n_stack - 1] == want->stack[want->n_stack - 1]);
    score.visited_share = either > 0 ? both / either : 1.0;
    score.precision = n_got > 0 ? both / n_got : n_want == 0;
    score.recall = n_want > 0 ? both / n_want : 1.0;
    score.f1 = score.precision + score.recall > 0
                   ? 2 * score.precision * score.recall / (score.precision + score.recall)
                   : 0.0;
    score.is_correct = score.current && score.stack && got->visited == want->visited;
    return score;
}

static double score_state(const char *reply, const char *answer)
{
    weir_state got, want;
    return weir_state_read(&want, answer) && weir_state_read(&got, reply) &&
                   weir_score_state(&got, &want).is_correct
               ? 1.0
               : 0.0;
}

double weir_score_reply(weir_eval_scoring scoring, const char *reply, const char *answers, size_t n)
{
    switch (scoring) {
    case WEIR_EVAL_ALL: return weir_score_all(reply, answers, n);
    case WEIR_EVAL_PART: return weir_score_part(reply, answers, n);
    case WEIR_EVAL_LINE: return n > 0 ? weir_score_line(reply, answers) : 0.0;
    case WEIR_EVAL_STATE: return n > 0 ? score_state(reply, answers) : 0.0;
    case WEIR_EVAL_EXACT:
    case WEIR_EVAL_SCORINGS: break;
    }
    WEIR_ASSERT(false);
    return 0.0;
}
