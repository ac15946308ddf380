// The judge itself is on trial: a runner that cannot fail proves nothing. Vectors are copied, altered in one place, and
// must then fail for that reason.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include <headwise/cpu.h>
#include <headwise/weights.h>

#include "conformance/json.h"
#include "conformance/judge.h"
#include "conformance/runner.h"
#include "conformance/sha256.h"

namespace headwise::conformance {
namespace {

namespace fs = std::filesystem;

const std::string kVectors = "tests/vectors";  // tests run in the root of the project
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Ran {
    int code = 0;
    std::string out{}, errors{};
};

Ran run_with(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv = {"headwise_conformance"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    std::ostringstream out, errors;
    const int code = run_command_line(static_cast<int>(argv.size()), argv.data(), out, errors);
    set_isa("");
    set_threads(0);
    return {code, out.str(), errors.str()};
}

fs::path make_directory() {
    std::string pattern = (fs::temp_directory_path() / "headwise_vectors_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw BadData("cannot make a directory like " + pattern);
    return pattern;
}

// Overwrites element `index` of a tensor in place; the file's form stays as it is.
template <class T>
void overwrite(const fs::path& path, const std::string& tensor, std::int64_t index, T value) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    std::uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), 8);
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const Value info = parse_json(header, "header").at(tensor);
    const std::int64_t begin = info.at("data_offsets").as_integers()[0];
    file.seekp(8 + static_cast<std::int64_t>(header_bytes) + begin + index * static_cast<std::int64_t>(sizeof(T)));
    file.write(reinterpret_cast<const char*>(&value), sizeof(T));
    ASSERT_TRUE(file.good());
}

// A copy of one suite's manifest and of one of its vector files, in a directory that goes with the test.
class Copy {
public:
    Copy(const std::string& suite, const std::string& name) : name_(name) {
        directory_ = make_directory();
        const fs::path from = fs::path(kVectors) / suite;
        manifest_ = parse_json(read_file((from / "manifest.json").string()), "manifest");
        for (const Value& line : manifest_.at("tests").items) {
            if (line.at("name").as_text() == name) line_ = line;
        }
        file_ = directory_ / line_.at("file").as_text();
        fs::create_directories(file_.parent_path());
        fs::copy_file(from / line_.at("file").as_text(), file_);
        write_manifest(line_);
    }
    ~Copy() { fs::remove_all(directory_); }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

    std::string path() const { return directory_.string(); }
    fs::path file() const { return file_; }
    const Value& line() const { return line_; }

    void write_manifest(const Value& line) const {
        Value manifest = Value::object().set("format", 1).set("tests", Value::list().add(line));
        if (const Value* tolerance = manifest_.find("default_tolerance")) {
            manifest.set("default_tolerance", *tolerance);
        }
        std::ofstream(directory_ / "manifest.json") << to_json(manifest);
    }

    template <class T>
    void set(const std::string& tensor, std::int64_t index, T value) const {
        overwrite(file_, tensor, index, value);
    }

private:
    std::string name_;
    fs::path directory_, file_;
    Value manifest_, line_;
};

constexpr const char* kPlain = "causal_bottom_right_3x8";

TEST(Sha256, KnownSums) {  // FIPS 180-4 examples
    EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256(std::string(1000000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Judge, CountsNanAndInfBeforeErrors) {
    const std::vector<double> expected = {1, kNan, kInf, 0}, bounds = {0.5, 0.5, 0.5, 0};
    const auto judged = [&](std::vector<double> got, const JudgeRules& rules = {}) {
        return judge("x", ConstTensorView(got.data(), DType::f64, {4}),
                     ConstTensorView(expected.data(), DType::f64, {4}), bounds, rules);
    };
    EXPECT_EQ(judged({1.25, kNan, kInf, 0}).fault, "");
    EXPECT_EQ(judged({1.25, kNan, kInf, 0}).worst_ratio, 0.5);
    EXPECT_NE(judged({1.75, kNan, kInf, 0}).fault, "");
    EXPECT_NE(judged({kNan, kNan, kInf, 0}).fault, "");
    EXPECT_NE(judged({kInf, kNan, kInf, 0}).fault, "");
    EXPECT_NE(judged({1, 7, kInf, 0}).fault, "");
    EXPECT_NE(judged({1, kNan, -kInf, 0}).fault, "");
    EXPECT_NE(judged({1, kNan, 7, 0}).fault, "");
    EXPECT_NE(judged({1, kInf, kInf, 0}).fault, "");
    EXPECT_EQ(judged({1, kInf, kInf, 0}, {.nan_may_be_inf = true}).fault, "");
    EXPECT_NE(judged({1, -kInf, kInf, 0}, {.nan_may_be_inf = true}).fault, "");
    EXPECT_NE(judged({1, kNan, kInf, 1e-300}).fault, "");  // exactly zero is expected exactly
    EXPECT_EQ(judged({1, kNan, kInf, 1e-300}).worst_ratio, kInf);
}

TEST(Judge, ABoundThatIsNanFails) {
    const std::vector<double> one = {1};
    const ConstTensorView view(one.data(), DType::f64, {1});
    EXPECT_NE(judge("x", view, view, {kNan}).fault, "");
}

TEST(Judge, FindsAWriteBetweenRows) {
    Tensor storage = make_output(DType::bf16, {2, 3});
    const TensorView rows = storage.view().slice(1, 0, 2);
    EXPECT_EQ(find_written_gap(storage, rows), "");
    storage.data<std::uint16_t>()[1] = 0;  // inside the rows
    EXPECT_EQ(find_written_gap(storage, rows), "");
    storage.data<std::uint16_t>()[5] = 0;
    EXPECT_NE(find_written_gap(storage, rows), "");
}

TEST(Runner, PassesAVectorAsItIs) {
    const Copy copy("attention", kPlain);
    const Ran run = run_with({copy.path()});
    EXPECT_EQ(run.code, 0) << run.out << run.errors;
    EXPECT_NE(run.out.find("1 passed, 0 failed, 0 skipped\n"), std::string::npos) << run.out;
}

TEST(Runner, AnAlteredFileFailsByItsSum) {
    const Copy copy("attention", kPlain);
    copy.set("out", 0, 1000.0);
    const Ran run = run_with({copy.path()});
    EXPECT_EQ(run.code, 1);
    EXPECT_NE(run.out.find("sha256"), std::string::npos) << run.out;
}

// Each altered value alone must be caught by comparison.
TEST(Runner, AnAlteredExpectedValueFailsWithoutSums) {
    for (const char* output : {"out", "lse"}) {
        for (const double value : {1000.0, kNan, kInf, -kInf}) {
            const Copy copy("attention", kPlain);
            copy.set(output, 3, value);
            const Ran run = run_with({copy.path(), "--no-sha"});
            EXPECT_EQ(run.code, 1) << output << " " << value << "\n" << run.out;
            EXPECT_NE(run.out.find("0 passed, 1 failed, 0 skipped\n"), std::string::npos) << run.out;
            const char* reason = std::isfinite(value) ? ": 1 of " : ": 1 times NaN or Inf not as expected";
            EXPECT_NE(run.out.find(output + std::string(reason)), std::string::npos) << run.out;
        }
    }
}

// The bound is tight enough to see an error of 1e-5 in values of order 1.
TEST(Runner, ASmallErrorFails) {
    for (const char* output : {"out", "lse"}) {
        const Copy copy("attention", kPlain);
        conformance::Test test;
        test.files = {{copy.file().string(), ""}};
        test.outputs = {{output, {"F64", copy.line().at("outputs").at(output).at("shape").as_integers()}}};
        TensorSet tensors(test);
        const double value = static_cast<const double*>(tensors.expected(output).data)[0];
        copy.set(output, 0, value + 1e-5);
        EXPECT_EQ(run_with({copy.path(), "--no-sha"}).code, 1) << output;
    }
}

TEST(Runner, NanInAnInputFails) {
    const Copy copy("attention", kPlain);
    copy.set("v", 0, std::numeric_limits<float>::quiet_NaN());
    const Ran run = run_with({copy.path(), "--no-sha"});
    EXPECT_EQ(run.code, 1) << run.out;
}

TEST(Runner, AlteredOutputsOfTheOtherSuitesFail) {
    const Copy torch("torch_mha", "e8h2");
    torch.set("output", 0, kNan);
    EXPECT_EQ(run_with({torch.path(), "--no-sha"}).code, 1);
    const Copy onnx("onnx", "test_attention_4d");
    onnx.set("Y", 0, 1000.0f);
    EXPECT_EQ(run_with({onnx.path(), "--no-sha"}).code, 1);
    const Copy rope("rope_norm", "half");
    rope.set("y", 0, 1000.0);
    EXPECT_EQ(run_with({rope.path(), "--no-sha"}).code, 1);
}

TEST(Runner, AnUnknownAttributeOrInputIsSkippedByName) {
    const Copy copy("attention", kPlain);
    Value line = copy.line();
    for (std::size_t i = 0; i < line.keys.size(); ++i) {
        if (line.keys[i] == "attributes") line.items[i].set("squareness", 2);
    }
    copy.write_manifest(line);
    Ran run = run_with({copy.path()});
    EXPECT_EQ(run.code, 0);
    EXPECT_NE(run.out.find("squareness"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("0 passed, 0 failed, 1 skipped\n"), std::string::npos) << run.out;

    line = copy.line();
    for (std::size_t i = 0; i < line.keys.size(); ++i) {
        if (line.keys[i] != "inputs") continue;
        line.items[i].set("wheels", line.items[i].items[0]);
    }
    copy.write_manifest(line);
    run = run_with({copy.path()});
    EXPECT_NE(run.out.find("input wheels"), std::string::npos) << run.out;
}

// A case of the models, copied with its directory.
class CaseCopy {
public:
    explicit CaseCopy(const std::string& id) : directory_(make_directory()), case_(directory_ / id) {
        const fs::path from = fs::path(kVectors) / "models";
        fs::create_directories(case_.parent_path());
        fs::copy(from / id, case_, fs::copy_options::recursive);
        const Value models = parse_json(read_file((from / "manifest.json").string()), "manifest");
        for (const Value& line : models.at("cases").items) {
            if (line.at("id").as_text() != id) continue;
            const Value manifest = Value::object().set("format", 1).set("cases", Value::list().add(line));
            std::ofstream(directory_ / "manifest.json") << to_json(manifest);
        }
    }
    ~CaseCopy() { fs::remove_all(directory_); }
    CaseCopy(const CaseCopy&) = delete;
    CaseCopy& operator=(const CaseCopy&) = delete;

    Ran run() const { return run_with({directory_.string(), "--no-sha"}); }
    fs::path vectors() const { return case_ / "cases.safetensors"; }

private:
    fs::path directory_, case_;
};

TEST(Runner, AnAlteredModelOutputFailsUnderEachConfigFile) {
    const CaseCopy copy("llama/plain_mha");  // two layers, two config files
    EXPECT_NE(copy.run().out.find("4 passed, 0 failed, 0 skipped\n"), std::string::npos);
    overwrite(copy.vectors(), "L0.y", 0, 1000.0);
    const Ran run = copy.run();
    EXPECT_EQ(run.code, 1);
    EXPECT_NE(run.out.find("2 passed, 2 failed, 0 skipped\n"), std::string::npos) << run.out;
}

// Rows of padding are not compared, the others are.
TEST(Runner, OnlyRealRowsOfAModelAreCompared) {
    const CaseCopy copy("bert/padded");
    const Tensor real = TensorFile(copy.vectors().string()).load("padding_mask");
    const Tensor y = TensorFile(copy.vectors().string()).load("L0.y");
    const auto* mask = real.data<std::uint8_t>();
    const std::int64_t padding = std::find(mask, mask + real.count(), 0) - mask;
    ASSERT_LT(padding, real.count());
    overwrite(copy.vectors(), "L0.y", padding * y.size(2), kNan);
    EXPECT_EQ(copy.run().code, 0);
    const std::int64_t row = std::find(mask, mask + real.count(), 1) - mask;
    overwrite(copy.vectors(), "L0.y", row * y.size(2), kNan);
    EXPECT_EQ(copy.run().code, 1);
}

TEST(Runner, RecordOnlyNeverFails) {
    const Copy copy("torch_mha", "causal_hint_against_mask");
    copy.set("output", 0, 1000.0);
    EXPECT_EQ(run_with({copy.path(), "--no-sha"}).code, 0);
}

TEST(Runner, ExitCodesTellWhatIsWrong) {
    EXPECT_EQ(run_with({}).code, 2);
    EXPECT_EQ(run_with({"--nonsense"}).code, 2);
    EXPECT_EQ(run_with({kVectors, "--threads", "0"}).code, 2);
    EXPECT_EQ(run_with({kVectors, "--isa", "abacus", "--only", kPlain}).code, 2);
    EXPECT_EQ(run_with({kVectors, "--only", "no such name"}).code, 2);
    EXPECT_EQ(run_with({kVectors + "/nowhere"}).code, 3);
    const Copy copy("attention", kPlain);
    fs::remove(copy.file());
    EXPECT_EQ(run_with({copy.path()}).code, 3);
    std::ofstream(fs::path(copy.path()) / "manifest.json") << "{";
    EXPECT_EQ(run_with({copy.path()}).code, 3);
}

TEST(Runner, JsonIsOneObjectALine) {
    const Ran run =
        run_with({kVectors + "/attention", "--only", kPlain, "--json", "--isa", "portable16", "--threads", "2"});
    std::istringstream lines(run.out);
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const Value test = parse_json(line, "first line");
    EXPECT_EQ(test.at("suite").as_text(), "attention");
    EXPECT_EQ(test.at("name").as_text(), kPlain);
    EXPECT_EQ(test.at("isa").as_text(), "portable16");
    EXPECT_EQ(test.at("threads").as_integer(), 2);
    EXPECT_EQ(test.at("status").as_text(), "PASS");
    EXPECT_EQ(test.at("outputs").items[0].at("name").as_text(), "out");
    EXPECT_LE(test.at("outputs").items[0].at("worst_ratio").as_number(), 1);
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(parse_json(line, "last line").at("failed").as_integer(), 0);
    EXPECT_FALSE(std::getline(lines, line));
}

}  // namespace
}  // namespace headwise::conformance
