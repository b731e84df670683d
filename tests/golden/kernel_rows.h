/* tests/golden/kernel_rows.h - running an operation on every kernel of the table that this machine
 * can run, as dispatch would. */
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "offload/dispatch.h"
#include "offload/weights.h"

namespace golden {

weir_stream *stream(); /* of the whole program; throws Broken when it cannot be opened */

/* One kernel while each_row visits it. */
class Row {
  public:
    explicit Row(const weir_kernel *kernel) : kernel_(kernel) {}
    std::string name() const { return kernel_->name; }
    bool ran() const { return ran_; }
    /* Throws Broken when the kernel fails; false when it does not take these arguments. */
    bool run(const void *args);

  private:
    const weir_kernel *kernel_;
    bool ran_ = false;
};

/* Calls `body` for every kernel of the op; it builds fresh outputs, calls run and compares. Throws
 * Broken when none took the arguments. */
void each_row(weir_op op, const std::function<void(Row *)> &body);

/* A matrix [n_out, n_in] of f32 in the layout that exact products read. */
class Weight {
  public:
    Weight(const std::vector<float> &values, int64_t n_out, int64_t n_in);
    ~Weight();
    Weight(const Weight &) = delete;
    Weight &operator=(const Weight &) = delete;
    const weir_weight *get() const { return &weight_; }

  private:
    weir_weight weight_ = {};
    void *memory_ = nullptr;
};

/* x [n_rows, n_in] times each weight, by dispatch. */
std::vector<float> multiply(const std::vector<float> &x, const Weight &weight);

} // namespace golden
