#include "conformance/runner.h"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <set>

#include <headwise/cpu.h>
#include <headwise/error.h>

#include "conformance/judge.h"
#include "conformance/manifest.h"
#include "conformance/sha256.h"
#include "core/check.h"
#include "kernels/dispatch.h"

namespace headwise {

namespace portable16 {
extern const KernelTable kTable;
}

namespace conformance {

namespace {

struct Counts {
    std::int64_t passed = 0, failed = 0, skipped = 0;
    bool unreadable = false;
};

// A test, and what is wrong with its files; they are looked at once, however many ISAs follow.
struct Job {
    Test test;
    std::string fault{};
    bool unreadable = false;
};

Job inspect(Test test, bool check_sha256) {
    Job job{.test = std::move(test)};
    try {
        for (const VectorFile& file : job.test.files) {
            const std::string bytes = read_file(file.path);
            if (!check_sha256) continue;
            const std::string sum = sha256(bytes);
            if (sum == file.sha256) continue;
            job.fault = "sha256 of " + file.path + " is " + sum + ", the manifest says " + file.sha256;
            break;
        }
    } catch (const BadData& error) {
        job.fault = error.what();
        job.unreadable = true;
    }
    return job;
}

Outcome run_suite(const Test& test, const Execution& execution) {
    if (test.suite == "attention") return run_attention(test, execution);
    if (test.suite == "onnx") return run_onnx(test, execution);
    if (test.suite == "torch_mha") return run_torch_mha(test, execution);
    if (test.suite == "rope_norm") return run_rope_norm(test, execution);
    return run_models(test, execution);
}

Outcome run_job(const Job& job, const Execution& execution) {
    if (!job.fault.empty()) return {Status::fail, job.fault, {}, {}};
    try {
        return run_suite(job.test, execution);
    } catch (const Unsupported& missing) {
        return {Status::skip, "not supported yet: " + missing.what, {}, {}};
    } catch (const std::exception& error) {
        return {Status::fail, error.what(), {}, {}};
    }
}

void print_line(const Test& test, const Outcome& outcome, const std::string& isa, std::ostream& out) {
    out << name_of(outcome.status) << " " << test.suite << "/" << test.name << "  [" << isa << ", " << threads()
        << " threads]";
    for (const OutputResult& output : outcome.outputs) {
        out << "  " << output.name << " " << std::setprecision(3) << output.worst_ratio;
    }
    if (!outcome.outputs.empty()) out << " of bound";
    for (std::size_t i = 0; i < outcome.not_judged.size(); ++i) {
        out << (i == 0 ? "  not judged: " : ", ") << outcome.not_judged[i];
    }
    if (!outcome.reason.empty()) out << "  " << outcome.reason;
    out << "\n";
}

void print_json(const Test& test, const Outcome& outcome, const std::string& isa, std::ostream& out) {
    Value outputs = Value::list();
    for (const OutputResult& output : outcome.outputs) {
        outputs.add(Value::object().set("name", output.name).set("worst_ratio", output.worst_ratio));
    }
    Value not_judged = Value::list();
    for (const std::string& name : outcome.not_judged) not_judged.add(name);
    out << to_json(Value::object()
                       .set("suite", test.suite)
                       .set("name", test.name)
                       .set("isa", isa)
                       .set("threads", threads())
                       .set("status", name_of(outcome.status))
                       .set("reason", outcome.reason)
                       .set("outputs", outputs)
                       .set("not_judged", not_judged))
        << "\n";
}

void run_jobs(const std::vector<Job>& jobs, const Options& options, Counts& counts, std::ostream& out) {
    const std::string isa = active_isa();
    for (const Job& job : jobs) {
        const Outcome outcome = run_job(job, {.threads = options.threads});
        (outcome.status == Status::pass   ? counts.passed
         : outcome.status == Status::fail ? counts.failed
                                          : counts.skipped) += 1;
        counts.unreadable = counts.unreadable || job.unreadable;
        (options.json ? print_json : print_line)(job.test, outcome, isa, out);
    }
}

std::vector<Job> collect(const Options& options) {
    std::vector<Job> jobs;
    std::set<std::string> seen;
    for (const std::string& path : options.paths) {
        for (const std::string& manifest : find_manifests(path)) {
            if (!seen.insert(manifest).second) continue;
            for (Test& test : read_manifest(manifest)) {
                if (test.name.find(options.only) == std::string::npos) continue;
                jobs.push_back(inspect(std::move(test), options.check_sha256));
            }
        }
    }
    return jobs;
}

// The names to run on; what this machine cannot run is said aloud.
std::vector<std::string> choose_isas(const Options& options, std::ostream& errors) {
    add_table(portable16::kTable);
    if (options.isa != "all") return {options.isa};
    std::vector<std::string> names;
    for (const IsaInfo& isa : isas()) {
        if (isa.usable) {
            names.push_back(isa.name);
        } else {
            errors << "note: " << isa.name << " stays unproven here: " << isa.reason << "\n";
        }
    }
    if (std::find(names.begin(), names.end(), "portable16") == names.end()) names.emplace_back("portable16");
    return names;
}

void print_counts(const Counts& counts, bool json, std::ostream& out) {
    if (json) {
        out << to_json(Value::object()
                           .set("passed", static_cast<double>(counts.passed))
                           .set("failed", static_cast<double>(counts.failed))
                           .set("skipped", static_cast<double>(counts.skipped)))
            << "\n";
    } else {
        out << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped << " skipped\n";
    }
}

}  // namespace

int run(const Options& options, std::ostream& out, std::ostream& errors) {
    std::vector<Job> jobs;
    try {
        jobs = collect(options);
    } catch (const BadData& error) {
        errors << "headwise_conformance: " << error.what() << "\n";
        return 3;
    }
    if (jobs.empty() && !options.only.empty()) {
        errors << "headwise_conformance: no test has a name that contains \"" << options.only << "\"\n";
        return 2;
    }
    Counts counts;
    try {
        set_threads(options.threads);
        for (const std::string& isa : choose_isas(options, errors)) {
            set_isa(isa);
            run_jobs(jobs, options, counts, out);
        }
    } catch (const Error& error) {  // an ISA or a number of threads that cannot be had
        errors << "headwise_conformance: " << error.what() << "\n";
        return 2;
    }
    print_counts(counts, options.json, out);
    return counts.unreadable ? 3 : counts.failed > 0 ? 1 : 0;
}

}  // namespace conformance

}  // namespace headwise
