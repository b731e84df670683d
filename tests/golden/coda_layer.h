/* tests/golden/coda_layer.h - one layer of CoDA-GQA-L out of the kernels of the table: projections,
 * doubled queries over the dense rows of a state, its write. What reference values of any size are
 * run through. */
#pragma once
#include <map>
#include <string>
#include <vector>

#include "kernels/abi/coda.h"
#include "tests/golden/golden.h"
#include "tests/golden/kernel_rows.h"

namespace golden {

using Floats = std::vector<float>;

struct CodaConfig {
    int64_t model = 0, n_heads = 0;
    double base = 10000;
    bool interleaved = true, norm = true, mask = true;
    weir_coda_layer bank = {};
    static CodaConfig parse(const json_t *json);
    void change(const json_t *changed); /* by the published package's names */
};

/* Names as in checkpoints, "q_proj.weight". */
using CodaWeights = std::map<std::string, Floats>;

class CodaState {
  public:
    explicit CodaState(const CodaConfig &config);
    /* [KV heads, slots, head_dim]: what is there at the start */
    void fill(const Floats &k, const Floats &v);
    weir_coda_state view() { return weir_coda_view(&layer_, memory()); }
    void *memory()
    {
        return reinterpret_cast<void *>(
            (reinterpret_cast<uintptr_t>(storage_.data()) + 63) / 64 * 64
        );
    }
    Floats slots(weir_kv_side side); /* [KV heads, slots, head_dim] */
    std::vector<int32_t> used();
    CodaState(const CodaState &other) : layer_(other.layer_), storage_(other.storage_.size())
    {
        memcpy(memory(), const_cast<CodaState &>(other).memory(), storage_.size() - 64);
    }
    CodaState &operator=(const CodaState &) = delete;

  private:
    weir_coda_layer layer_;
    std::vector<char> storage_;
};

class CodaLayer {
  public:
    CodaLayer(const CodaConfig &config, const CodaWeights &weights, Row *write);
    const CodaConfig &config() const { return config_; }
    /* x [T, model] -> y [T, model]; false: the kernel does not take such a layer. */
    bool prefill(CodaState *state, const Floats &x, int64_t block, Floats *y, bool writes = true);
    bool step(
        CodaState *state, const Floats &x, Floats *y, bool writes = true, bool sees_itself = true
    );
    /* Without banks: every token sees all before it. */
    Floats causal(const Floats &x);

    struct Rows {
        Floats q, k, v, lambda, gates; /* [T, heads, head_dim], rotated; [T, heads]; [T] */
        int64_t n;
    };
    Rows project(const Floats &x, int64_t position) const;
    Floats doubled(const Floats &q) const; /* [T, KV heads, signal and noise, head_dim] */

  private:
    Floats multiply(const Floats &x, const std::string &name, int64_t n_in) const;
    Floats attend(CodaState *state, const Rows &rows, int64_t first, int64_t n, bool with_new)
        const;
    Floats output(const Floats &attended, const Rows &rows, int64_t first, int64_t n) const;
    bool write(CodaState *state, const Rows &rows, int64_t first, int64_t n, bool is_step);
    const Floats &weight(const std::string &name) const;

    CodaConfig config_;
    const CodaWeights &weights_;
    Row *write_;
    Floats rates_;
};

} // namespace golden
