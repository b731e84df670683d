/* tools/eval/ruler.h - builders of the RULER tasks, rows of the table in tasks.c. */
#pragma once
#include "tools/eval/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Needles in a haystack. */
enum {
    WEIR_NIAH_SINGLE_1,
    WEIR_NIAH_SINGLE_2,
    WEIR_NIAH_SINGLE_3,
    WEIR_NIAH_MULTIKEY_1,
    WEIR_NIAH_MULTIKEY_2,
    WEIR_NIAH_MULTIKEY_3,
    WEIR_NIAH_MULTIVALUE,
    WEIR_NIAH_MULTIQUERY,
    WEIR_NIAH_GRID,
    WEIR_NIAH_VARIANTS
};
/* Depths of the grid: 0, 10 .. 100 percent, in turn. */
enum { WEIR_NIAH_DEPTHS = 11 };
weir_status weir_niah_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
);
void weir_niah_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
);

weir_status weir_vt_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
);
void weir_vt_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
);

weir_status weir_cwe_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
);
void weir_cwe_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
);

weir_status weir_fwe_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
);
void weir_fwe_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
);
/* The count of the word of rank i (from 1) in a text of n_draws: the integer part of n_draws / i^2
 * / zeta(2). */
uint32_t weir_fwe_count(uint32_t n_draws, uint32_t rank);

enum { WEIR_QA_SQUAD, WEIR_QA_HOTPOT };
weir_status weir_qa_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
);
void weir_qa_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
);

#ifdef __cplusplus
}
#endif
