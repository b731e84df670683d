#include "tests/golden/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "offload/weights.h"

namespace golden {

std::string format(const char *text, ...)
{
    char out[2048];
    va_list list;
    va_start(list, text);
    vsnprintf(out, sizeof out, text, list);
    va_end(list);
    return out;
}

/* ---- comparing ------------------------------------------------------------------------------- */

bool number_after(const std::string &text, const std::string &word, double *out)
{
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        if (at > 0 && isalnum(static_cast<unsigned char>(text[at - 1]))) continue;
        const char *const from = text.c_str() + at + word.size();
        char *end;
        *out = strtod(from, &end);
        if (end != from) return true;
    }
    return false;
}

Tolerance Tolerance::parse(const std::string &text)
{
    Tolerance t;
    double value;
    if (number_after(text, "rtol ", &value)) t.rtol = value;
    if (number_after(text, "atol ", &value)) t.atol = value;
    return t;
}

void Check::fail(const std::string &why)
{
    if (why_.empty()) why_ = why.empty() ? "failed" : why;
}

void Check::close(
    const std::string &what, const std::vector<float> &got, const std::vector<float> &want,
    const Tolerance &tolerance
)
{
    if (got.size() != want.size())
        return fail(format("%s has %zu values, want %zu", what.c_str(), got.size(), want.size()));
    double largest = 0, worst = -1;
    size_t at = 0;
    for (const float value : want)
        if (std::isfinite(value))
            largest = std::max(largest, std::fabs(static_cast<double>(value)));
    for (size_t i = 0; i < got.size(); i++) {
        const double w = static_cast<double>(want[i]), g = static_cast<double>(got[i]);
        const double allowed =
            tolerance.atol + tolerance.rtol * std::fabs(w) + tolerance.rtol_of_largest * largest;
        const double off = std::fabs(g - w);
        const double share = g == w                              ? 0
                             : std::isfinite(off) && allowed > 0 ? off / allowed
                                                                 : INFINITY;
        if (share > worst) {
            worst = share;
            at = i;
        }
    }
    compared_ += got.size();
    if (worst > 1)
        fail(format(
            "%s: value %zu is %.9g, want %.9g (%.1f times the tolerance)", what.c_str(), at,
            static_cast<double>(got[at]), static_cast<double>(want[at]), worst
        ));
    if (worst > worst_) {
        worst_ = worst;
        worst_name_ = what;
    }
}

void Check::equal(
    const std::string &what, const std::vector<int32_t> &got, const std::vector<int32_t> &want
)
{
    if (got.size() != want.size())
        return fail(format("%s has %zu values, want %zu", what.c_str(), got.size(), want.size()));
    for (size_t i = 0; i < got.size(); i++)
        if (got[i] != want[i])
            fail(format("%s: value %zu is %d, want %d", what.c_str(), i, got[i], want[i]));
    compared_ += got.size();
}

std::string Check::summary() const
{
    if (worst_ == 0) return format("%zu values, all equal", compared_);
    return format(
        "%zu values, worst error %.2g of the tolerance (%s)", compared_, worst_, worst_name_.c_str()
    );
}

/* ---- cases ----------------------------------------------------------------------------------- */

void Counts::pass(const std::string &name, const std::string &how)
{
    passed++;
    printf("ok      %s: %s\n", name.c_str(), how.c_str());
}

void Counts::fail(const std::string &name, const std::string &why)
{
    failed++;
    printf("FAILED  %s: %s\n", name.c_str(), why.c_str());
}

void Counts::skip(const std::string &name, const std::string &why)
{
    skipped++;
    skips.insert(name);
    printf("skipped %s: %s\n", name.c_str(), why.c_str());
}

void Counts::run(const std::string &name, const std::function<void(Check *)> &body)
{
    if (!wants(name)) return;
    Check check;
    try {
        body(&check);
    } catch (const std::exception &error) {
        check.fail(error.what());
    }
    if (!check.failed() && check.compared() == 0) check.fail("there was nothing to compare");
    if (check.failed())
        fail(name, check.why());
    else
        pass(name, check.summary());
}

/* ---- JSON ------------------------------------------------------------------------------------ */

Document::Document(const std::string &path)
{
    json_error_t error;
    root_ = json_load_file(path.c_str(), 0, &error);
    if (root_ == nullptr) throw Broken(path + ": " + error.text);
}

double number_at(const json_t *object, const char *key, double otherwise)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

std::string string_at(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_string(value) ? json_string_value(value) : "";
}

/* ---- tensors --------------------------------------------------------------------------------- */

bool Tensors::open(const std::string &path, std::string *why)
{
    weir_error error = {};
    if (weir_tensor_directory_open(&directory_, path.c_str(), &error) == WEIR_OK) return true;
    *why = error.text;
    return false;
}

const weir_tensor *Tensors::find(const std::string &name) const
{
    return directory_ == nullptr ? nullptr : weir_tensor_directory_find(directory_, name.c_str());
}

std::vector<std::string> Tensors::names(const std::string &prefix) const
{
    std::vector<std::string> out;
    for (size_t i = 0; directory_ != nullptr && i < weir_tensor_directory_count(directory_); i++) {
        const std::string name = weir_tensor_directory_at(directory_, i)->name;
        if (name.compare(0, prefix.size(), prefix) == 0) out.push_back(name);
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<std::string> Tensors::names() const { return names(""); }

std::vector<int64_t> Tensors::shape(const std::string &name) const
{
    const weir_tensor *const tensor = find(name);
    if (tensor == nullptr) return {};
    return std::vector<int64_t>(tensor->shape, tensor->shape + tensor->n_dims);
}

std::string Tensors::dtype_name(const std::string &name) const
{
    const weir_tensor *const tensor = find(name);
    return tensor == nullptr ? "" : weir_dtype_of(tensor->dtype).name;
}

static int64_t count(const weir_tensor &tensor)
{
    int64_t n = 1;
    for (int i = 0; i < tensor.n_dims; i++)
        n *= tensor.shape[i]; /* the directory checked that it fits */
    return n;
}

template <typename T> static void copy_whole(const weir_tensor &tensor, std::vector<float> *out)
{
    for (size_t i = 0; i < out->size(); i++) {
        T value;
        memcpy(&value, tensor.data + i * sizeof value, sizeof value);
        (*out)[i] = static_cast<float>(value);
    }
}

std::vector<float> Tensors::floats(const std::string &name) const
{
    const weir_tensor *const tensor = find(name);
    if (tensor == nullptr) return {};
    const int64_t n = count(*tensor);
    std::vector<float> out(static_cast<size_t>(n));
    switch (tensor->dtype) {
    case WEIR_U8:
    case WEIR_BOOL: copy_whole<uint8_t>(*tensor, &out); return out;
    case WEIR_I8: copy_whole<int8_t>(*tensor, &out); return out;
    case WEIR_U16: copy_whole<uint16_t>(*tensor, &out); return out;
    default: break;
    }
    if (weir_dequantise(out.data(), tensor->data, tensor->dtype, n) != WEIR_OK) return {};
    return out;
}

std::vector<int32_t> Tensors::integers(const std::string &name) const
{
    const weir_tensor *const tensor = find(name);
    if (tensor == nullptr || tensor->dtype != WEIR_I32) return {};
    std::vector<int32_t> out(tensor->bytes / sizeof(int32_t));
    if (!out.empty()) memcpy(out.data(), tensor->data, tensor->bytes);
    return out;
}

const weir_tensor &Tensors::need(const std::string &name, weir_dtype dtype) const
{
    const weir_tensor *const tensor = find(name);
    if (tensor == nullptr) throw Broken("there is no tensor " + name);
    if (tensor->dtype != dtype)
        throw Broken(
            name + " is " + weir_dtype_of(tensor->dtype).name + ", want " +
            weir_dtype_of(dtype).name
        );
    return *tensor;
}

std::vector<float> Tensors::need_floats(const std::string &name) const
{
    std::vector<float> out = floats(name);
    if (out.empty()) throw Broken("there is no tensor " + name + " of numbers");
    return out;
}

std::vector<int32_t> Tensors::need_integers(const std::string &name) const
{
    std::vector<int32_t> out = integers(name);
    if (out.empty()) throw Broken("there is no tensor " + name + " of i32");
    return out;
}

std::vector<int64_t> Tensors::need_shape(const std::string &name, size_t n_dims) const
{
    const std::vector<int64_t> out = shape(name);
    if (find(name) == nullptr) throw Broken("there is no tensor " + name);
    if (out.size() != n_dims)
        throw Broken(format("%s has %zu dimensions, want %zu", name.c_str(), out.size(), n_dims));
    for (const int64_t n : out)
        if (n <= 0) throw Broken(name + " is empty");
    return out;
}

std::vector<float> Tensors::need_floats(const std::string &name, const std::vector<int64_t> &want)
    const
{
    const std::vector<int64_t> got = need_shape(name, want.size());
    for (size_t i = 0; i < want.size(); i++)
        if (got[i] != want[i])
            throw Broken(format(
                "%s has %lld in dimension %zu, want %lld", name.c_str(),
                static_cast<long long>(got[i]), i, static_cast<long long>(want[i])
            ));
    return need_floats(name);
}

/* ---- reference values ------------------------------------------------------------------------ */

void Reference::compare(
    Check *check, const std::string &name, const std::vector<float> &got, const std::string &how
)
{
    mark(name);
    if (tensors.has(name))
        check->close(
            how.empty() ? name : how + " " + name, got, tensors.floats(name), tolerance(name)
        );
}

void Reference::compare(
    Check *check, const std::string &name, const std::vector<int32_t> &got, const std::string &how
)
{
    mark(name);
    if (tensors.has(name))
        check->equal(how.empty() ? name : how + " " + name, got, tensors.integers(name));
}

std::vector<std::string> Reference::left() const
{
    std::vector<std::string> out;
    for (const std::string &name : tensors.names())
        if (!compared(name) && !tolerance_text(name).empty()) out.push_back(name);
    return out;
}

/* ---- files ----------------------------------------------------------------------------------- */

namespace fs = std::filesystem;

static void collect(
    const fs::path &folder, std::set<fs::path> *entered, std::vector<std::string> *out
)
{
    std::error_code error;
    if (!entered->insert(fs::canonical(folder, error)).second || error) return;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (at->is_directory(ignored))
            collect(at->path(), entered, out);
        else
            out->push_back(at->path().string());
    }
}

std::vector<std::string> all_files(const std::string &folder)
{
    std::set<fs::path> entered;
    std::vector<std::string> out;
    collect(folder, &entered, &out);
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<std::string> find_files(const std::string &folder, const std::string &name)
{
    std::vector<std::string> found;
    for (const std::string &path : all_files(folder))
        if (fs::path(path).filename() == name) found.push_back(path);
    return found;
}

std::string folder_of(const std::string &path) { return fs::path(path).parent_path().string(); }

std::string folder_name(const std::string &path)
{
    const fs::path folder = fs::path(path).parent_path().lexically_normal();
    const fs::path name =
        folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
    return name.string();
}

} // namespace golden
