/* tests/golden/kv_golden.h - the files of a KV folder (index.json): one function for each group of
 * files. */
#pragma once
#include "tests/golden/golden.h"

namespace golden {

/* One file that index.json lists. */
struct KvFile {
    std::string name; /* "attn": the file without its ending */
    Tensors tensors;
    const json_t *entry; /* { cases, tensors, .. } of index.json, borrowed */
    Counts *counts;

    const json_t *fields(const std::string &tensor) const
    {
        return json_object_get(json_object_get(entry, "tensors"), tensor.c_str());
    }
    /* "tol": { abs, rel, rel_to_max }, or "exact". Throws Broken when there is none to compare
     * with. */
    Tolerance tolerance(const std::string &tensor) const;
    std::string label(const std::string &what) const { return "kv/" + name + "/" + what; }
};

void run_attention(KvFile *file); /* attn  */
void run_codec(KvFile *file); /* codec */
void run_coda(KvFile *file); /* coda */
void run_policy(KvFile *file); /* policy */

} // namespace golden
