/* Statistics of queries, as TriAttention reads them. */
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/kv/policy_sequence.h"

namespace policy_test {

using Bytes = std::vector<unsigned char>;

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

inline weir_policy_shape shape_with(const Data &data, const Doubles &frequencies, float magnitude)
{
    weir_policy_shape shape = shape_of(data, frequencies, 0);
    shape.rope_magnitude = magnitude;
    return shape;
}

/* The statistics of the data's own queries. */
class Calibration {
  public:
    explicit Calibration(const Data &data) : frequencies_(data.frequencies())
    {
        const weir_policy_shape shape = shape_with(data, frequencies_, 1);
        weir_error error = {};
        weir_calibrator *calibrator = nullptr;
        EXPECT_EQ(
            weir_calibrator_open(&calibrator, &shape, static_cast<float>(data.base), &error),
            WEIR_OK
        ) << error.text;
        for (int64_t layer = 0; layer < data.layers; layer++)
            for (int64_t first = 0; first < data.tokens;
                 first += 7) { /* in pieces, as chunks come */
                const weir_policy_queries some = {
                    data.plain.data() + (layer * data.heads * data.tokens + first) * data.key_dim,
                    std::min<int64_t>(7, data.tokens - first), data.tokens * data.key_dim,
                    data.key_dim
                };
                weir_calibrator_add(calibrator, layer, &some);
            }
        EXPECT_EQ(weir_calibrator_finish(calibrator, &made_, &error), WEIR_OK) << error.text;
        weir_calibrator_close(calibrator);
    }
    ~Calibration() { weir_calibration_close(made_); }
    Calibration(const Calibration &) = delete;
    Calibration &operator=(const Calibration &) = delete;
    const weir_calibration *get() const { return made_; }
    Bytes bytes(bool is_plain = false) const
    {
        weir_buffer out = {};
        EXPECT_EQ(weir_calibration_print(&out, made_, is_plain), WEIR_OK);
        const Bytes copy(out.data, out.data + out.size);
        weir_buffer_free(&out);
        return copy;
    }

  private:
    Doubles frequencies_;
    weir_calibration *made_ = nullptr;
};

} // namespace policy_test
