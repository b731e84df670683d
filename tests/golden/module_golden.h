/* tests/golden/module_golden.h - single operations: the parts of run_modules. Each takes a group of
 * tensors of modules.safetensors, such as "G8_dv", and adds the cases that it finds in it. */
#pragma once
#include <string>

#include "tests/golden/golden.h"

namespace golden {

struct Modules {
    Reference values;
    const json_t *dims;
    Counts *counts;

    void run(const std::string &name, const std::function<void(Check *)> &body)
    {
        counts->run("modules/" + name, body);
    }
    /* The tensors that begin with `prefix` are answered for by one line. */
    void skip(const std::string &prefix, const std::string &why);
};

void run_norm(Modules *m, const std::string &group); /* G1      */
void run_gated_norm(Modules *m, const std::string &group); /* G2      */
void run_rotation(Modules *m, const std::string &group); /* G3      */
void run_three_positions(Modules *m, const std::string &group); /* G4    */
void run_convolution(Modules *m, const std::string &group); /* G5      */
void run_gates(Modules *m, const std::string &group); /* G6      */
void run_unit_length(Modules *m, const std::string &group); /* G7      */
void run_recurrence(Modules *m, const std::string &group); /* G8      */
void run_long_recurrence(Modules *m, const std::string &group); /* G9    */
void run_feed_forward(Modules *m, const std::string &group); /* G12     */
void run_head_order(Modules *m, const std::string &group); /* G16     */
void run_llama3_scaling(Modules *m, const std::string &group); /* G19    */
void run_yarn(Modules *m, const std::string &group); /* G21     */
void run_experts(Modules *m, const std::string &group); /* G12     */
void run_latents(Modules *m, const std::string &group); /* G22     */
void run_router(Modules *m, const std::string &group); /* G23     */
void run_eight_bit(Modules *m, const std::string &group); /* G25     */
void run_scaled_blocks(Modules *m, const std::string &group); /* G25     */

/* RoPE's frequencies and factor on cos and sin, as the engine reads them from a checkpoint with
 * these parameters. Throws Broken. */
struct Frequencies {
    std::vector<float> values;
    float magnitude = 1;
};
Frequencies resolve_rope(const json_t *parameters, int64_t rotary_dim, double theta);

} // namespace golden
