// Several safetensors files behind one index.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include "file_support.h"

namespace headwise {
namespace {

using namespace testing_support;

class ShardIndex : public ::testing::Test {
protected:
    ShardIndex() {
        Tensor a(DType::i32, {1}), b(DType::i32, {1}), c(DType::i32, {1});
        a.data<std::int32_t>()[0] = 1;
        b.data<std::int32_t>()[0] = 2;
        c.data<std::int32_t>()[0] = 3;
        save_safetensors(dir_ / "1.safetensors", {{"a", a}, {"hidden", c}}, {{"format", "pt"}});
        save_safetensors(dir_ / "2.safetensors", {{"b", b}, {"a", c}});
    }
    void index(const std::string& text) { put_file(path_, text); }
    void map(const std::string& pairs) {
        index(R"({"metadata":{"total_size":1.5,"deep":[{}]},"weight_map":{)" + pairs + "}}");
    }
    void refuses(ErrorCode code, std::initializer_list<std::string_view> parts, const FileLimits& limits = {}) {
        SCOPED_TRACE(get_file(path_));
        expect_error(code, parts, [&] { TensorFile(dir_.path(), limits); });
    }
    TempDir dir_;
    std::string path_ = dir_ / "model.safetensors.index.json";
};

TEST_F(ShardIndex, ShowsExactlyWhatTheMapNames) {
    map(R"("a":"1.safetensors","b":"2.safetensors")");
    for (const std::string& path : {dir_.path(), path_}) {
        const TensorFile file(path);
        EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
        EXPECT_EQ(file.load("a").data<std::int32_t>()[0], 1);  // not the one of shard 2
        EXPECT_EQ(file.load("b").data<std::int32_t>()[0], 2);
        EXPECT_FALSE(file.find("hidden"));
        EXPECT_TRUE(file.metadata().empty());
        expect_error(ErrorCode::bad_data, {"'hidden'", "'a', 'b'"}, [&] { file.load("hidden"); });
    }
}

TEST_F(ShardIndex, OneFileGoesBeforeAnIndex) {
    map(R"("b":"2.safetensors")");
    save_safetensors(dir_ / "model.safetensors", {});
    EXPECT_TRUE(TensorFile(dir_.path()).names().empty());
}

TEST_F(ShardIndex, NoNameLeadsOutOfTheDirectory) {
    std::filesystem::create_directory(dir_ / "sub");
    std::filesystem::copy(dir_ / "1.safetensors", dir_ / "sub/1.safetensors");
    for (const std::string name :
         {"sub/1.safetensors", "./1.safetensors", "../x/1.safetensors", "..", ".", "", "/etc/passwd",
          "..\\\\1.safetensors", "1.bin", "1.safetensors/", "1.safetensors\\u0000.safetensors", "sub"}) {
        map(R"("a":")" + name + "\"");
        refuses(ErrorCode::bad_data, {path_, "'a'", "plain file name"});
    }
    map("\"a\":\"" + (dir_ / "1.safetensors") + "\"");
    refuses(ErrorCode::bad_data, {"plain file name"});
}

TEST_F(ShardIndex, MissingPiecesAreNamed) {
    map(R"("a":"3.safetensors")");
    refuses(ErrorCode::io, {"3.safetensors", "No such file"});
    map(R"("c":"1.safetensors")");
    refuses(ErrorCode::bad_data, {path_, "'1.safetensors'", "'c'"});
    put_file(dir_ / "1.safetensors", safetensors("{}", "x"));
    map(R"("a":"1.safetensors")");
    refuses(ErrorCode::bad_data, {dir_ / "1.safetensors", "1 more bytes"});
}

TEST_F(ShardIndex, RefusesOtherForms) {
    const auto refused = [&](const std::string& text, std::initializer_list<std::string_view> parts) {
        index(text);
        refuses(ErrorCode::bad_data, {path_});
        refuses(ErrorCode::bad_data, parts);
    };
    refused("", {"malformed JSON"});
    refused("{}", {"\"weight_map\" is missing"});
    refused(R"({"metadata":{"weight_map":{"a":"1.safetensors"}}})", {"missing"});
    refused("[]", {"a list"});
    refused("7", {"a number"});
    refused("\"weight_map\"", {"a string"});
    refused(R"({"weight_map":[]})", {"a list"});
    refused(R"({"weight_map":"1.safetensors"})", {"a string"});
    refused(R"({"weight_map":null})", {"null"});
    refused(R"({"weight_map":{"a":1}})", {"'a'", "a number"});
    refused(R"({"weight_map":{"a":1.5}})", {"'a'", "a number"});
    refused(R"({"weight_map":{"a":true}})", {"'a'", "true or false"});
    refused("\xef\xbb\xbf{}", {"byte order mark"});
    refused(R"({"weight_map":{"a":["1.safetensors"]}})", {"'a'", "a list"});
    refused(R"({"weight_map":{"a":{"b":"1.safetensors"}}})", {"'a'", "an object"});
    refused(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})", {"'a'", "twice"});
    refused(R"({"weight_map":{},"weight_map":{}})", {"'weight_map'", "twice"});
    refused("{\"weight_map\":{\"\xff\":\"1.safetensors\"}}", {"malformed JSON"});
}

TEST_F(ShardIndex, KeepsToItsLimits) {
    map(R"("a":"1.safetensors","b":"2.safetensors")");
    TensorFile(path_, {.tensors = 2, .shards = 2});
    refuses(ErrorCode::bad_data, {"FileLimits::shards"}, {.shards = 1});
    refuses(ErrorCode::bad_data, {"FileLimits::tensors"}, {.tensors = 1});
    refuses(ErrorCode::bad_data, {"'a'", "FileLimits::name_bytes"}, {.name_bytes = 0});
    refuses(ErrorCode::bad_data, {"FileLimits::header_bytes"}, {.header_bytes = 20});
    refuses(ErrorCode::bad_data, {"nested deeper"}, {.json_depth = 1});
}

}  // namespace
}  // namespace headwise
