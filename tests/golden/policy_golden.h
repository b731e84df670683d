/* tests/golden/policy_golden.h - eviction policies (policy.safetensors): the file while its cases
 * run, and the parts of run_policy. */
#pragma once
#include "tests/golden/kv_golden.h"
#include "tests/unit/kv/policy_sequence.h"

namespace golden {

using policy_test::Floats;
using policy_test::Ints;
using policy_test::Sequence;
using Shape = std::vector<int64_t>;
using Names = std::vector<std::string>;

constexpr int64_t MOST = 1 << 16; /* of any size in a case */

inline size_t at(int64_t i) { return static_cast<size_t>(i); }
inline bool begins(const std::string &seq, const char *prefix) { return seq.rfind(prefix, 0) == 0; }

class Policies {
  public:
    explicit Policies(KvFile *f);
    const json_t *fields(const std::string &name
    ) const; /* of a case; throws Broken if there is none */
    /* A whole number of a case; throws Broken unless it is in [least, most]. */
    int64_t number(const std::string &name, const char *key, int64_t least, int64_t most) const;
    double real(const std::string &name, const char *key, double least, double most) const;
    bool is_listed(const std::string &tensor) const { return file->fields(tensor) != nullptr; }
    void compare(Check *check, const std::string &tensor, const Shape &shape, const Floats &got);
    void compare(Check *check, const std::string &tensor, const Shape &shape, const Ints &got);
    void mark(const std::string &tensor) { compared_.insert(tensor); }
    /* Runs a case; it fails unless it has compared all of these tensors. */
    void run(
        const std::string &name, const Names &tensors, const std::function<void(Check *)> &body
    );
    void skip(const std::string &name, const std::string &why);

    int64_t n() const { return data.tokens; }
    /* What is kept of the parameters of kvpress: n_kept of `ratio`. */
    int64_t kept_of_ratio(const std::string &name) const;
    /* NAME.kept or NAME.kept.lL.hH, NAME.out and NAME.mass of what the text holds. */
    void check_held(Check *check, const std::string &name, const Sequence &seq);
    /* NAME.score of every (layer, KV head): protected rows, which are infinite here, are written as
     * the greatest score of the layer and 1, or left out when the file has fewer rows. */
    void check_scores(Check *check, const std::string &name, Sequence *seq, int64_t budget);

    KvFile *const file;
    policy_test::Data data;

  private:
    std::set<std::string> compared_;
};

/* The rows [n_layers, ..] of one query over what is held, in double. */
Floats attend(
    const policy_test::Data &data, int64_t layer, int64_t head, const Ints &positions, double *mass
);

/* What stays of n rows when the part `ratio` of them goes. */
int64_t kept_rows(int64_t n, double ratio);
Ints integers_of(const json_t *array);
/* The window and the pooling of a case, as a policy's options. */
std::string window_options(const Policies &p, const std::string &name);

/* policy_scorers.cc; run_scorer: false when the name is none of a scorer. */
bool run_scorer(Policies *p, const std::string &name, const Names &tensors);
void run_pyramid_budgets(Policies *p, const std::string &name, const Names &tensors);
void run_n_kept(Policies *p, const std::string &name, const Names &tensors);
void run_adakv(Policies *p, const std::string &name, const Names &tensors);
void run_pyramidkv(Policies *p, const std::string &name, const Names &tensors);

/* policy_windows.cc */
void run_keydiff_blocks(Policies *p, const std::string &name, const Names &tensors);
void run_streaming(Policies *p, const std::string &name, const Names &tensors);
void run_h2o(Policies *p, const std::string &name, const Names &tensors);
void run_snapkv_original(Policies *p, const std::string &name, const Names &tensors);
void run_decode_method(Policies *p, const std::string &name, const Names &tensors);

/* policy_tri.cc; false when the name is none of TriAttention's. */
bool run_tri(Policies *policies, const std::string &name, const Names &tensors);

} // namespace golden
