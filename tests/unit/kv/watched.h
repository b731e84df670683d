/* Sequences under a policy that observes nothing. */
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "engine/kv/pool/sequence.h"

namespace evict {

/* Four sequences under a policy that keeps nothing in mind: what is done with their rows is up to
 * the test. */
struct Watched {
    weir_policy_options options = {};
    std::vector<int32_t> layers;
    std::vector<double> frequencies = std::vector<double>(64, 1.0);
    weir_policy_run *policy_run = nullptr;
    weir_kv_sequence all[4] = {};
    weir_error error = {};
    void open(const weir_kv_spec &spec, weir_kv_store *store, weir_ledger *ledger)
    {
        for (int32_t i = 0; i < spec.n_layers; i++) layers.push_back(i);
        ASSERT_EQ(weir_policy_options_default(&options, "sinks", &error), WEIR_OK);
        weir_policy_run_options run = {};
        run.policy = &options;
        run.budget = 600;
        run.shape = { spec.n_layers,
                      spec.geometry[0].n_heads,
                      spec.geometry[0].n_heads,
                      spec.geometry[0].key_dim,
                      spec.geometry[0].value_dim,
                      spec.geometry[0].key_dim,
                      false,
                      frequencies.data(),
                      1,
                      1,
                      spec.max_rows,
                      { 1, 2 },
                      0,
                      false,
                      false };
        run.layers = layers.data();
        run.n_sequences = 4;
        run.n_new = (int32_t)spec.max_rows;
        ASSERT_EQ(weir_policy_run_open(&policy_run, &run, ledger, &error), WEIR_OK) << error.text;
        for (weir_kv_sequence &s : all)
            ASSERT_EQ(weir_kv_sequence_open(&s, store, ledger, 0, &error), WEIR_OK);
        for (weir_kv_sequence &s : all) clear(&s);
    }
    void clear(weir_kv_sequence *s)
    {
        weir_kv_sequence_clear(s);
        s->policy_run = weir_policy_run_begin(policy_run, (int32_t)(s - all), 0, 0);
    }
    void close()
    {
        for (weir_kv_sequence &s : all) weir_kv_sequence_close(&s);
        weir_policy_run_close(policy_run);
    }
};

} // namespace evict
