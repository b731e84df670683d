// Normal random numbers (Box and Muller). std::normal_distribution<float> takes logarithms in long
// double, which is most of the time of a test that fills large arrays.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>

namespace weir_test {

class Normal {
  public:
    explicit Normal(float deviation = 1) : deviation_(deviation) {}

    template <typename Generator> float operator()(Generator &generator)
    {
        if (second_ready_) {
            second_ready_ = false;
            return second_;
        }
        const float radius = deviation_ * std::sqrt(-2 * std::log(uniform(generator)));
        const float angle = 6.2831853f * uniform(generator);
        second_ = radius * std::sin(angle);
        second_ready_ = true;
        return radius * std::cos(angle);
    }

  private:
    // 24 bits, above 0 and at most 1.
    template <typename Generator> static float uniform(Generator &generator)
    {
        return (float)(((uint32_t)generator() >> 8) + 1) * 0x1p-24f;
    }

    float deviation_;
    float second_ = 0;
    bool second_ready_ = false;
};

} // namespace weir_test
