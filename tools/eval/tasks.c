/* tools/eval/tasks.c - the table of tasks. A task's index selects its random stream: append new
 * ones. */
#include "tools/eval/dfs.h"
#include "tools/eval/ruler.h"

#define NIAH(task, which, text)                                                                    \
    { .name = task,                                                                                \
      .summary = text,                                                                             \
      .unit = "units of its haystack",                                                             \
      .max_tokens = 128,                                                                           \
      .scoring = WEIR_EVAL_ALL,                                                                    \
      .variant = which,                                                                            \
      .units = weir_niah_units,                                                                    \
      .build = weir_niah_build }

static const weir_eval_task tasks[] = {
    NIAH("niah_single_1", WEIR_NIAH_SINGLE_1, "a number among lines without content"),
    NIAH("niah_single_2", WEIR_NIAH_SINGLE_2, "a number in prose"),
    NIAH("niah_single_3", WEIR_NIAH_SINGLE_3, "a uuid in prose"),
    NIAH("niah_multikey_1", WEIR_NIAH_MULTIKEY_1, "one of 4 numbers in prose"),
    NIAH("niah_multikey_2", WEIR_NIAH_MULTIKEY_2, "one of a text full of numbers"),
    NIAH("niah_multikey_3", WEIR_NIAH_MULTIKEY_3, "one of a text full of uuids, by uuid"),
    NIAH("niah_multivalue", WEIR_NIAH_MULTIVALUE, "4 numbers of one thing"),
    NIAH("niah_multiquery", WEIR_NIAH_MULTIQUERY, "4 numbers of 4 things"),
    { .name = "vt",
      .summary = "variables that have a value through others",
      .unit = "lines of noise",
      .max_tokens = 30,
      .scoring = WEIR_EVAL_ALL,
      .units = weir_vt_units,
      .build = weir_vt_build },
    { .name = "cwe",
      .summary = "the 10 most common words of a list",
      .unit = "words",
      .max_tokens = 120,
      .scoring = WEIR_EVAL_ALL,
      .units = weir_cwe_units,
      .build = weir_cwe_build },
    { .name = "fwe",
      .summary = "the 3 most frequent words of a coded text",
      .unit = "words",
      .max_tokens = 50,
      .scoring = WEIR_EVAL_ALL,
      .units = weir_fwe_units,
      .build = weir_fwe_build },
    { .name = "qa_1",
      .summary = "a question about one of many documents",
      .unit = "documents",
      .max_tokens = 32,
      .scoring = WEIR_EVAL_PART,
      .variant = WEIR_QA_SQUAD,
      .needs_qa = true,
      .units = weir_qa_units,
      .build = weir_qa_build },
    { .name = "qa_2",
      .summary = "a question about several of many documents",
      .unit = "documents",
      .max_tokens = 32,
      .scoring = WEIR_EVAL_PART,
      .variant = WEIR_QA_HOTPOT,
      .needs_qa = true,
      .units = weir_qa_units,
      .build = weir_qa_build },
    NIAH("niah_grid", WEIR_NIAH_GRID, "a number in prose at 11 depths, for a heat map"),
    { .name = "dfs",
      .summary = "the state of a depth-first search, worked out in the answer",
      .unit = "nodes",
      .max_tokens = 256,
      .scoring = WEIR_EVAL_STATE,
      .variant = WEIR_DFS_FREE,
      .units = weir_dfs_units,
      .build = weir_dfs_build },
    { .name = "dfs_traced",
      .summary = "the same after its true trace",
      .unit = "nodes",
      .max_tokens = 128,
      .scoring = WEIR_EVAL_STATE,
      .variant = WEIR_DFS_TRACED,
      .units = weir_dfs_units,
      .build = weir_dfs_build },
    { .name = "dfs_probe",
      .summary = "the next line of its true trace",
      .unit = "nodes",
      .max_tokens = 96,
      .scoring = WEIR_EVAL_LINE,
      .variant = WEIR_DFS_PROBE,
      .units = weir_dfs_units,
      .build = weir_dfs_build },
};

const weir_eval_task *weir_eval_tasks(size_t *n)
{
    *n = sizeof tasks / sizeof tasks[0];
    return tasks;
}
