/* tests/golden/golden.h - what every part of the golden runner shares: counting and printing of cases, tensors of a safetensors file. */
#pragma once
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/formats/tensor_directory.h"

namespace golden {

/* One line per case, and the sum at the end. */
struct Counts {
    int         passed = 0, failed = 0, skipped = 0;
    std::string filter; /* only cases whose name holds this text */

    bool wants(const std::string &name) const { return filter.empty() || name.find(filter) != std::string::npos; }
    void pass(const std::string &name)
    {
        passed++;
        printf("ok      %s\n", name.c_str());
    }
    void fail(const std::string &name, const std::string &why)
    {
        failed++;
        printf("FAILED  %s: %s\n", name.c_str(), why.c_str());
    }
    void skip(const std::string &name, const std::string &why)
    {
        skipped++;
        printf("skipped %s: %s\n", name.c_str(), why.c_str());
    }
};

std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* "rtol 1e-4 atol 2e-4": |x - want| <= atol + rtol * |want|. Words that are not understood leave the defaults. */
struct Tolerance {
    double           rtol = 0, atol = 0;
    static Tolerance parse(const std::string &text);
};

/* "" when all agree; else the worst element. NaN never agrees. */
std::string compare(const float *got, const float *want, size_t n, const Tolerance &tolerance);

/* The tensors of one safetensors file. */
class Tensors {
  public:
    ~Tensors() { weir_tensor_directory_close(directory_); }
    bool                 open(const std::string &path, std::string *why);
    bool                 has(const std::string &name) const { return weir_tensor_directory_find(directory_, name.c_str()) != nullptr; }
    std::vector<float>   floats(const std::string &name) const;   /* empty when absent */
    std::vector<int32_t> integers(const std::string &name) const; /* empty when absent */
    std::vector<int64_t> shape(const std::string &name) const;

  private:
    weir_tensor_directory *directory_ = nullptr;
};

std::vector<std::string> find_files(const std::string &folder, const std::string &name); /* recursively, sorted */

/* The parts. Each takes every case of its format below `folder`. */
void run_models(const std::string &folder, Counts *counts);       /* golden.json         */
void run_quant_blocks(const std::string &folder, Counts *counts); /* quant_blocks.*      */
void run_samplers(const std::string &folder, Counts *counts);     /* samplers.*          */

} // namespace golden
