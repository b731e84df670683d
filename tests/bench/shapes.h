// What reuse leaves to compute, by how a conversation goes on: a service with a model, requests of
// made-up tokens, one after the other, and the prompt tokens that each had to compute.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shapes {

struct Options {
    std::string model; // a folder or file
    std::vector<std::string> settings; // KEY=VALUE
    int turns = 12;
    int branch_at = 0; // the turn after which `branch` goes on otherwise; 0: after each
    int system = 300, question = 60, thoughts = 24, answer = 12; // tokens
    // Of a policy that observes chunks of a prompt as a whole: their tokens.
    int chunk = 1;
};

struct Row {
    int64_t requests = 0, prompt = 0; // prompt: their tokens
    int64_t computed = 0; // prompt tokens
    int64_t changed = 0; // prompt tokens from the beginning of the first turn that changed
    // Requests that computed more than these, the last token of an answer and most of a chunk.
    int64_t beyond = 0;
    int64_t repeated = 0; // prompt tokens of earlier turns
    int64_t n_states = 0; // recurrent states for which there is memory
};

// append, strip-thoughts, edit-last, branch, date, reorder-tools, new-line
const std::vector<std::string> &names();
// The requests of a shape that continue what an earlier one began. Returns "" or what failed.
std::string run(const Options &options, const std::string &name, Row *out);
// `n` conversations in turns: the first turn of each, then the second of each. `strips`: a third,
// and thoughts of earlier turns are left out.
std::string run_idle(const Options &options, int n, Row *out, bool strips = false);

} // namespace shapes
