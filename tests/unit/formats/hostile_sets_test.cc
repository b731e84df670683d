/* Checkpoints of several files, and paths that lead to no checkpoint. */
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/unit/formats/hostile.h"

namespace hostile {
namespace {

class Sets : public ::testing::Test {
  protected:
    void SetUp() override
    {
        folder = string(getenv("TEST_TMPDIR")) + "/set";
        std::filesystem::remove_all(folder);
        std::filesystem::create_directories(folder);
    }

    void write(const string &name, const string &bytes)
    {
        std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
    }

    string open(const string &name)
    {
        weir_tensor_directory *directory = nullptr;
        weir_error error = {};
        const string path = name.empty() ? folder : folder + "/" + name;
        const weir_status status = weir_tensor_directory_open(&directory, path.c_str(), &error);
        probe_status(status, &error);
        opened.reset(directory);
        return status == WEIR_OK ? "" : error.text;
    }

    string folder;
    Directory opened;
};

string split(int number, int count, int tensors, const std::vector<string> &names)
{
    std::vector<string> entries;
    for (size_t i = 0; i < names.size(); i++) entries.push_back(entry(names[i], { 8 }, 0, 32 * i));
    return gguf(
        { key("split.no", U16, little((uint16_t)number)),
          key("split.count", U16, little((uint16_t)count)),
          key("split.tensors.count", I32, u32((uint32_t)tensors)),
          key("file", I32, u32((uint32_t)number)) },
        entries, 32 * names.size()
    );
}

TEST_F(Sets, SplitGguf)
{
    write("m-00001-of-00003.gguf", split(0, 3, 3, {}));
    write("m-00002-of-00003.gguf", split(1, 3, 3, { "a", "b" }));
    EXPECT_SAYS(open(""), "m-00003-of-00003.gguf: cannot open");
    write("m-00003-of-00003.gguf", split(2, 3, 3, { "c" }));
    for (const char *path : { "", "m-00001-of-00003.gguf" }) {
        EXPECT_EQ(open(path), "");
        ASSERT_EQ(weir_tensor_directory_count(opened.get()), 3u);
        EXPECT_EQ(weir_tensor_directory_find(opened.get(), "c")->file, 2);
        weir_meta meta;
        ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "file", &meta));
        EXPECT_EQ(meta.integer, 0);
    }
    EXPECT_SAYS(open("m-00002-of-00003.gguf"), "it is file 2 of 3: give the first file");
    write("m-00003-of-00003.gguf", split(1, 3, 3, { "c" }));
    EXPECT_SAYS(open(""), "it is file 2 of 3 by its keys, not 3 of 3");
    write("m-00003-of-00003.gguf", split(2, 4, 3, { "c" }));
    EXPECT_SAYS(open(""), "it is file 3 of 4 by its keys, not 3 of 3");
    write("m-00003-of-00003.gguf", split(2, 3, 3, { "c", "d" }));
    EXPECT_SAYS(open(""), "the set holds 4 tensors, split.tensors.count says 3");
    write("m-00003-of-00003.gguf", split(2, 3, 3, { "a" }));
    EXPECT_SAYS(open(""), "tensor a appears twice");
    write("m-00003-of-00003.gguf", "GGUF");
    EXPECT_SAYS(open(""), "m-00003-of-00003.gguf: byte 4");
    write("n.gguf", split(0, 3, 3, {}));
    EXPECT_SAYS(open("n.gguf"), "must be named NAME-00001-of-00003.gguf");
    EXPECT_SAYS(open(""), "more than one .gguf");
    write("o-00001-of-00009.gguf", split(0, 3, 3, {}));
    EXPECT_SAYS(open("o-00001-of-00009.gguf"), "must be named NAME-00001-of-00003.gguf");
    write("p.gguf", gguf({ key("split.count", U16, little((uint16_t)5000)) }, {}, 0));
    EXPECT_SAYS(open("p.gguf"), "split.count is not an integer from 0 to 4096");
}

string index_of(const string &map) { return "{\"metadata\":{},\"weight_map\":" + map + "}"; }

TEST_F(Sets, Index)
{
    const char *const index = "model.safetensors.index.json";
    write(
        "one.safetensors",
        safetensors(
            "{" + tensor("a", "U8", "1", "0,1") + "," + tensor("extra", "U8", "1", "1,2") + "}", 2
        )
    );
    write(
        "two.safetensors",
        safetensors(
            "{" + tensor("b", "U8", "1", "0,1") + "," + tensor("a", "U8", "1", "1,2") + "}", 2
        )
    );
    write(index, index_of("{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}"));
    EXPECT_EQ(open(""), "");
    EXPECT_EQ(weir_tensor_directory_count(opened.get()), 2u);
    EXPECT_EQ(weir_tensor_directory_find(opened.get(), "a")->file, 0);
    EXPECT_EQ(weir_tensor_directory_find(opened.get(), "extra"), nullptr);
    for (const char *file : { "../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "",
                              "config.json", "x\\u0000.safetensors" }) {
        write(index, index_of("{\"a\":\"" + string(file) + "\"}"));
        EXPECT_SAYS(open(""), "is not the name of a .safetensors file in the same folder");
    }
    const std::vector<std::pair<string, string>> bad = {
        { index_of("{\"a\":1}"), "tensor a: its file is not a string" },
        { index_of("{}"), "0 tensors" },
        { index_of("[]"), "no object \"weight_map\"" },
        { "{}", "no object \"weight_map\"" },
        { "[]", "no object \"weight_map\"" },
        { "{", "index.json:1:" },
        { index_of("{\"a\":\"one.safetensors\",\"zz\":\"two.safetensors\"}"),
          "tensor zz is not in two.safetensors" },
        { index_of("{\"b\":\"one.safetensors\"}"), "tensor b is not in one.safetensors" },
        { index_of("{\"a\":\"none.safetensors\"}"), "none.safetensors: cannot open" },
    };
    for (const auto &[content, says] : bad) {
        write(index, content);
        EXPECT_SAYS(open(""), says);
    }
}

TEST_F(Sets, Config)
{
    write("model.safetensors", one("U8", "1", "0,1", 1));
    EXPECT_EQ(open(""), "");
    weir_meta meta, item;
    EXPECT_FALSE(weir_tensor_directory_meta(opened.get(), "a", &meta));
    write("config.json", R"({"a": 1, "n": 5, "z": null, "b": {"c": [1, 2.5, null, {}]},
                            "text_config": {"a": 2, "n": null, "deep": {"x": "y"}}})");
    EXPECT_EQ(open("model.safetensors"), "");
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "a", &meta));
    EXPECT_EQ(meta.integer, 2);
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "n", &meta));
    EXPECT_EQ(meta.integer, 5);
    EXPECT_FALSE(weir_tensor_directory_meta(opened.get(), "z", &meta));
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "deep.x", &meta));
    EXPECT_STREQ(meta.string, "y");
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "b.c", &meta));
    EXPECT_EQ(meta.element_type, WEIR_META_FLOAT);
    ASSERT_EQ(meta.length, 4u);
    ASSERT_TRUE(weir_meta_at(&meta, 0, &item));
    EXPECT_TRUE(item.type == WEIR_META_FLOAT && item.number == 1.0);
    EXPECT_FALSE(weir_meta_at(&meta, 2, &item));
    EXPECT_FALSE(weir_meta_at(&meta, 3, &item));
    write("config.json", "[1]");
    EXPECT_SAYS(open(""), "config.json: not a JSON object");
    write("config.json", "{\"a\": 1,}");
    EXPECT_SAYS(open(""), "config.json:1:");
    write("config.json", "{\"" + string(600, 'k') + "\": {\"" + string(600, 'k') + "\": 1}}");
    EXPECT_SAYS(open(""), "longer than 1024");
    string many = "{";
    for (int i = 0; i < 70000; i++) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
    write("config.json", many + "}");
    EXPECT_SAYS(open(""), "more than 65536 keys");
}

TEST_F(Sets, Paths)
{
    EXPECT_SAYS(open(""), "no model.safetensors, no model.safetensors.index.json, no .gguf file");
    EXPECT_SAYS(open("none"), "no such file or folder");
    EXPECT_SAYS(open(""), "a model is a GGUF file, a safetensors file or a checkpoint folder");
    write("half.gguf", string("GGU\0", 4));
    EXPECT_SAYS(open("half.gguf"), "byte 0: not a GGUF file");
    write("half.safetensors", string(4, '\0'));
    EXPECT_SAYS(open("half.safetensors"), "4 bytes has no safetensors header");
    write("model.bin", string(64, '\1'));
    EXPECT_SAYS(
        open("model.bin"), "model.bin: not a model: it begins neither as GGUF nor as "
                           "safetensors; a model is a GGUF file"
    );
    std::filesystem::create_directory(folder + "/model.safetensors");
    EXPECT_SAYS(open(""), "not a regular file");
    weir_tensor_directory_close(nullptr);
}

/* What people give by mistake is named, whatever its file is called. */
TEST_F(Sets, ForeignFiles)
{
    const std::pair<string, const char *> foreign[] = {
        { "", "an empty file" },
        { "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull" },
        { "\n<!DOCTYPE html><html>", "an HTML or XML page" },
        { "{\"model_type\": \"qwen3\"}", "JSON text" },
        { "# Caf\xc3\xa9\nA model card.\n", "a text file" },
        { string(511, 'a') + "\xc3\xa9", "a text file" },
        { string("PK\3\4\0\0", 6), "a ZIP archive" },
        { string("\x80\2}q\0", 5), "a Python pickle" },
        { string("tjgg\3\0\0\0", 8), "before GGUF" },
        { string("\x1f\x8b\x08\0", 4), "compressed by gzip" },
        { string(
              "\x7f"
              "ELF\2\1\1\0",
              8
          ),
          "a program" },
    };
    for (const auto &[bytes, says] : foreign) {
        for (const char *name : { "m", "m.gguf", "m.safetensors" }) {
            write(name, bytes);
            EXPECT_SAYS(open(name), says);
            EXPECT_SAYS(open(name), "not a model but ");
            EXPECT_SAYS(
                open(name), "; a model is a GGUF file, a safetensors file or a checkpoint folder"
            );
        }
        write("model.safetensors", bytes);
        EXPECT_SAYS(open(""), says);
        std::filesystem::remove(folder + "/model.safetensors");
    }
}

/* The content decides, not the name. */
TEST_F(Sets, NamesSayNothing)
{
    const string tensors = one("U8", "1", "0,1", 1);
    for (const char *name : { "a", "a.gguf", "a.bin" }) {
        write(name, tensors);
        EXPECT_EQ(open(name), "");
        EXPECT_EQ(weir_tensor_directory_container(opened.get()), WEIR_CONTAINER_SAFETENSORS);
    }
    write("b.safetensors", "GGUF" + u32(3) + u64(0) + u64(0));
    EXPECT_EQ(open("b.safetensors"), "");
    EXPECT_EQ(weir_tensor_directory_container(opened.get()), WEIR_CONTAINER_GGUF);
}

} // namespace
} // namespace hostile
