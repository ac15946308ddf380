// Reading GGUF: element types against the reference decoder, shapes, metadata, and one rule of the format at a time.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include <cmath>

#include "file_support.h"
#include "gguf_support.h"
#include "weights/file.h"
#include "weights/gguf_header.h"

namespace headwise {
namespace {

using namespace testing_support;
using Shape = std::vector<std::int64_t>;

// Made by make_gguf_blocks.py with the `gguf` package: a file and what its decoder makes of it.
const std::string kBlocks = "tests/data/gguf_blocks.gguf", kDecoded = "tests/data/gguf_blocks.safetensors";

TEST(Gguf, EveryTypeIsDecodedAsByTheReference) {
    const TensorFile file(kBlocks), decoded(kDecoded);
    ASSERT_EQ(decoded.names().size(), 13u);
    for (const std::string& name : decoded.names()) {
        SCOPED_TRACE(name);
        const Tensor expected = decoded.load(name), got = convert(file.load(name), DType::f32);
        ASSERT_EQ(file.find(name)->stored_dtype, name);
        ASSERT_EQ(file.find(name)->sizes, decoded.find(name)->sizes);
        ASSERT_EQ(got.count(), expected.count());
        std::int64_t finite = 0;
        for (std::int64_t i = 0; i < got.count(); ++i) {
            const float a = got.data<float>()[i], b = expected.data<float>()[i];
            ASSERT_TRUE((std::isnan(a) && std::isnan(b)) ||
                        std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b))
                << i << ": " << a << " instead of " << b;
            finite += std::isfinite(b);
        }
        EXPECT_GE(finite, got.count() / 3);
    }
}

TEST(Gguf, TypesThatCannotBeLoadedAreNamed) {
    const TensorFile file(kBlocks);
    ASSERT_TRUE(file.find("unsupported"));
    EXPECT_EQ(file.find("unsupported")->stored_dtype, "IQ4_NL");
    expect_error(ErrorCode::unsupported, {kBlocks, "'unsupported' is stored as IQ4_NL", "Q6_K"},
                 [&] { file.load("unsupported"); });
}

TEST(Gguf, QuantisedTypesBecomeF32AndPlainOnesStay) {
    const TensorFile file(kBlocks);
    EXPECT_EQ(file.load("Q4_K").dtype(), DType::f32);
    EXPECT_EQ(file.load("F16").dtype(), DType::f16);
    EXPECT_EQ(file.load("BF16").dtype(), DType::bf16);
}

TEST(Gguf, MetadataIsText) {
    const TensorFile file(kBlocks);
    const std::map<std::string, std::string> expected = {{"general.architecture", "test"},
                                                         {"test.u8", "200"},
                                                         {"test.i8", "-100"},
                                                         {"test.u16", "60000"},
                                                         {"test.i16", "-30000"},
                                                         {"test.u32", "4000000000"},
                                                         {"test.i32", "-2000000000"},
                                                         {"test.u64", "4611686018427387904"},
                                                         {"test.i64", "-4611686018427387904"},
                                                         {"test.f32", "0.5"},
                                                         {"test.f64", "-0.25"},
                                                         {"test.bool", "true"},
                                                         {"test.string",
                                                          "gr\xc3\xb6\xc3\x9f"
                                                          "er"}};
    EXPECT_EQ(file.metadata(), expected);
}

TEST(Gguf, ShortArraysOfNumbersAreKept) {
    const GgufHeader header = read_gguf_header(InputFile(kBlocks), {});
    EXPECT_EQ(header.version, 3);
    const GgufValue& numbers = header.metadata.at("test.numbers");
    ASSERT_EQ(numbers.items.size(), 3u);
    EXPECT_EQ(numbers.items[2].whole, 3);
    const GgufValue& flags = header.metadata.at("test.flags");
    ASSERT_EQ(flags.items.size(), 2u);
    EXPECT_EQ(flags.items[0].kind, GgufValue::Kind::boolean);
    EXPECT_EQ(flags.items[0].whole, 1);
    EXPECT_EQ(header.metadata.at("test.strings").count, 3);
    EXPECT_TRUE(header.metadata.at("test.strings").items.empty());
}

// ---- one rule at a time ------------------------------------------------------------------------------------

class GgufRules : public ::testing::Test {
protected:
    std::string put(const GgufBuilder& builder) { return put(builder.build()); }
    std::string put(const std::string& bytes) {
        put_file(path_, bytes);
        return path_;
    }
    void refuse(ErrorCode code, std::initializer_list<std::string_view> parts, const GgufBuilder& builder,
                const FileLimits& limits = {}) {
        put(builder);
        expect_error(code, parts, [&] { TensorFile(path_, limits); });
        expect_error(code, {path_}, [&] { TensorFile(path_, limits); });
    }

    TempDir dir_;
    std::string path_ = dir_ / "x.gguf";
};

const std::string kSix = floats({1, 2, 3, 4, 5, 6});

TEST_F(GgufRules, ShapesAreRowMajor) {
    const TensorFile file(put(GgufBuilder().tensor("a", {3, 2}, kTensorF32, kSix)));
    EXPECT_EQ(file.names(), std::vector<std::string>{"a"});
    EXPECT_EQ(file.find("a")->sizes, (Shape{2, 3}));
    EXPECT_EQ(file.find("a")->stored_dtype, "F32");
    EXPECT_FALSE(file.find("b"));
    const Tensor a = file.load("a");
    EXPECT_EQ(a.size(0), 2);
    EXPECT_EQ(a.data<float>()[3], 4);  // row 1, column 0
    expect_error(ErrorCode::bad_data, {path_, "no tensor 'b'", "'a'"}, [&] { file.load("b"); });
}

TEST_F(GgufRules, TensorsAreFoundBySpecAndByContent) {
    put(GgufBuilder().tensor("a:b", {3, 2}, kTensorF32, kSix));
    EXPECT_EQ(load_tensor(path_).count(), 6);
    EXPECT_EQ(load_tensor(path_ + ":a:b").size(1), 3);
    const std::string other = dir_ / "model.bin";  // no ending: the first bytes tell
    std::filesystem::copy_file(path_, other);
    EXPECT_EQ(load_tensor(other + ":a:b").count(), 6);
}

TEST_F(GgufRules, VersionsAndEndings) {
    GgufBuilder builder;
    builder.version = 2;
    builder.tensor("a", {6}, kTensorF32, kSix);
    EXPECT_EQ(TensorFile(put(builder)).load("a").count(), 6);
    builder.version = 1;
    refuse(ErrorCode::unsupported, {"GGUF version 1", "2 and 3"}, builder);
    builder.version = 4;
    refuse(ErrorCode::unsupported, {"GGUF version 4"}, builder);
    builder.version = 0x03000000;
    refuse(ErrorCode::unsupported, {"big-endian"}, builder);
    builder.version = 3;
    builder.magic = "GGUX";
    refuse(ErrorCode::bad_data, {"does not begin with 'GGUF'"}, builder);
    put(std::string());
    expect_error(ErrorCode::bad_data, {path_, "needs 1 bytes"}, [&] { TensorFile file(path_); });
}

TEST_F(GgufRules, EmptyFilesAndTensors) {
    EXPECT_TRUE(TensorFile(put(GgufBuilder())).names().empty());
    GgufBuilder builder;
    builder.tensor("scalar", {}, kTensorF32, floats({7})).tensor("none", {0, 4}, kTensorF32, "");
    const TensorFile file(put(builder));
    EXPECT_EQ(file.load("scalar").rank(), 0);
    EXPECT_EQ(file.load("scalar").data<float>()[0], 7);
    EXPECT_EQ(file.load("none").count(), 0);
}

TEST_F(GgufRules, AlignmentIsRead) {
    for (const std::uint32_t alignment : {1u, 8u, 64u, 4096u}) {
        GgufBuilder builder;
        builder.alignment = alignment;
        builder.u32("general.alignment", alignment).tensor("a", {1}, kTensorF32, floats({1}));
        builder.tensor("b", {2}, kTensorF32, floats({2, 3}));
        const TensorFile file(put(builder));
        EXPECT_EQ(file.load("b").data<float>()[1], 3) << alignment;
    }
    GgufBuilder three, zero, text;
    refuse(ErrorCode::bad_data, {"'general.alignment' is 3", "power of two"}, three.u32("general.alignment", 3));
    refuse(ErrorCode::bad_data, {"is 0"}, zero.u32("general.alignment", 0));
    refuse(ErrorCode::bad_data, {"is a string"}, text.text("general.alignment", "32"));
    GgufBuilder odd;
    refuse(ErrorCode::bad_data, {"tensor 'a'", "begins at 4", "multiple of the alignment 32"},
           odd.tensor("b", {6}, kTensorF32, kSix).tensor_at("a", {1}, kTensorF32, 4));
}

TEST_F(GgufRules, NamesAppearOnce) {
    GgufBuilder keys, tensors;
    refuse(ErrorCode::bad_data, {"metadata key 'k'", "appears twice"}, keys.u32("k", 1).u32("k", 1));
    refuse(ErrorCode::bad_data, {"tensor 'a'", "appears twice"},
           tensors.tensor("a", {6}, kTensorF32, kSix).tensor("a", {6}, kTensorF32, kSix));
}

TEST_F(GgufRules, TensorsStayInsideTheFileAndApart) {
    GgufBuilder beyond, far, overlap, padded;
    refuse(ErrorCode::bad_data, {"tensor 'a'", "end", "cut short"}, beyond.tensor("a", {7}, kTensorF32, kSix));
    refuse(ErrorCode::bad_data, {"tensor 'a'", "18446744073709551584"},
           far.tensor_at("a", {1}, kTensorF32, 0xffffffffffffffe0));
    overlap.tensor("a", {16}, kTensorF32, std::string(64, 'x')).tensor_at("b", {2}, kTensorF32, 32);
    refuse(ErrorCode::bad_data, {"tensor 'b' begins at byte 32", "inside tensor 'a'", "ends at 64"}, overlap);
    padded.tensor("a", {6}, kTensorF32, kSix).tensor("hole", {32}, kTensorF32, std::string(128, 'x'));
    GgufBuilder hole;  // bytes that belong to no tensor are padding
    hole.tensor_at("a", {6}, kTensorF32, 128);
    put(hole.build() + std::string(128, 'x') + kSix);
    EXPECT_EQ(TensorFile(path_).load("a").data<float>()[5], 6);
}

TEST_F(GgufRules, SizesDoNotOverflow) {
    GgufBuilder rank, large, product, decoded, part;
    refuse(ErrorCode::bad_data, {"tensor 'a'", "9 dimensions"},
           rank.tensor_at("a", std::vector<std::uint64_t>(9, 1), kTensorF32, 0));
    refuse(ErrorCode::bad_data, {"18446744073709551615"}, large.tensor_at("a", {~0ull}, kTensorF32, 0));
    refuse(ErrorCode::bad_data, {"larger than any memory"},
           product.tensor_at("a", {1ull << 40, 1ull << 40}, kTensorF32, 0));
    refuse(ErrorCode::bad_data, {"larger than any memory"},
           decoded.tensor_at("a", {1ull << 62, 0, 1ull << 62}, kTensorQ8_0, 0));
    refuse(ErrorCode::bad_data, {"Q8_0 [2, 33]", "rows of 33", "blocks of 32"},
           part.tensor_at("a", {33, 2}, kTensorQ8_0, 0));
}

TEST_F(GgufRules, UnknownElementTypesAreNamed) {
    GgufBuilder builder;
    refuse(ErrorCode::unsupported, {"tensor 'a'", "element type 99"}, builder.tensor_at("a", {1}, 99, 0));
}

TEST_F(GgufRules, ValuesAreChecked) {
    GgufBuilder type, flag, text, array, strings, utf8, name;
    refuse(ErrorCode::bad_data, {"'k'", "no value type 13"}, type.key("k", 13, ""));
    refuse(ErrorCode::bad_data, {"'k'", "boolean is 2"}, flag.key("k", kBool, "\2"));
    refuse(ErrorCode::bad_data, {"'k'", "bytes of text"}, text.key("k", kText, little(1ull << 63)));
    refuse(ErrorCode::bad_data, {"'k'", "elements of an array"},
           array.key("k", kArray, little(kU32, 4) + little(1ull << 62)));
    refuse(ErrorCode::bad_data, {"'k'", "elements of an array"},
           strings.key("k", kArray, little(kText, 4) + little(20) + std::string(60, '\0')));
    refuse(ErrorCode::bad_data, {"'k'", "not UTF-8"}, utf8.text("k", "\xc0\x80"));
    refuse(ErrorCode::bad_data, {"metadata key 0", "not UTF-8"}, name.u32("\xed\xa0\x80", 1));
}

TEST_F(GgufRules, ArraysOfAnyDepthAreWalkedOver) {
    std::string inner = little(kU32, 4) + little(2) + little(1, 4) + little(2, 4);
    for (int depth = 1; depth < 64; ++depth) inner = little(kArray, 4) + little(1) + inner;
    GgufBuilder nested, deeper;
    EXPECT_EQ(TensorFile(put(nested.key("k", kArray, inner).u32("after", 5))).metadata().at("after"), "5");
    refuse(ErrorCode::bad_data, {"'k'", "nested deeper than the limit of 64", "FileLimits::json_depth"},
           deeper.key("k", kArray, little(kArray, 4) + little(1) + inner));
    std::string words = little(kText, 4) + little(3) + gguf_text("a") + gguf_text("") + gguf_text("\xff");
    GgufBuilder mixed;
    mixed.key("words", kArray, words).key("long", kArray, little(kU8, 4) + little(9000) + std::string(9000, 'x'));
    EXPECT_EQ(TensorFile(put(mixed.u32("after", 6))).metadata().at("after"), "6");
}

TEST_F(GgufRules, LimitsAreNamed) {
    GgufBuilder builder;
    builder.u32("key.one", 1)
        .u32("key.two", 2)
        .tensor("a", {6}, kTensorF32, kSix)
        .tensor("bb", {6}, kTensorF32, kSix);
    EXPECT_EQ(TensorFile(put(builder)).names().size(), 2u);
    refuse(ErrorCode::bad_data, {"2 tensors are over the limit of 1", "FileLimits::tensors"}, builder,
           {.tensors = 1});
    refuse(ErrorCode::bad_data, {"2 metadata keys are over the limit of 1", "FileLimits::gguf_keys"}, builder,
           {.gguf_keys = 1});
    refuse(ErrorCode::bad_data, {"metadata key 0", "7 bytes is over the limit of 6", "FileLimits::name_bytes"},
           builder, {.name_bytes = 6});
    const auto header = static_cast<std::int64_t>(builder.header().size());
    for (std::int64_t bytes = 0; bytes < header; ++bytes) {
        refuse(ErrorCode::bad_data, {"FileLimits::gguf_header_bytes"}, builder, {.gguf_header_bytes = bytes});
    }
    EXPECT_EQ(TensorFile(path_, {.gguf_header_bytes = header}).names().size(), 2u);
}

TEST_F(GgufRules, LongTensorsAreDecodedInPieces) {
    constexpr std::uint64_t kRows = 2200, kRowBlocks = 16;  // 1.2 MB: more than one piece
    std::string data;
    for (std::uint64_t n = 0; n < kRows * kRowBlocks; ++n) {
        data += little(0x3c00, 2) + std::string(32, static_cast<char>(n % 100));  // factor 1
    }
    GgufBuilder builder;
    const Tensor a = TensorFile(put(builder.tensor("a", {32 * kRowBlocks, kRows}, kTensorQ8_0, data))).load("a");
    ASSERT_EQ(a.count(), 32 * 16 * 2200);
    for (std::int64_t i = 0; i < a.count(); ++i)
        ASSERT_EQ(a.data<float>()[i], static_cast<float>(i / 32 % 100)) << i;
}

}  // namespace
}  // namespace headwise
