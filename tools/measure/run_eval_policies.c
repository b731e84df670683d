/* tools/measure/run_eval_policies.c - weir eval policies: lists the methods of [kv.policy] and
 * explains their options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cli/command.h"
#include "engine/cli/print.h"
#include "engine/kv/policy/policy_options.h"

enum { MOST_OPTIONS = 64 };

/* The options of all methods, each once. */
typedef struct glossary {
    const char *name[MOST_OPTIONS], *help[MOST_OPTIONS];
    size_t n;
} glossary;

static void add(glossary *all, const char *name, const char *help)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->name[i], name) == 0) return;
    if (all->n == MOST_OPTIONS) return;
    all->name[all->n] = name;
    all->help[all->n++] = help;
}

/* Prints a number in its shortest form. */
static void print_value(const char *value)
{
    char *end;
    const double number = strtod(value, &end);
    if (strchr(value, '.') != NULL && *end == '\0')
        (void)printf("%g", number);
    else
        (void)printf("%s", value);
}

static weir_status print_method(
    glossary *all, const char *name, const char *summary, weir_error *error
)
{
    weir_policy_options defaults;
    const char *option, *help;
    char value[WEIR_POLICY_TEXT];
    WEIR_TRY(weir_policy_options_default(&defaults, name, error));
    (void)printf("%s: %s\n   ", name, summary);
    for (size_t i = 0; weir_policy_option_at(&defaults, i, &option, value, sizeof value, &help);
         i++) {
        (void)printf(" %s=", option);
        print_value(value);
        add(all, option, help);
    }
    (void)printf("\n");
    return WEIR_OK;
}

int weir_run_eval_policies(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    glossary all = { .n = 0 };
    const char *summary;
    (void)arguments;
    for (size_t i = 0;; i++) {
        const char *const name = weir_policy_at(i, &summary);
        if (name == NULL) break;
        const weir_status status = print_method(&all, name, summary, &error);
        if (status != WEIR_OK) return weir_fail(status, &error);
    }
    (void)printf("\nOptions (kv.policy.options = \"name=value,...\"):\n");
    for (size_t i = 0; i < all.n; i++) (void)printf("  %-14s %s\n", all.name[i], all.help[i]);
    return WEIR_EXIT_OK;
}
