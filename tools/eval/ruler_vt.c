/* tools/eval/ruler_vt.c - variable tracking: a chain of assignments among lines of noise; which
 * variables have the value? */
#include <stdio.h>
#include <string.h>

#include "tools/eval/ruler.h"

enum { HOPS = 4, LINKS = HOPS + 1, NAME = 8 };

typedef struct chain {
    char names[LINKS][NAME];
    uint32_t value;
    int letters;
} chain;

static void draw_chain(chain *c, weir_eval_random *r)
{
    c->value = 10000 + weir_eval_random_below(r, 89999);
    for (int i = 0; i < LINKS; i++) {
        bool is_new;
        do {
            for (int j = 0; j < c->letters; j++)
                c->names[i][j] = (char)('A' + weir_eval_random_below(r, 26));
            c->names[i][c->letters] = '\0';
            is_new = true;
            for (int j = 0; j < i; j++) is_new = is_new && strcmp(c->names[i], c->names[j]) != 0;
        } while (!is_new);
    }
}

/* The links of the chain in order, at random places among n_lines lines of noise. */
static weir_status put_chain(
    weir_buffer *out, const chain *c, uint32_t n_lines, weir_eval_random *r
)
{
    uint32_t at[LINKS];
    weir_eval_random_sample(r, at, LINKS, n_lines + LINKS);
    int link = 0;
    for (uint32_t line = 0; line < n_lines + LINKS; line++) {
        bool is_link = false;
        for (int i = 0; i < LINKS; i++) is_link = is_link || at[i] == line;
        if (!is_link)
            WEIR_TRY(weir_buffer_format(out, "%s\n", weir_eval_noise));
        else if (link == 0)
            WEIR_TRY(weir_buffer_format(out, "VAR %s = %u\n", c->names[0], c->value));
        else
            WEIR_TRY(
                weir_buffer_format(out, "VAR %s = VAR %s\n", c->names[link], c->names[link - 1])
            );
        link += is_link;
    }
    return WEIR_OK;
}

static weir_status put_question(weir_buffer *out, const chain *c)
{
    return weir_buffer_format(
        out,
        "Which variables have the value %u in the text above, directly or through other variables?",
        c->value
    );
}

static weir_status put_prefix(weir_buffer *out, const chain *c)
{
    return weir_buffer_format(out, "%d variables have the value %u:", LINKS, c->value);
}

/* Begins with a worked example with names of three letters; it has no noise if there is little
 * space. */
weir_status weir_vt_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
)
{
    enum { EXAMPLE_NOISE = 5, EXAMPLE_FROM = 1024 };
    chain example = { .letters = 3 }, asked = { .letters = 5 };
    (void)task, (void)sample, (void)error;
    draw_chain(&example, r);
    draw_chain(&asked, r);
    if (asked.value == example.value) asked.value = 10000 + (asked.value - 10000 + 1) % 89999;
    WEIR_TRY(
        weir_buffer_text(&out->context, "Follow the variables that are assigned in the text.\n\n")
    );
    WEIR_TRY(
        put_chain(&out->context, &example, setting->length < EXAMPLE_FROM ? 0 : EXAMPLE_NOISE, r)
    );
    WEIR_TRY(put_question(&out->context, &example));
    WEIR_TRY(weir_buffer_text(&out->context, "\n"));
    WEIR_TRY(put_prefix(&out->context, &example));
    for (int i = 0; i < LINKS; i++)
        WEIR_TRY(weir_buffer_format(&out->context, " %s", example.names[i]));
    WEIR_TRY(weir_buffer_text(&out->context, "\n\nNow another text.\n\n"));
    WEIR_TRY(put_chain(&out->context, &asked, (uint32_t)n_units, r));
    WEIR_TRY(put_question(&out->question, &asked));
    WEIR_TRY(put_prefix(&out->prefix, &asked));
    for (int i = 0; i < LINKS; i++) WEIR_TRY(weir_eval_item_answer(out, asked.names[i]));
    return WEIR_OK;
}

void weir_vt_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
)
{
    (void)task;
    *out = (weir_eval_units
    ){ .least = 0, .step = setting->length < WEIR_EVAL_SHORT ? 5 : 10, .most = setting->length };
}
