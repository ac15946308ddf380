// .npy files against bytes written by hand from NumPy's description of the format.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include <cstring>

#include "file_support.h"
#include "weights/file.h"

namespace headwise {
namespace {

using namespace testing_support;

std::string npy(std::string_view header, std::string_view data, int version = 1) {
    std::string result = "\x93NUMPY";
    result += static_cast<char>(version);
    result += '\0';
    return result + little(header.size(), version == 1 ? 2 : 4) + std::string(header) + std::string(data);
}

// "shape" as NumPy spells it.
std::string header(std::string_view descr, std::string_view shape, std::string_view order = "False") {
    return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
           ", 'shape': " + std::string(shape) + ", }\n";
}

class Npy : public ::testing::Test {
protected:
    Tensor load(const std::string& bytes, const FileLimits& limits = {}) {
        put_file(path_, bytes);
        return load_npy(path_, limits);
    }
    void refuses(const std::string& bytes, std::initializer_list<std::string_view> parts,
                 ErrorCode code = ErrorCode::bad_data) {
        expect_error(code, {path_}, [&] { load(bytes); });
        expect_error(code, parts, [&] { load(bytes); });
    }
    TempDir dir_;
    std::string path_ = dir_ / "x.npy";
};

TEST_F(Npy, ReadsEveryTypeAndVersion) {
    const std::string one = little(0x3f800000, 4), two = little(0x40000000, 4);
    for (int version = 1; version <= 3; ++version) {
        const Tensor x = load(npy(header("<f4", "(2, 1)"), one + two, version));
        EXPECT_EQ(x.view().describe(), "f32 [2, 1]");
        EXPECT_EQ(x.data<float>()[1], 2.0f);
    }
    EXPECT_EQ(load(npy(header("<f2", "(1,)"), little(0x3c00, 2))).data<std::uint16_t>()[0], 0x3c00);
    EXPECT_EQ(load(npy(header("<f8", "(1,)"), little(0x3ff8000000000000))).data<double>()[0], 1.5);
    EXPECT_EQ(load(npy(header("<i4", "(1,)"), little(0xfffffffe, 4))).data<std::int32_t>()[0], -2);
    EXPECT_EQ(load(npy(header("<i8", "(1,)"), little(5))).data<std::int64_t>()[0], 5);
    EXPECT_EQ(load(npy(header("|b1", "(2,)"), std::string("\0\1", 2))).data<std::uint8_t>()[1], 1);
    EXPECT_EQ(load(npy(header("<f4", "()"), one)).rank(), 0);
    EXPECT_EQ(load(npy(header("<f4", "(3, 0)"), "")).view().describe(), "f32 [3, 0]");
}

TEST_F(Npy, ReadsColumnMajorIntoRowMajor) {
    // [[1, 2, 3], [4, 5, 6]] column by column
    std::string data;
    for (const int value : {1, 4, 2, 5, 3, 6}) data += little(static_cast<std::uint64_t>(value), 4);
    const Tensor x = load(npy(header("<i4", "(2, 3)", "True"), data));
    EXPECT_EQ(x.view().describe(), "i32 [2, 3]");
    for (int i = 0; i < 6; ++i) EXPECT_EQ(x.data<std::int32_t>()[i], i + 1);
    // Three axes: element (a, b, c) of shape (2, 1, 3) lies at a + 2 * (b + 1 * c).
    const Tensor y = load(npy(header("<i4", "(2, 1, 3)", "True"), data));
    EXPECT_EQ(y.data<std::int32_t>()[2], 3);
    EXPECT_EQ(y.data<std::int32_t>()[3], 4);
}

TEST_F(Npy, ReadsOtherSpellingsOfTheHeader) {
    const std::string four(4, '\0');
    load(npy("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}", four));
    load(npy("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 1 , ) }            \n", four));
    load(npy(header("<f4", "(1, 1,)"), four));
}

TEST_F(Npy, RefusesMalformedFiles) {
    const std::string four(4, '\0'), good = npy(header("<f4", "(1,)"), four);
    for (std::size_t length = 0; length < good.size(); ++length) refuses(good.substr(0, length), {});
    refuses(good + "x", {"4 bytes", "5 follow"});
    refuses("\x94NUMPY" + good.substr(6), {"not a .npy file"});
    refuses(npy(header("<f4", "(2,)"), four), {"8 bytes", "4 follow"});
    refuses(npy(header("<f4", "(4611686018427387904, 4611686018427387904)"), four), {"any memory"});
    refuses(npy(header("<f4", "(0, 4611686018427387904, 8)"), ""), {"any memory"});
    refuses(npy(header("<f4", "(99999999999999999999,)"), four), {"63 bits"});
    refuses(npy(header("<f4", "(-1,)"), four), {"63 bits"});
    refuses(npy(header("<f4", "(1)"), four), {"not a tuple"});
    refuses(npy(header("<f4", "1"), four), {"'('"});
    refuses(npy(header("<f4", "(1,1,1,1,1,1,1,1,1)"), four), {"8 dimensions"});
    refuses(npy(header("<f4", "(1,)", "Maybe"), four), {"True or False"});
    refuses(npy("{'descr': '<f4', 'shape': (1,), }", four), {"missing"});
    refuses(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", four), {"'descr'"});
    refuses(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", four), {"'x'"});
    refuses(npy("{'descr': '<f4, 'fortran_order': False, 'shape': (1,), }", four), {"malformed"});
    refuses(npy("{'descr': '<f4", four), {"does not end"});
    refuses(npy(header("<f4", "(1,)") + "x", four), {"follows the dictionary"});
    refuses(npy("", four), {"'{'"});
    refuses(npy(header("|b1", "(2,)"), std::string("\0\2", 2)), {"element 1", "is 2"});
    put_file(path_, good);
    expect_error(ErrorCode::bad_data, {"limit of 10", "header_bytes"},
                 [&] { load_npy(path_, {.header_bytes = 10}); });
    expect_error(ErrorCode::io, {"no.npy"}, [&] { load_npy(dir_ / "no.npy"); });
}

TEST_F(Npy, NamesWhatItDoesNotSupport) {
    for (const char* descr : {">f4", "<c8", "|u1", "<u4", "<U3", "|O", "|V2", ""}) {
        refuses(npy(header(descr, "(1,)"), "abcd"), {descr, "<f4"}, ErrorCode::unsupported);
    }
    refuses(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"), {"records"},
            ErrorCode::unsupported);
    refuses(npy(header("<f4", "(1,)"), "abcd", 4), {"version 4"}, ErrorCode::unsupported);
}

TEST_F(Npy, WritesWhatNumPyWrites) {
    const auto expected = [](const std::string& dictionary, std::string_view data) {
        std::string text = dictionary;
        text.resize(64 * 2 - 10 - 1, ' ');
        return npy(text + "\n", data);
    };
    Tensor x(DType::f32, {2, 1});
    x.data<float>()[0] = 1;
    save_npy(path_, x);
    EXPECT_EQ(get_file(path_), expected("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }",
                                        little(0x3f800000, 4) + little(0, 4)));
    save_npy(path_, x.view().slice(0, 0, 1).slice(1, 0, 0));
    EXPECT_EQ(get_file(path_), expected("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 0), }", ""));

    Tensor bf16(DType::bf16, {1});
    bf16.data<std::uint16_t>()[0] = 0x3fc0;
    save_npy(path_, bf16);
    EXPECT_EQ(get_file(path_),
              expected("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", little(0x3fc00000, 4)));

    Tensor flag(DType::boolean, {});
    flag.data<std::uint8_t>()[0] = 9;
    save_npy(path_, flag);
    EXPECT_EQ(get_file(path_), expected("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "\1"));
    expect_error(ErrorCode::invalid_argument, {"no tensor"}, [&] { save_npy(path_, {}); });
}

TEST_F(Npy, StridedViewsAreWrittenInTheirOwnOrder) {
    Tensor x(DType::i64, {2, 3});
    for (int i = 0; i < 6; ++i) x.data<std::int64_t>()[i] = i;
    save_npy(path_, x.view().swap_axes(0, 1));
    const Tensor read = load_npy(path_);
    EXPECT_EQ(read.view().describe(), "i64 [3, 2]");
    const std::int64_t order[] = {0, 3, 1, 4, 2, 5};
    EXPECT_EQ(std::memcmp(read.data<std::int64_t>(), order, sizeof order), 0);
}

TEST(TensorSpec, TellsFilesFromNames) {
    const TempDir dir;
    Tensor x(DType::f32, {1}), y(DType::f32, {2});
    save_npy(dir / "a:b.npy", x);
    save_safetensors(dir / "one", {{"x:y", y}});
    save_safetensors(dir / "two:parts.safetensors", {{"x", x}, {"layer:0", y}});
    std::filesystem::create_directory(dir / "model");
    save_safetensors(dir / "model/model.safetensors", {{"x", x}});

    EXPECT_EQ(load_tensor(dir / "a:b.npy").count(), 1);
    EXPECT_EQ(load_tensor(dir / "one").count(), 2);
    EXPECT_EQ(load_tensor(dir / "one:x:y").count(), 2);
    EXPECT_EQ(load_tensor(dir / "two:parts.safetensors:x").count(), 1);
    EXPECT_EQ(load_tensor(dir / "two:parts.safetensors:layer:0").count(), 2);
    EXPECT_EQ(load_tensor(dir / "model:x").count(), 1);

    expect_error(ErrorCode::invalid_argument, {"2 tensors", "FILE:NAME", "'layer:0', 'x'"},
                 [&] { load_tensor(dir / "two:parts.safetensors"); });
    expect_error(ErrorCode::bad_data, {"no tensor 'z'", "'x:y'"}, [&] { load_tensor(dir / "one:z"); });
    expect_error(ErrorCode::invalid_argument, {".npy", "':x'"}, [&] { load_tensor(dir / "a:b.npy:x"); });
    expect_error(ErrorCode::io, {"none", "no such file"}, [&] { load_tensor(dir / "none:x"); });
    expect_error(ErrorCode::io, {"no such file"}, [] { load_tensor(""); });
    expect_error(ErrorCode::io, {"no such file"}, [] { load_tensor(":x"); });
    save_safetensors(dir / "none.safetensors", {});
    expect_error(ErrorCode::bad_data, {"no tensors"}, [&] { load_tensor(dir / "none.safetensors"); });
}

}  // namespace
}  // namespace headwise
