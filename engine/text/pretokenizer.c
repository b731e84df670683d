/* engine/text/pretokenizer.c - runs PCRE2's interpreter (no writable and executable memory), with
 * bounded time and memory per text. PCRE2 counts steps from each position where a match may begin
 * and has a bounded heap for the match stack (docs/decisions/0035). */
#include "engine/text/pretokenizer.h"

#include <string.h>
#include <time.h>

#include "engine/base/memory.h"

/* From one position, a sane pattern takes a few steps per character. */
enum {
    STEPS = 1000 * 1000,
    STEPS_PER_BYTE = 8,
    MOST_STEPS = 1000 * 1000 * 1000,
    HEAP_LIMIT_KIB = 32 * 1024
};
enum { CLOCK_EVERY = 16 }; /* in positions */
static const int64_t time_limit_ns =
    INT64_C(10000000000); /* for one text; 16 MiB of digits take 3 s */

static weir_status compile(
    weir_split *step, const char *pattern, size_t length, uint32_t flags, weir_error *error
)
{
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    if (context == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a pattern");
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int reason;
    PCRE2_SIZE offset;
    step->code = pcre2_compile((PCRE2_SPTR)pattern, length, flags, &reason, &offset, context);
    pcre2_compile_context_free(context);
    if (step->code == NULL && reason == PCRE2_ERROR_HEAP_FAILED)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a pattern");
    if (step->code == NULL) {
        PCRE2_UCHAR text[256];
        (void)pcre2_get_error_message(reason, text, sizeof text);
        return weir_error_set(
            error, WEIR_EFORMAT, "the pattern does not compile: %s at byte %zu", (const char *)text,
            (size_t)offset
        );
    }
    return WEIR_OK;
}

static weir_status add_with_callout(
    weir_buffer *out, const char *pattern, size_t length, weir_error *error
)
{
    WEIR_TRY(weir_buffer_text(out, "(?C1)(?:"));
    WEIR_TRY(weir_pattern_translate(out, pattern, length, error));
    return weir_buffer_text(out, ")");
}

weir_status weir_pretokenizer_add(
    weir_pretokenizer *pretokenizer, const char *pattern, size_t length, weir_split_options options,
    weir_error *error
)
{
    if (pretokenizer->n_steps == WEIR_PRETOKENIZER_STEPS)
        return weir_error_set(error, WEIR_EFORMAT, "more than %d steps", WEIR_PRETOKENIZER_STEPS);
    if (length == 0 || length > WEIR_PATTERN_BYTES)
        return weir_error_set(
            error, WEIR_EFORMAT, "the pattern has %zu bytes, 1 to %d are read", length,
            WEIR_PATTERN_BYTES
        );
    weir_buffer translated = { 0 };
    weir_status status = options.literal ? weir_buffer_add(&translated, pattern, length)
                                         : add_with_callout(&translated, pattern, length, error);
    if (status == WEIR_ENOMEM) status = weir_error_set(error, status, "no memory for a pattern");
    weir_split step = { .drop_gaps = options.drop_gaps };
    if (status == WEIR_OK)
        status = compile(
            &step, translated.data, translated.size,
            PCRE2_UTF | (options.literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE), error
        );
    if (status == WEIR_OK) pretokenizer->steps[pretokenizer->n_steps++] = step;
    weir_buffer_free(&translated);
    return status;
}

void weir_pretokenizer_free(weir_pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->n_steps; i++) pcre2_code_free(pretokenizer->steps[i].code);
    *pretokenizer = (weir_pretokenizer){ 0 };
}

static int64_t thread_time_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A callout at each position checks the clock, which bounds patterns that are quadratic in the
 * text. */
static int on_place(pcre2_callout_block *block, void *context)
{
    weir_matcher *const matcher = context;
    (void)block;
    if (++matcher->n_places % CLOCK_EVERY != 0 || thread_time_ns() < matcher->deadline_ns) return 0;
    return PCRE2_ERROR_CALLOUT;
}

/* The match stack is charged to the running thread's tracker. */
static void *take(size_t bytes, void *context)
{
    (void)context;
    return weir_memory_take(bytes);
}

static void give(void *memory, void *context)
{
    (void)context;
    weir_memory_give(memory);
}

weir_status weir_matcher_init(weir_matcher *matcher)
{
    *matcher = (weir_matcher){ .limit_ns = time_limit_ns };
    pcre2_general_context *const memory = pcre2_general_context_create(take, give, NULL);
    if (memory == NULL) return WEIR_ENOMEM;
    matcher->data = pcre2_match_data_create(1, memory);
    matcher->context = pcre2_match_context_create(memory);
    pcre2_general_context_free(memory);
    if (matcher->data == NULL || matcher->context == NULL) {
        weir_matcher_free(matcher);
        return WEIR_ENOMEM;
    }
    (void)pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
    return WEIR_OK;
}

void weir_matcher_free(weir_matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    *matcher = (weir_matcher){ 0 };
}

/* Sets the limits for one text; pieces are never longer. A match is never deeper than its steps. */
static void arm(weir_matcher *matcher, size_t n)
{
    const size_t wanted = n < MOST_STEPS / STEPS_PER_BYTE ? STEPS + STEPS_PER_BYTE * n : MOST_STEPS;
    const uint32_t steps = wanted < MOST_STEPS ? (uint32_t)wanted : MOST_STEPS;
    (void)pcre2_set_match_limit(matcher->context, steps);
    (void)pcre2_set_depth_limit(matcher->context, steps);
    (void)pcre2_set_callout(matcher->context, on_place, matcher);
    matcher->n_places = 0;
    matcher->deadline_ns = thread_time_ns() + matcher->limit_ns;
}

static const char *limit_name(int reason)
{
    switch (reason) {
    case PCRE2_ERROR_MATCHLIMIT: return "steps";
    case PCRE2_ERROR_DEPTHLIMIT: return "depth";
    case PCRE2_ERROR_HEAPLIMIT: return "memory";
    case PCRE2_ERROR_CALLOUT: return "time";
    default: return "PCRE2";
    }
}

typedef struct run {
    const weir_pretokenizer *pretokenizer;
    weir_matcher *matcher;
    weir_piece_sink *sink;
    void *context;
    weir_error *error;
} run;

/* Finds the next match at or after *end; *begin == n if there is none. */
static weir_status next_match(
    const run *run, const weir_split *step, const char *text, size_t n, size_t *begin, size_t *end
)
{
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    const weir_matcher *const matcher = run->matcher;
    const int found = pcre2_match(
        step->code, (PCRE2_SPTR)text, n, *end, options, matcher->data, matcher->context
    );
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return weir_error_set(
            run->error, found == PCRE2_ERROR_NOMEMORY ? WEIR_ENOMEM : WEIR_EFULL,
            "the pre-tokenizer's pattern ran past its limits on this text: %s (PCRE2 error %d); "
            "send the text in smaller parts, or with fewer repeated characters",
            limit_name(found), found
        );
    const PCRE2_SIZE *const range = pcre2_get_ovector_pointer(matcher->data);
    *begin = found < 0 ? n : range[0];
    *end = found < 0 ? n : range[1];
    return WEIR_OK;
}

/* Splits by the steps from `step` on. The recursion is as deep as the number of steps. */
static weir_status cut(const run *run, int step, const char *text, size_t n)
{
    if (step == run->pretokenizer->n_steps) return run->sink(run->context, text, n);
    const weir_split *const split = &run->pretokenizer->steps[step];
    for (size_t end = 0; end < n;) {
        const size_t before = end;
        size_t begin;
        WEIR_TRY(next_match(run, split, text, n, &begin, &end));
        if (begin > before && !split->drop_gaps)
            WEIR_TRY(cut(run, step + 1, text + before, begin - before));
        if (end > begin) WEIR_TRY(cut(run, step + 1, text + begin, end - begin));
    }
    return WEIR_OK;
}

weir_status weir_pretokenizer_run(
    const weir_pretokenizer *pretokenizer, weir_matcher *matcher, const char *text, size_t n,
    weir_piece_sink *sink, void *context, weir_error *error
)
{
    const run run = { .pretokenizer = pretokenizer,
                      .matcher = matcher,
                      .sink = sink,
                      .context = context,
                      .error = error };
    arm(matcher, n);
    return n > 0 ? cut(&run, 0, text, n) : WEIR_OK;
}
