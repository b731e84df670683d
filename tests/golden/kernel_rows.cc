#include "tests/golden/kernel_rows.h"

#include <cstdlib>
#include <memory>

#include "offload/table.h"
#include "tests/golden/golden.h"

namespace golden {

weir_stream *stream()
{
    struct Close {
        void operator()(weir_stream *opened) const { weir_stream_close(opened); }
    };
    static std::unique_ptr<weir_stream, Close> one;
    if (one) return one.get();
    weir_stream *opened = nullptr;
    weir_error error = {};
    const weir_stream_options options = {};
    if (weir_stream_open(&opened, &options, &error) != WEIR_OK) throw Broken(error.text);
    one.reset(opened);
    return opened;
}

bool Row::run(const void *args)
{
    if (weir_kernel_reject(stream(), kernel_, args) != nullptr) return false;
    const weir_status status = weir_kernel_run(stream(), kernel_, args);
    if (status != WEIR_OK)
        throw Broken(format("%s ended with status %d", kernel_->name, static_cast<int>(status)));
    ran_ = true;
    return true;
}

void each_row(weir_op op, const std::function<void(Row *)> &body)
{
    bool any = false;
    size_t n;
    const weir_table_row *const table = weir_table_rows(&n);
    for (size_t i = 0; i < n; i++) {
        if (table[i].kernel->op != op) continue;
        Row row(table[i].kernel);
        body(&row);
        any = any || row.ran();
    }
    if (!any) throw Broken(std::string("no kernel of ") + weir_op_name(op) + " takes these sizes");
}

Weight::Weight(const std::vector<float> &values, int64_t n_out, int64_t n_in)
{
    const weir_matrix_source source = { values.data(), n_out, n_in, WEIR_F32, false };
    weir_error error = {};
    if (weir_weight_plan(&weight_, stream(), &source, WEIR_ACTIVATIONS_F32, &error) != WEIR_OK)
        throw Broken(error.text);
    memory_ = std::aligned_alloc(64, (weight_.bytes + 63) / 64 * 64);
    if (memory_ == nullptr) throw Broken("no memory");
    if (weir_weight_pack(&weight_, stream(), &source, memory_, &error) == WEIR_OK) return;
    std::free(memory_);
    throw Broken(error.text);
}

Weight::~Weight()
{
    weir_weight_release(&weight_);
    std::free(memory_);
}

std::vector<float> multiply(const std::vector<float> &x, const Weight &weight)
{
    const int64_t n_in = weight.get()->n_in, n_out = weight.get()->n_out,
                  n_rows = static_cast<int64_t>(x.size()) / n_in;
    std::vector<float> out(static_cast<size_t>(n_rows * n_out));
    weir_matmul_args args = {};
    args.x = x.data();
    args.n_rows = n_rows;
    args.n_in = args.x_stride = n_in;
    args.outputs[0] = { weight.get(), out.data(), nullptr, n_out, false };
    args.n_outputs = 1;
    if (weir_matmul(stream(), &args) != WEIR_OK) throw Broken("the product was refused");
    return out;
}

} // namespace golden
