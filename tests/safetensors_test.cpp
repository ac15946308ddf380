// Reading and writing well-formed and malformed safetensors files, one rule of the format at a time.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "file_support.h"
#include "safetensors_support.h"

namespace headwise {
namespace {

using namespace testing_support;

class Safetensors : public ::testing::Test {
protected:
    std::string file(std::string_view header, std::string_view data, const std::string& name = "x.safetensors") {
        put_file(dir_ / name, safetensors(header, data));
        return dir_ / name;
    }
    // The file must be refused as bad data, with its path and `parts` in the message.
    void refuses(std::string_view header, std::string_view data, std::initializer_list<std::string_view> parts,
                 const FileLimits& limits = {}) {
        const std::string path = file(header, data);
        SCOPED_TRACE(header);
        expect_error(ErrorCode::bad_data, {path}, [&] { TensorFile(path, limits); });
        expect_error(ErrorCode::bad_data, parts, [&] { TensorFile(path, limits); });
    }
    TempDir dir_;
};

TEST_F(Safetensors, ReadsBytesAsTheFormatSaysThem) {
    const std::string path = file(
        R"({"b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"format":"pt","note":"\u00e9"},)"
        R"("a":{"shape":[2,1],"data_offsets":[0,4],"dtype":"BF16"},"none":{"dtype":"F32","shape":[0,3],"data_offsets":[12,12]},)"
        R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[12,20]}}   )",
        std::string("\x80\x3f\x00\x40", 4) + little(7, 4) + little(0xffffffff, 4) + little(0xbfe0000000000000));
    const TensorFile read(path);
    EXPECT_EQ(read.names(), (std::vector<std::string>{"a", "b", "none", "scalar"}));
    EXPECT_EQ(read.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "\xc3\xa9"}}));
    EXPECT_EQ(read.find("a")->stored_dtype, "BF16");
    EXPECT_EQ(read.find("none")->sizes, (std::vector<std::int64_t>{0, 3}));
    EXPECT_FALSE(read.find("c"));

    const Tensor a = read.load("a");
    EXPECT_EQ(a.view().describe(), "bf16 [2, 1]");
    EXPECT_EQ(a.data<std::uint16_t>()[0], 0x3f80);
    EXPECT_EQ(a.data<std::uint16_t>()[1], 0x4000);
    EXPECT_EQ(read.load("b").data<std::int32_t>()[1], -1);
    EXPECT_EQ(read.load("none").count(), 0);
    EXPECT_EQ(read.load("scalar").rank(), 0);
    EXPECT_EQ(read.load("scalar").data<double>()[0], -0.5);
}

TEST_F(Safetensors, AnEmptyFileOfTheFormatHoldsNothing) {
    EXPECT_TRUE(TensorFile(file("{}", "")).names().empty());
    EXPECT_TRUE(TensorFile(file(R"({"__metadata__":{}})", "")).names().empty());
}

TEST_F(Safetensors, UnderstandsEveryStoredTypeAndLoadsSeven) {
    struct Row {
        const char* name;
        int bytes;  // of 8 elements
        std::optional<DType> dtype;
    };
    const Row rows[] = {{"F32", 32, DType::f32}, {"BF16", 16, DType::bf16},
                        {"F16", 16, DType::f16}, {"F64", 64, DType::f64},
                        {"I32", 32, DType::i32}, {"I64", 64, DType::i64},
                        {"U8", 8, {}},           {"BOOL", 8, DType::boolean},
                        {"I8", 8, {}},           {"U16", 16, {}},
                        {"I16", 16, {}},         {"U32", 32, {}},
                        {"U64", 64, {}},         {"C64", 64, {}},
                        {"F8_E4M3", 8, {}},      {"F8_E5M2", 8, {}},
                        {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},
                        {"F6_E2M3", 6, {}},      {"F8_E5M2FNUZ", 8, {}},
                        {"F6_E3M2", 6, {}},      {"F4", 4, {}}};
    for (const Row& row : rows) {
        SCOPED_TRACE(row.name);
        const auto header = [&](int bytes) {
            return std::string(R"({"x":{"dtype":")") + row.name + R"(","shape":[4,2],"data_offsets":[0,)" +
                   std::to_string(bytes) + "]}}";
        };
        const TensorFile read(file(header(row.bytes), std::string(static_cast<std::size_t>(row.bytes), '\0')));
        EXPECT_EQ(read.find("x")->stored_dtype, row.name);
        if (row.dtype) {
            EXPECT_EQ(read.load("x").dtype(), *row.dtype);
        } else {
            expect_error(ErrorCode::unsupported, {"'x'", row.name, "BF16"}, [&] { read.load("x"); });
        }
        refuses(header(row.bytes + 1), std::string(static_cast<std::size_t>(row.bytes) + 1, '\0'),
                {"'x'", row.name});
    }
    refuses(R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "ab", {"whole number of bytes"});
}

TEST_F(Safetensors, RefusesLyingHeaderSizes) {
    const std::string path = dir_ / "x.safetensors";
    const auto refused = [&](const std::string& bytes, std::initializer_list<std::string_view> parts) {
        put_file(path, bytes);
        expect_error(ErrorCode::bad_data, parts, [&] { TensorFile{path}; });
    };
    refused("", {path, "0 bytes"});
    refused("1234567", {"7 bytes"});
    refused(little(0), {"'{'"});
    refused(little(3) + "{}", {"3 bytes", "only 2"});
    refused(little(UINT64_MAX) + "{}", {"18446744073709551615", "only 2"});
    refused(little(std::uint64_t{1} << 63) + "{}", {"only 2"});
    refused(little(2) + "{} ", {"1 more bytes follow"});
    put_file(path, safetensors("{}" + std::string(40, ' '), ""));
    expect_error(ErrorCode::bad_data, {"42 bytes", "limit of 41", "header_bytes"},
                 [&] { TensorFile(path, {.header_bytes = 41}); });
    TensorFile(path, {.header_bytes = 42});
}

TEST_F(Safetensors, RefusesSpansThatDoNotFit) {
    const auto f32 = [](std::string_view name, std::string_view shape, std::string_view offsets) {
        return "\"" + std::string(name) + R"(":{"dtype":"F32","shape":)" + std::string(shape) +
               R"(,"data_offsets":)" + std::string(offsets) + "}";
    };
    const auto one = [&](std::string_view shape, std::string_view offsets) {
        return "{" + f32("x", shape, offsets) + "}";
    };
    refuses(one("[2]", "[0,4]"), "abcd", {"'x'", "[0, 4]", "8 bytes", "F32 [2]"});
    refuses(one("[2]", "[0,8]"), "abcd", {"'x'", "ends at byte 8", "only 4"});
    refuses(one("[1]", "[0,4]"), "abcdefgh", {"4 more bytes follow"});
    refuses(one("[1]", "[4,8]"), "abcdefgh", {"'x'", "byte 4", "hole", "expected 0"});
    refuses(one("[1]", "[4,0]"), "abcd", {"'x'", "[4, 0]"});
    refuses(one("[0]", "[4,4]"), "", {"ends at byte 4"});
    refuses("{" + f32("x", "[1]", "[0,4]") + "," + f32("y", "[2]", "[0,8]") + "}", "abcdefgh", {"'y'", "inside"});
    refuses("{" + f32("x", "[2]", "[0,8]") + "," + f32("y", "[1]", "[4,8]") + "}", "abcdefgh", {"'y'", "inside"});
    refuses("{" + f32("x", "[1]", "[0,4]") + "," + f32("y", "[1]", "[8,12]") + "}", "abcdefghijkl",
            {"'y'", "hole"});

    const std::string_view huge = "[4611686018427387904,4611686018427387904]", most = "[9223372036854775807]";
    refuses(one(huge, "[0,0]"), "", {"larger than any memory"});
    refuses(one("[0,4611686018427387904,8]", "[0,0]"), "", {"larger than any memory"});
    refuses(one(most, "[0,0]"), "", {"larger than any memory"});
    refuses(one("[0]", "[9223372036854775807,9223372036854775807]"), "", {"ends at byte 9223372036854775807"});
    refuses(one("[9223372036854775808]", "[0,4]"), "abcd", {"'shape'", "63 bits"});
    refuses(one("[18446744073709551617]", "[0,4]"), "abcd", {"'shape'", "63 bits"});
    refuses(one("[-1]", "[0,4]"), "abcd", {"'shape'", "negative"});
    refuses(one("[1]", "[0,-4]"), "abcd", {"'data_offsets'", "negative"});
    refuses(one("[1.0]", "[0,4]"), "abcd", {"'shape'"});
    refuses(one("[1]", "[0,4e0]"), "abcd", {"'data_offsets'"});
    refuses(one("[1,1,1,1,1,1,1,1,1]", "[0,4]"), "abcd", {"more than 8 dimensions"});
    EXPECT_EQ(TensorFile(file(one("[1,1,1,1,1,1,1,1]", "[0,4]"), "abcd")).load("x").rank(), 8);
}

TEST_F(Safetensors, RefusesHeadersOfAnotherForm) {
    refuses(
        R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        "abcd", {"'x'", "twice"});
    refuses(R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd",
            {"'dtype'", "twice"});
    refuses(R"({"__metadata__":{"a":"1","a":"2"}})", "", {"'a'", "twice"});
    refuses(R"({"__metadata__":{"a":1}})", "", {"'__metadata__'", "'a'", "a number"});
    refuses(R"({"__metadata__":{"a":{"b":"c"}}})", "", {"'a'", "an object"});
    refuses(R"({"__metadata__":{"shape":[1]}})", "", {"'shape'", "a list"});
    refuses(R"({"__metadata__":null})", "", {"'__metadata__'", "null"});
    refuses(R"({"x":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "abcd", {"'x'", "'F31'"});
    refuses(R"({"x":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", "abcd", {"'x'", "'dtype'"});
    refuses(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", "abcd", {"'x'", "shape"});
    refuses(R"({"x":{"shape":[1],"data_offsets":[0,4]}})", "abcd", {"'x'", "dtype"});
    refuses(R"({"x":{"dtype":"F32","shape":[1]}})", "abcd", {"'x'", "data_offsets"});
    refuses(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", "abcd", {"two numbers"});
    refuses(R"({"x":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", "abcd", {"'shape'", "a list"});
    refuses(R"({"x":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "abcd", {"'shape'"});
    refuses(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":true}})", "abcd", {"'extra'"});
    refuses(R"({"x":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", "abcd", {"'shape'", "a string"});
    refuses(R"({"x":5})", "", {"'x'", "not an object"});
    refuses(R"({"x":[]})", "", {"'x'"});
    refuses(R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{}})", "abcd", {"'y'"});
    refuses("[]", "", {"'{'"});
    refuses(" {}", "", {"'{'"});
    refuses("\xef\xbb\xbf{}", "", {"'{'"});
    refuses("{}x", "", {"malformed JSON", "byte 2"});
    refuses("{},", "", {"malformed JSON"});
    refuses(std::string_view("{}\0", 3), "", {"zero byte at byte 2"});
    refuses("{", "", {"malformed JSON"});
    refuses("{\"\xff\":1}", "", {"malformed JSON"});
    refuses("{\"\xc0\x80\":1}", "", {"malformed JSON"});
    refuses("{\"\xed\xa0\x80\":1}", "", {"malformed JSON"});
    refuses("{'x':1}", "", {"line 1, column 2"});
}

TEST_F(Safetensors, KeepsToItsLimits) {
    const std::string two =
        R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"bcd":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})";
    TensorFile(file(two, "ab"), {.tensors = 2, .name_bytes = 3, .json_depth = 3});
    refuses(two, "ab", {"limit of 1", "FileLimits::tensors"}, {.tensors = 1});
    refuses(two, "ab", {"'bcd'", "limit of 2", "FileLimits::name_bytes"}, {.name_bytes = 2});
    refuses(two, "ab", {"limit of 2"}, {.json_depth = 2});
    refuses(R"({"x":)" + std::string(100'000, '['), "", {"'x'"});
}

TEST_F(Safetensors, RefusesBooleansThatAreNeither) {
    const TensorFile read(
        file(R"({"x":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})", std::string("\1\0\2\1", 4)));
    expect_error(ErrorCode::bad_data, {"'x'", "element 2", "is 2"}, [&] { read.load("x"); });
}

TEST_F(Safetensors, NamesWhatIsNearAMissingName) {
    const TensorFile few(file(R"({"query":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "a"));
    expect_error(ErrorCode::bad_data, {"'queri'", "it holds 'query'"}, [&] { few.load("queri"); });
    std::string header = "{";
    for (int i = 0; i < 40; ++i) {
        header += (i > 0 ? ",\"layer." : "\"layer.") + std::to_string(i) +
                  R"(.in":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    }
    const TensorFile many(file(header + "}", ""));
    expect_error(ErrorCode::bad_data, {"of its 40", "'layer.7.in'"}, [&] { many.load("layer.7.out"); });
    expect_error(ErrorCode::bad_data, {"'\\xff\\x0a'"}, [&] { many.load("\xff\n"); });
}

TEST_F(Safetensors, MissingFilesAreInputErrors) {
    expect_error(ErrorCode::io, {dir_ / "none", "No such file"}, [&] { TensorFile(dir_ / "none"); });
    expect_error(ErrorCode::io, {dir_.path(), "model.safetensors"}, [&] { TensorFile(dir_.path()); });
    expect_error(ErrorCode::invalid_argument, {"empty"}, [&] { TensorFile(""); });
    expect_error(ErrorCode::io, {"not a regular file"}, [&] { TensorFile("/dev/zero"); });
    std::filesystem::create_directory(dir_ / "model.safetensors");
    expect_error(ErrorCode::io, {"not a regular file"}, [&] { TensorFile(dir_.path()); });
}

TEST_F(Safetensors, WritesWhatItWasGiven) {
    Tensor x(DType::f32, {2, 3});
    for (int i = 0; i < 6; ++i) x.data<float>()[i] = static_cast<float>(i);
    Tensor flags(DType::boolean, {2});
    flags.data<std::uint8_t>()[1] = 255;
    const std::string path = dir_ / "y.safetensors";
    save_safetensors(path,
                     {{"flags", flags}, {"across", x.view().swap_axes(0, 1)}, {"\"q\"", x.view().slice(1, 1, 1)}},
                     {{"format", "pt"}});
    const SimpleFile read = read_simply(get_file(path));
    EXPECT_EQ(read.header_bytes % 8, 0u);
    EXPECT_EQ(read.tensors.at("across").shape, (std::vector<std::int64_t>{3, 2}));
    EXPECT_EQ(read.tensors.at("flags").bytes, std::string("\0\1", 2));
    const float expected[] = {0, 3, 1, 4, 2, 5};
    EXPECT_EQ(std::memcmp(read.tensors.at("across").bytes.data(), expected, sizeof expected), 0);
    const float column[] = {1, 4};
    EXPECT_EQ(std::memcmp(read.tensors.at("\"q\"").bytes.data(), column, sizeof column), 0);
    EXPECT_EQ(TensorFile(path).metadata().at("format"), "pt");
    EXPECT_EQ(dir_.list(), std::vector<std::string>{"y.safetensors"});
}

TEST_F(Safetensors, WritesLargeStridedViewsInPieces) {
    Tensor x(DType::i32, {7, 2001});
    for (int i = 0; i < 7 * 2001; ++i) x.data<std::int32_t>()[i] = i;
    save_safetensors(dir_ / "x.safetensors", {{"x", x.view().swap_axes(0, 1)}});
    const Tensor read = TensorFile(dir_ / "x.safetensors").load("x");
    ASSERT_EQ(read.view().describe(), "i32 [2001, 7]");
    for (int row = 0; row < 2001; ++row) {
        for (int column = 0; column < 7; ++column) {
            ASSERT_EQ(read.data<std::int32_t>()[row * 7 + column], column * 2001 + row);
        }
    }
}

TEST_F(Safetensors, AnOpenedFileCanBeHandedOn) {
    TensorFile first(file(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"));
    TensorFile second(std::move(first));
    EXPECT_EQ(second.names().size(), 1u);
    first = TensorFile(file("{}", "", "empty.safetensors"));
    second = std::move(first);
    EXPECT_TRUE(second.names().empty());
}

TEST_F(Safetensors, WriterRefusesWhatItCannotName) {
    const Tensor x(DType::f32, {1});
    const std::string path = dir_ / "y.safetensors";
    put_file(path, "old");
    const auto refused = [&](const std::vector<std::pair<std::string, ConstTensorView>>& tensors,
                             std::string_view part) {
        expect_error(ErrorCode::invalid_argument, {part}, [&] { save_safetensors(path, tensors); });
    };
    refused({{"a", x}, {"a", x}}, "'a'");
    refused({{"__metadata__", x}}, "__metadata__");
    refused({{"\xff", x}}, "UTF-8");
    refused({{"a", {}}}, "no tensor");
    refused({{"a", ConstTensorView(nullptr, DType::f32, {1})}}, "no memory");
    EXPECT_EQ(get_file(path), "old");
    expect_error(ErrorCode::io, {"no/such"}, [&] { save_safetensors(dir_ / "no/such", {{"a", x}}); });
    expect_error(ErrorCode::io, {"not a regular file"}, [&] { save_safetensors("/dev/null", {{"a", x}}); });
    EXPECT_EQ(dir_.list(), std::vector<std::string>{"y.safetensors"});
}

}  // namespace
}  // namespace headwise
