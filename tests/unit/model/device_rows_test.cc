// A device that has no kernel for everything, as a GPU has none: what it cannot do is found before
// a step, and all else is done.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/model/model.h"
#include "offload/device.h"
#include "offload/dispatch.h"
#include "offload/table.h"

namespace {

/* Reads K in f16 only, like the single source on GPUs. */
const char *only_f16(const weir_caps *, const void *args)
{
    return static_cast<const weir_attention_mass_args *>(args)->k_format == WEIR_KV_F16
               ? nullptr
               : "reads KV in f16";
}

struct Close {
    void operator()(weir_arch_set *archs) const { weir_arch_set_close(archs); }
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
    void operator()(weir_device *device) const { weir_device_close(device); }
    void operator()(weir_stream *stream) const { weir_stream_close(stream); }
    void operator()(weir_model *model) const { weir_model_close(model); }
};

TEST(DeviceRows, AModelIsPlannedWithoutMassWhereNoKernelShowsIt)
{
    weir_error error = {};
    char why[200];
    weir_device *device = nullptr;
    weir_stream *stream = nullptr;
    weir_arch_set *archs = nullptr;
    weir_kernel mass = {};
    std::vector<const weir_kernel *> rows;
    size_t n;
    const weir_table_row *const table = weir_table_rows(&n);
    for (size_t i = 0; i < n; i++) {
        const weir_kernel *const row = table[i].kernel;
        if (std::string(row->name).rfind("ref.", 0) != 0) continue;
        if (row->op == WEIR_OP_ATTENTION_MASS) mass = *row;
        if (row->op != WEIR_OP_ATTENTION_MASS) rows.push_back(row);
    }
    ASSERT_NE(mass.run, nullptr);
    mass.reject = only_f16;
    rows.push_back(&mass);
    weir_device_check_with(rows.data(), rows.size(), 0);
    ASSERT_EQ(weir_device_open(&device, "checked", why, sizeof why, &error), WEIR_OK) << error.text;
    weir_device_check_with(nullptr, 0, 0);
    const std::unique_ptr<weir_device, Close> close_device(device);
    weir_stream_options options = {};
    options.device = device;
    options.n_threads = 1;
    options.isa = "v2"; /* weights in a layout that the rows read, whatever this machine prefers */
    ASSERT_EQ(weir_stream_open(&stream, &options, &error), WEIR_OK) << error.text;
    const std::unique_ptr<weir_stream, Close> close_stream(stream);
    ASSERT_EQ(weir_arch_set_open(&archs, nullptr, nullptr, &error), WEIR_OK) << error.text;
    const std::unique_ptr<weir_arch_set, Close> close_archs(archs);

    for (const char *const path : { "tests/golden/models/tq", "tests/golden/models/qwen3" }) {
        weir_tensor_directory *directory = nullptr;
        weir_model *model = nullptr;
        const weir_arch *arch = nullptr;
        ASSERT_EQ(weir_tensor_directory_open(&directory, path, &error), WEIR_OK) << error.text;
        const std::unique_ptr<weir_tensor_directory, Close> close_directory(directory);
        ASSERT_EQ(weir_arch_match(&arch, archs, directory, &error), WEIR_OK) << error.text;
        weir_model_settings settings = {};
        settings.activations = WEIR_ACTIVATIONS_F32;
        settings.kv_format = { WEIR_KV_F16, WEIR_KV_F16 };
        ASSERT_EQ(weir_model_bind(&model, directory, arch, stream, &settings, &error), WEIR_OK)
            << error.text;
        const std::unique_ptr<weir_model, Close> close_model(model);
        for (const weir_kv_format format : { WEIR_KV_F16, WEIR_KV_Q8_0 }) {
            const std::vector<weir_kv_pair> formats(
                (size_t)weir_model_kv_layers(model), weir_kv_pair{ format, format }
            );
            weir_workspace_limits limits = {};
            weir_stream_memory planned = {};
            limits.rows = 64, limits.segments = limits.logits = 1, limits.context = 256,
            limits.formats = formats.data(), limits.evicts = true;
            EXPECT_EQ(weir_model_shows_mass(model, formats.data(), {}), format == WEIR_KV_F16)
                << path;
            EXPECT_EQ(weir_workspace_scratch(&planned, model, &limits, &error), WEIR_OK)
                << path << ": " << error.text;
            /* masses are handed over where they are shown, and only there */
            EXPECT_EQ(planned.device > 0, format == WEIR_KV_F16) << path;
        }
    }
}

} // namespace
