#include "tools/load/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sample/random.h"

static const double second_ns = 1e9, longest_seconds = 1e7;

/* ---- lengths --------------------------------------------------------------------------------- */

static weir_status bad_length(const char *what, const char *text, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EINVAL,
        "--%s %.40s: must be tokens from 1 to %d as N, LOW-HIGH, normal:MEAN,DEVIATION or "
        "exponential:MEAN",
        what, text, (int)WEIR_LOAD_TOKENS
    );
}

/* Reads a whole number and moves *text past it. */
static bool read_number(const char **text, double least, double *out)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    const long long number = strtoll(*text, &end, 10);
    if ((double)number < least || number > WEIR_LOAD_TOKENS) return false;
    *out = (double)number;
    *text = end;
    return true;
}

static bool read_length(weir_length *out, const char *text)
{
    static const char normal[] = "normal:", exponential[] = "exponential:";
    if (strncmp(text, normal, sizeof normal - 1) == 0) {
        text += sizeof normal - 1;
        out->kind = WEIR_LENGTH_NORMAL;
        return read_number(&text, 1, &out->a) && *text++ == ',' && read_number(&text, 0, &out->b) &&
               *text == '\0';
    }
    if (strncmp(text, exponential, sizeof exponential - 1) == 0) {
        text += sizeof exponential - 1;
        out->kind = WEIR_LENGTH_EXPONENTIAL;
        return read_number(&text, 1, &out->a) && *text == '\0';
    }
    if (!read_number(&text, 1, &out->a)) return false;
    out->kind = *text == '-' ? WEIR_LENGTH_UNIFORM : WEIR_LENGTH_FIXED;
    if (*text == '-') {
        text++;
        if (!read_number(&text, out->a, &out->b)) return false;
    }
    return *text == '\0';
}

weir_status weir_length_parse(
    weir_length *out, const char *text, const char *what, weir_error *error
)
{
    weir_length length = { 0 };
    if (!read_length(&length, text)) return bad_length(what, text, error);
    *out = length;
    return WEIR_OK;
}

/* With mean 1. */
static double exponential(uint64_t seed, uint32_t stream, uint64_t draw)
{
    return -log(1.0 - weir_random(seed, stream, draw));
}

/* With mean 0 and deviation 1 (Box and Muller). */
static double normal(uint64_t seed, uint32_t stream, uint64_t draw)
{
    const double radius = sqrt(2.0 * exponential(seed, stream, 2 * draw));
    return radius * cos(2.0 * M_PI * weir_random(seed, stream, 2 * draw + 1));
}

int32_t weir_length_draw(const weir_length *l, uint64_t seed, uint32_t stream, uint64_t draw)
{
    double value = l->a;
    switch (l->kind) {
    case WEIR_LENGTH_FIXED: break;
    case WEIR_LENGTH_UNIFORM:
        value = floor(l->a + weir_random(seed, stream, draw) * (l->b - l->a + 1.0));
        break;
    case WEIR_LENGTH_NORMAL: value = l->a + l->b * normal(seed, stream, draw); break;
    case WEIR_LENGTH_EXPONENTIAL: value = l->a * exponential(seed, stream, draw); break;
    }
    return (int32_t)fmax(1.0, fmin((double)WEIR_LOAD_TOKENS, round(value)));
}

/* ---- arrivals and turns ---------------------------------------------------------------------- */

static weir_status check(const weir_workload_options *o, weir_error *error)
{
    if (!(o->rate >= 0.0 && o->rate <= 1e6))
        return weir_error_set(error, WEIR_EINVAL, "--rate must be from 0 to 1000000 a second");
    if (!(o->seconds >= 0.0 && o->seconds <= longest_seconds))
        return weir_error_set(error, WEIR_EINVAL, "--duration must be from 0 to 10000000 s");
    if (!(o->think >= 0.0 && o->think <= longest_seconds))
        return weir_error_set(error, WEIR_EINVAL, "--think must be from 0 to 10000000 s");
    if (o->n_requests < 0 || o->n_requests > WEIR_LOAD_REQUESTS || o->n_turns < 1 ||
        o->n_turns > WEIR_LOAD_REQUESTS || o->prefix < 0 || o->prefix > WEIR_LOAD_TOKENS ||
        o->n_groups < 1)
        return weir_error_set(
            error, WEIR_EINVAL,
            "a load has at most %d requests, 1 or more --turns and --groups, and a --prefix of at "
            "most %d tokens",
            (int)WEIR_LOAD_REQUESTS, (int)WEIR_LOAD_TOKENS
        );
    if (o->n_requests == 0 && o->seconds <= 0.0)
        return weir_error_set(error, WEIR_EINVAL, "a load needs --requests or --duration");
    return WEIR_OK;
}

/* Times between arrivals are exponential; the first one comes after such a time too. */
static void draw_arrivals(weir_workload *w, const weir_workload_options *o)
{
    double at = 0.0;
    if (o->rate <= 0.0) return;
    int32_t n = 0;
    for (; n < w->n_conversations; n++) {
        at += exponential(o->seed, WEIR_DRAW_ARRIVAL, (uint64_t)n) / o->rate;
        if (at > longest_seconds || (o->seconds > 0.0 && at >= o->seconds)) break;
        w->conversations[n].arrival_ns = (int64_t)(at * second_ns);
    }
    w->n_conversations = n;
}

/* The last conversation is shorter if the requests are no multiple of the turns. */
static void draw_turns(weir_workload *w, const weir_workload_options *o, int64_t n_requests)
{
    w->n_turns = 0;
    for (int32_t c = 0; c < w->n_conversations; c++) {
        weir_conversation *const one = &w->conversations[c];
        const int64_t left = n_requests - w->n_turns;
        one->first = w->n_turns;
        one->n_turns = (int32_t)(left < o->n_turns ? left : o->n_turns);
        one->group =
            (int32_t)(weir_random(o->seed, WEIR_DRAW_GROUP, (uint64_t)c) * (double)o->n_groups);
        for (int32_t t = 0; t < one->n_turns; t++) {
            const uint64_t draw = (uint64_t)w->n_turns;
            const double think =
                t > 0 ? o->think * exponential(o->seed, WEIR_DRAW_THINK, draw) : 0.0;
            w->turns[w->n_turns++] = (weir_turn){
                .prompt = weir_length_draw(&o->prompt, o->seed, WEIR_DRAW_PROMPT, draw),
                .answer = weir_length_draw(&o->answer, o->seed, WEIR_DRAW_ANSWER, draw),
                .think_ns = (int64_t)(think * second_ns),
            };
        }
    }
}

weir_status weir_workload_make(
    weir_workload *out, const weir_workload_options *o, weir_error *error
)
{
    weir_workload w = { 0 };
    WEIR_TRY(check(o, error));
    const int64_t n_requests = o->n_requests > 0 ? o->n_requests : WEIR_LOAD_REQUESTS;
    w.n_conversations = (int32_t)((n_requests + o->n_turns - 1) / o->n_turns);
    w.conversations = calloc((size_t)w.n_conversations, sizeof *w.conversations);
    w.turns = calloc((size_t)n_requests, sizeof *w.turns);
    if (w.conversations == NULL || w.turns == NULL) {
        weir_workload_free(&w);
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for %lld requests", (long long)n_requests
        );
    }
    draw_arrivals(&w, o);
    if (w.n_conversations == 0) {
        weir_workload_free(&w);
        return weir_error_set(
            error, WEIR_EINVAL,
            "nothing arrives: with --rate %g the first request comes after --duration %g; make "
            "one of them larger",
            o->rate, o->seconds
        );
    }
    draw_turns(&w, o, n_requests);
    *out = w;
    return WEIR_OK;
}

void weir_workload_free(weir_workload *w)
{
    free(w->conversations);
    free(w->turns);
    *w = (weir_workload){ 0 };
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Common words, which most tokenizers have as one token each. */
static const char *const words[] = {
    "the",    "time",   "people",  "water",   "house", "world",  "school", "state",
    "family", "group",  "night",   "point",   "home",  "room",   "mother", "area",
    "money",  "story",  "month",   "book",    "job",   "word",   "issue",  "side",
    "kind",   "head",   "service", "friend",  "power", "hour",   "game",   "line",
    "end",    "member", "law",     "car",     "city",  "name",   "team",   "minute",
    "idea",   "body",   "parent",  "face",    "level", "office", "door",   "health",
    "person", "art",    "war",     "history", "party", "result", "change", "reason",
    "moment", "air",    "force",   "work",    "order", "value",  "light",  "paper",
};
enum { WORDS = sizeof words / sizeof words[0] };
_Static_assert(WORDS == 64, "a word is drawn with six bits");

weir_status weir_load_words(
    weir_buffer *out, uint64_t seed, uint32_t stream, uint32_t number, int32_t n_words
)
{
    for (int32_t i = 0; i < n_words; i++) {
        const weir_philox block =
            weir_philox_block((weir_philox){ { (uint32_t)i, number, stream, 0 } }, seed);
        if (i > 0) WEIR_TRY(weir_buffer_text(out, " "));
        WEIR_TRY(weir_buffer_text(out, words[block.word[0] % WORDS]));
    }
    return WEIR_OK;
}
