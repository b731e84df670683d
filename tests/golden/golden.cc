#include "tests/golden/golden.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "offload/weights.h"

namespace golden {

std::string format(const char *text, ...)
{
    char    out[2048];
    va_list list;
    va_start(list, text);
    vsnprintf(out, sizeof out, text, list);
    va_end(list);
    return out;
}

static double number_after(const std::string &text, const char *word)
{
    const size_t at = text.find(word);
    return at == std::string::npos ? 0.0 : std::strtod(text.c_str() + at + strlen(word), nullptr);
}

Tolerance Tolerance::parse(const std::string &text) { return { number_after(text, "rtol "), number_after(text, "atol ") }; }

std::string compare(const float *got, const float *want, size_t n, const Tolerance &tolerance)
{
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const double allowed = tolerance.atol + tolerance.rtol * std::fabs(static_cast<double>(want[i]));
        const double off = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
        const double share = off <= allowed ? 0 : std::isnan(off) || allowed == 0 ? INFINITY : off / allowed;
        if (share > worst) {
            worst = share;
            at = i;
        }
    }
    if (worst == 0) return "";
    return format("element %zu is %.9g, want %.9g (%.1f times the tolerance)", at, static_cast<double>(got[at]),
                  static_cast<double>(want[at]), worst);
}

bool Tensors::open(const std::string &path, std::string *why)
{
    weir_error error = {};
    if (weir_tensor_directory_open(&directory_, path.c_str(), &error) == WEIR_OK) return true;
    *why = error.text;
    return false;
}

std::vector<int64_t> Tensors::shape(const std::string &name) const
{
    const weir_tensor *const tensor = weir_tensor_directory_find(directory_, name.c_str());
    if (tensor == nullptr) return {};
    return std::vector<int64_t>(tensor->shape, tensor->shape + tensor->n_dims);
}

std::vector<float> Tensors::floats(const std::string &name) const
{
    const weir_tensor *const tensor = weir_tensor_directory_find(directory_, name.c_str());
    if (tensor == nullptr) return {};
    int64_t n = 1;
    for (int i = 0; i < tensor->n_dims; i++) n *= tensor->shape[i];
    std::vector<float> out(static_cast<size_t>(n));
    if (weir_dequantise(out.data(), tensor->data, tensor->dtype, n) != WEIR_OK) return {};
    return out;
}

std::vector<int32_t> Tensors::integers(const std::string &name) const
{
    const weir_tensor *const tensor = weir_tensor_directory_find(directory_, name.c_str());
    if (tensor == nullptr || tensor->dtype != WEIR_I32) return {};
    std::vector<int32_t> out(tensor->bytes / sizeof(int32_t));
    memcpy(out.data(), tensor->data, tensor->bytes);
    return out;
}

std::vector<std::string> find_files(const std::string &folder, const std::string &name)
{
    std::vector<std::string> found;
    std::error_code          ignored;
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(folder, std::filesystem::directory_options::follow_directory_symlink, ignored)) {
        if (entry.path().filename() == name) found.push_back(entry.path().string());
    }
    std::sort(found.begin(), found.end());
    return found;
}

} // namespace golden
