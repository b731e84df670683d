/* tests/golden/golden.h - what every part of the golden runner shares: cases and their count,
 * comparisons, tensors of a safetensors file and what its JSON says of them. Nothing here knows a
 * size or a list of files: all comes from the folder. */
#pragma once
#include <jansson.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/formats/tensor_directory.h"

namespace golden {

std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* A folder that does not keep its format: the message becomes the failure of the case. */
struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* |x - want| <= atol + rtol * |want| + rtol_of_largest * max|want|; all zero: equal. */
struct Tolerance {
    double rtol = 0, atol = 0, rtol_of_largest = 0;
    /* "rtol 1e-4 atol 2e-4"; words that are not understood leave zero */
    static Tolerance parse(const std::string &text);
};

/* The comparisons of one case. The first failure stays; the worst error is kept as a share of what
 * was allowed. */
class Check {
  public:
    void fail(const std::string &why);
    bool failed() const { return !why_.empty(); }
    const std::string &why() const { return why_; }
    void close(
        const std::string &what, const std::vector<float> &got, const std::vector<float> &want,
        const Tolerance &tolerance
    );
    void equal(
        const std::string &what, const std::vector<int32_t> &got, const std::vector<int32_t> &want
    );
    size_t compared() const { return compared_; }
    std::string summary() const; /* "worst 0.12 of the tolerance (G8.o)" */

  private:
    std::string why_, worst_name_;
    double worst_ = 0;
    size_t compared_ = 0; /* values */
};

/* One line per case, and the sum at the end. */
struct Counts {
    int passed = 0, failed = 0, skipped = 0;
    std::string filter; /* only cases whose name holds this text */
    std::string device = "cpu"; /* kernels.device of the models */
    std::set<std::string> known; /* files that some part has read or answered for */
    std::set<std::string> skips; /* names of cases that were skipped */

    bool wants(const std::string &name) const
    {
        return filter.empty() || name.find(filter) != std::string::npos;
    }
    void pass(const std::string &name, const std::string &how);
    void fail(const std::string &name, const std::string &why);
    void skip(const std::string &name, const std::string &why);
    /* Runs a case and prints its line; whatever it throws is its failure, and so is a case that
     * compared nothing. */
    void run(const std::string &name, const std::function<void(Check *)> &body);
};

/* A JSON file; throws Broken. */
class Document {
  public:
    explicit Document(const std::string &path);
    ~Document() { json_decref(root_); }
    Document(const Document &) = delete;
    Document &operator=(const Document &) = delete;
    const json_t *root() const { return root_; }
    const json_t *operator[](const char *key) const { return json_object_get(root_, key); }

  private:
    json_t *root_;
};

double number_at(const json_t *object, const char *key, double otherwise);
std::string string_at(const json_t *object, const char *key); /* "" when absent */
/* The number after a word of a text ("eps 1e-06"); false when there is none. */
bool number_after(const std::string &text, const std::string &word, double *out);

/* The tensors of one safetensors file. */
class Tensors {
  public:
    Tensors() = default;
    ~Tensors() { weir_tensor_directory_close(directory_); }
    Tensors(const Tensors &) = delete;
    Tensors &operator=(const Tensors &) = delete;

    bool open(const std::string &path, std::string *why);
    bool has(const std::string &name) const
    {
        return weir_tensor_directory_find(directory_, name.c_str()) != nullptr;
    }
    std::vector<std::string> names() const; /* sorted */
    std::vector<std::string> names(const std::string &prefix) const; /* those that begin with it */
    std::vector<float> floats(const std::string &name
    ) const; /* numbers, or u8, i8, u16, bool; empty when absent */
    std::vector<int32_t> integers(const std::string &name) const; /* I32; empty when absent */
    std::vector<int64_t> shape(const std::string &name) const; /* empty when absent */
    std::string dtype_name(const std::string &name) const; /* "f32"; empty when absent */
    /* The same, for what a case cannot do without: throw Broken. n_dims: how many the shape must
     * have, none of them 0. */
    const weir_tensor &need(const std::string &name, weir_dtype dtype) const;
    std::vector<float> need_floats(const std::string &name) const;
    std::vector<int32_t> need_integers(const std::string &name) const;
    std::vector<int64_t> need_shape(const std::string &name, size_t n_dims) const;
    /* floats, and its shape is that of the case. */
    std::vector<float> need_floats(const std::string &name, const std::vector<int64_t> &shape)
        const;

  private:
    const weir_tensor *find(const std::string &name) const;
    weir_tensor_directory *directory_ = nullptr;
};

/* Reference values: tensors, and a JSON object that holds meaning and tolerance of each. Remembers
 * what was compared, so that what no case compared can be told. */
class Reference {
  public:
    Tensors tensors;
    const json_t *info = nullptr; /* name -> { tolerance, meaning }; borrowed */

    std::string meaning(const std::string &name) const
    {
        return string_at(json_object_get(info, name.c_str()), "meaning");
    }
    std::string tolerance_text(const std::string &name) const
    {
        return string_at(json_object_get(info, name.c_str()), "tolerance");
    }
    Tolerance tolerance(const std::string &name) const
    {
        return Tolerance::parse(tolerance_text(name));
    }
    /* Absent values are no failure here: parts of a folder are optional. */
    void compare(
        Check *check, const std::string &name, const std::vector<float> &got,
        const std::string &how = ""
    );
    void compare(
        Check *check, const std::string &name, const std::vector<int32_t> &got,
        const std::string &how = ""
    );
    void mark(const std::string &name) { compared_.insert(name); }
    bool compared(const std::string &name) const { return compared_.count(name) > 0; }
    /* Those with a tolerance that no case compared. */
    std::vector<std::string> left() const;

  private:
    std::set<std::string> compared_;
};

/* All files below a folder, sorted; folders that cannot be read are left out, and each is entered
 * once whatever links there are. */
std::vector<std::string> all_files(const std::string &folder);
std::vector<std::string> find_files(const std::string &folder, const std::string &name);
std::string folder_of(const std::string &path);
/* The name of the folder that holds a file, for the names of cases. */
std::string folder_name(const std::string &path);

/* The parts. Each takes every case of its format below `folder`. */
void run_models(const std::string &folder, Counts *counts); /* golden.json    */
void run_modules(const std::string &folder, Counts *counts); /* modules.*      */
void run_quant_blocks(const std::string &folder, Counts *counts); /* quant_blocks.* */
void run_samplers(const std::string &folder, Counts *counts); /* samplers.*     */
void run_kv(const std::string &folder, Counts *counts); /* index.json     */

} // namespace golden
