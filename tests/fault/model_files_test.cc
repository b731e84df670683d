// What a model is read from: checkpoints, architectures and run configurations.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "engine/config/config.h"
#include "engine/config/toml.h"
#include "engine/formats/tensor_directory.h"
#include "engine/model/arch.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"

namespace {

const std::string models = "tests/golden/models/";

/* A digest of what an operation found, kept without memory of its own. */
struct Seen {
    uint64_t sum = 0, expected = 0;
    void add(const void *bytes, size_t n)
    {
        for (size_t i = 0; i < n; i++)
            sum = (sum ^ static_cast<const unsigned char *>(bytes)[i]) * 0x100000001b3;
    }
    void text(const char *text) { add(text, strlen(text)); }
};

/* An operation whose result is the same whenever it returns OK. */
fault::Operation seeing(std::shared_ptr<Seen> seen, std::function<weir_status(weir_error *)> run)
{
    fault::Operation out;
    out.run = run;
    out.prepare = [seen] { seen->sum = 0; };
    out.check = [seen](weir_status status) {
        if (status != WEIR_OK) return;
        if (seen->expected == 0) seen->expected = seen->sum;
        EXPECT_EQ(seen->sum, seen->expected) << "a fault changed what was read";
        EXPECT_NE(seen->sum, 0u) << "nothing was read";
    };
    return out;
}

void look_at(Seen *seen, const weir_tensor_directory *directory)
{
    seen->text(weir_tensor_directory_path(directory));
    seen->text(weir_tensor_directory_folder(directory));
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        seen->text(tensor->name);
        seen->add(tensor->shape, sizeof tensor->shape);
        seen->add(tensor->data, tensor->bytes < 16 ? tensor->bytes : 16);
    }
    for (const char *const key : { "general.architecture", "model_type", "hidden_act" }) {
        weir_meta meta;
        if (weir_tensor_directory_meta(directory, key, &meta)) seen->text(meta.string);
    }
}

fault::Operation opening(const std::string &path)
{
    const auto seen = std::make_shared<Seen>();
    return seeing(seen, [=](weir_error *error) {
        weir_tensor_directory *directory = nullptr;
        WEIR_TRY(weir_tensor_directory_open(&directory, path.c_str(), error));
        look_at(seen.get(), directory);
        weir_tensor_directory_close(directory);
        return WEIR_OK;
    });
}

class Checkpoint : public ::testing::TestWithParam<const char *> {};

TEST_P(Checkpoint, Opens)
{
    const fault::Operation operation = opening(models + GetParam());
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

INSTANTIATE_TEST_SUITE_P(
    All, Checkpoint,
    ::testing::Values("qwen3/qwen3-bf16.gguf", "qwen3/model.safetensors", "qwen3", "qwen3-untied")
);

/* A folder with one GGUF file, and the first file of two. */
class Gguf : public ::testing::Test {
  protected:
    std::string folder_ = std::string(getenv("TEST_TMPDIR")) + "/gguf";

    template <typename Number> static std::string little(Number n)
    {
        return std::string(reinterpret_cast<const char *>(&n), sizeof n);
    }
    static std::string text(const std::string &bytes)
    {
        return little<uint64_t>(bytes.size()) + bytes;
    }
    static std::string number(const std::string &key, uint32_t type, const std::string &value)
    {
        return text(key) + little(type) + value;
    }
    static std::string part(uint16_t i, const std::string &tensor)
    {
        std::string bytes =
            "GGUF" + little<uint32_t>(3) + little<uint64_t>(1) + little<uint64_t>(4) +
            number("general.architecture", 8, text("qwen3")) + number("split.no", 2, little(i)) +
            number("split.count", 2, little<uint16_t>(2)) +
            number("split.tensors.count", 5, little<int32_t>(2)) + text(tensor) +
            little<uint32_t>(1) + little<uint64_t>(8) + little<uint32_t>(0) + little<uint64_t>(0);
        bytes.resize((bytes.size() + 31) / 32 * 32);
        return bytes + std::string(32, static_cast<char>('a' + i));
    }
};

TEST_F(Gguf, OpensAFolder)
{
    const fault::Files file = fault::files_of(models + "qwen3");
    fault::make_folder(folder_, { { "a.gguf", file.at("qwen3-bf16.gguf") } });
    const fault::Operation operation = opening(folder_);
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

TEST_F(Gguf, OpensASplitSet)
{
    fault::make_folder(
        folder_,
        { { "m-00001-of-00002.gguf", part(0, "a") }, { "m-00002-of-00002.gguf", part(1, "b") } }
    );
    const fault::Operation operation = opening(folder_ + "/m-00001-of-00002.gguf");
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

/* ---- TOML ------------------------------------------------------------------------------------ */
TEST(Toml, Parses)
{
    static const char text[] = "a = 1\n[b.c]\nd = [1.5, \"a long text that is no short string\"]\n"
                               "[[e]]\nf = { g = true, h = 'h' }\n[[e]]\n";
    const auto seen = std::make_shared<Seen>();
    fault::every_allocation(seeing(seen, [=](weir_error *error) {
        weir_toml *toml = nullptr;
        WEIR_TRY(weir_toml_parse(&toml, text, sizeof text - 1, "a.toml", error));
        const weir_toml_node *const e = weir_toml_get(weir_toml_root(toml), "e");
        seen->sum = 1 + weir_toml_size(e);
        weir_toml_close(toml);
        return WEIR_OK;
    }));
}

TEST(Toml, RefusesWhatIsWrong)
{
    static const char text[] = "a_key_that_is_no_short_string = [1, \"another such text\", oh no\n";
    fault::Operation operation;
    operation.run = [](weir_error *error) {
        weir_toml *toml = nullptr;
        const weir_status status = weir_toml_parse(&toml, text, sizeof text - 1, "a.toml", error);
        return status == WEIR_ECONFIG ? WEIR_OK
               : status == WEIR_OK    ? weir_error_set(error, WEIR_EINVAL, "it was parsed")
                                      : status;
    };
    fault::every_allocation(operation);
}

TEST(Config, Loads)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/config";
    fault::make_folder(
        folder, { { "run.toml", "[model]\ncontext = 777\n[kv]\nformat = \"q8_0\"\n"
                                "[kv.policy]\nname = \"h2o\"\nbudget = 64\n" } }
    );
    const auto config = std::make_unique<weir_config>();
    const auto seen = std::make_shared<Seen>();
    const char *const folders[] = { folder.c_str() };
    const weir_config_search search = { nullptr, folders, 1 };
    weir_config *const into = config.get();
    const fault::Operation operation = seeing(seen, [=](weir_error *error) {
        weir_config_default(into);
        WEIR_TRY(weir_config_load(into, "run", &search, error));
        WEIR_TRY(weir_config_assign(into, "kv.policy.budget=128", error));
        weir_buffer text = {};
        weir_status status = weir_config_print(into, &text);
        if (status == WEIR_OK) seen->text(text.data);
        weir_buffer_free(&text);
        return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "cannot print");
    });
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

TEST(Architectures, Open)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/arch";
    std::string text = fault::files_of("configs/arch").at("qwen3.toml");
    text.replace(text.find("\"qwen3\""), 7, "\"acme\"");
    fault::make_folder(folder, { { "acme.toml", text } });
    weir_error error = {};
    weir_tensor_directory *directory = nullptr;
    ASSERT_EQ(weir_tensor_directory_open(&directory, (models + "qwen3").c_str(), &error), WEIR_OK);
    const auto seen = std::make_shared<Seen>();
    const fault::Operation operation = seeing(seen, [=](weir_error *why) {
        weir_arch_set *set = nullptr;
        const weir_arch *arch = nullptr;
        WEIR_TRY(weir_arch_set_open(&set, folder.c_str(), nullptr, why));
        weir_status status = weir_arch_find(&arch, set, "acme", directory, why);
        if (status == WEIR_OK) seen->text(arch->name);
        if (status == WEIR_OK) status = weir_arch_match(&arch, set, directory, why);
        if (status == WEIR_OK) seen->text(arch->name);
        weir_arch_set_close(set);
        return status;
    });
    fault::every_file_call(operation);
    fault::every_allocation(operation);
    weir_tensor_directory_close(directory);
}

} // namespace
