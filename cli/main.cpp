// The command line of headwise: flags into option structs, exceptions into exit codes. The only file that sees CLI11.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <map>
#include <new>
#include <string>

#include <CLI/CLI.hpp>

#include <headwise/cpu.h>
#include <headwise/error.h>

#include "cli/commands.h"

namespace {

using namespace headwise;
using namespace headwise::cli;

// Flags as typed, where the option structs hold something else.
struct Typed {
    std::string dtype;
    bool causal = false;
};

// A range whose bounds show in an error message, not in the help.
CLI::Validator between(std::int64_t low, std::int64_t high) { return CLI::Range(low, high).description(""); }

constexpr std::int64_t kMostSize = 1 << 20;  // of a layer made up on the command line

void add_machine(CLI::App& command, Machine& machine) {
    command
        .add_option("--isa", machine.isa, "Instruction set, one that `headwise info` lists (else HEADWISE_ISA)")
        ->type_name("NAME");
    command.add_option("--threads", machine.threads, "Threads to use (else HEADWISE_THREADS, else all)")
        ->check(between(1, 4096))
        ->type_name("N");
}

void add_json(CLI::App& command, bool& json) {
    command.add_flag("--json", json, "Print one JSON object instead of text");
}

void add_storage(CLI::App& command, Typed& typed) {
    command.add_option("--dtype", typed.dtype, "Storage of weights, q, k, v and y (default f32)")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}))
        ->type_name("TYPE");
}

CLI::Option* add_model(CLI::App& command, LayerChoice& layer) {
    command.add_option("--layer", layer.layer, "Layer number, from 0 (default 0)")
        ->check(between(0, std::numeric_limits<std::int64_t>::max()))
        ->type_name("N");
    command
        .add_option("--part", layer.part,
                    "Which attention, where a layer has several: encoder, decoder, cross, ...")
        ->type_name("NAME");
    return command
        .add_option("--model", layer.model, "Directory of config.json and *.safetensors, or a .gguf file")
        ->type_name("PATH");
}

void add_cache(CLI::App& command, RunOptions& options) {
    command.add_option("--cache", options.cache, "Run through a key/value cache: contiguous, ring or paged")
        ->check(CLI::IsMember({"contiguous", "ring", "paged"}))
        ->type_name("KIND");
    command.add_option("--cache-type", options.cache_type, "Storage of the cache (default f32)")
        ->check(CLI::IsMember({"f32", "bf16", "f16", "int8", "int4"}))
        ->type_name("TYPE");
    command.add_option("--page-size", options.page_size, "Tokens of a page of a paged cache (default 64)")
        ->check(between(1, kMostSize))
        ->type_name("N");
    command.add_option("--capacity", options.capacity, "Keys that the cache can hold (default: all of the input)")
        ->check(between(1, std::numeric_limits<std::int32_t>::max()))
        ->type_name("N");
    command.add_option("--decode", options.decode, "Give the last N tokens one at a time, through a cache")
        ->check(between(0, std::numeric_limits<std::int32_t>::max()))
        ->type_name("N");
}

void add_files(CLI::App& command, RunOptions& options) {
    command.add_option("--input", options.input, "x, [B,T,E] or [T,E], from a .safetensors, .gguf or .npy file")
        ->required()
        ->type_name("FILE[:NAME]");
    command.add_option("--key", options.key, "Source of keys and values for cross attention, [B,S,E]")
        ->type_name("FILE[:NAME]");
    command.add_option("--lengths", options.lengths, "Real tokens of each sequence: i,j,... or FILE:NAME")
        ->type_name("LIST");
    command.add_option("--positions", options.positions, "Rotary positions, [T] or [B,T]: i,j,... or FILE:NAME")
        ->type_name("LIST");
    command.add_option("--out", options.out, "Write y: .npy, or .safetensors (tensor name y)")->type_name("FILE");
    command.add_option("--weights-out", options.weights_out, "Write attention weights [B,H,T,S], likewise")
        ->type_name("FILE");
    command.add_option("--scores", options.scores, "What --weights-out writes (default weights)")
        ->check(CLI::IsMember({"raw", "capped", "masked", "weights"}))
        ->type_name("KIND");
    command.add_option("--check", options.check, "Compare y with this tensor; exit 1 beyond the tolerance")
        ->type_name("FILE[:NAME]");
    command
        .add_option("--tolerance", options.tolerance, "Max error / max|y| (default f32 4e-6, bf16 2e-2, f16 2e-3)")
        ->type_name("PART");
}

CLI::App& add_run(CLI::App& app, RunOptions& options, Typed& typed) {
    CLI::App& command = *app.add_subcommand("run", "Compute attention layers of a checkpoint, and check them");
    add_model(command, options.layer)->required();
    command
        .add_option("--layers", options.layers,
                    "Several layers: 0,8,16 or 2-5 or all; {layer} in a FILE is the number")
        ->excludes("--layer")
        ->type_name("LIST");
    add_files(command, options);
    command.add_flag("--causal,!--no-causal", typed.causal,
                     "Hide later tokens or not, where the family leaves it open");
    add_storage(command, typed);
    add_cache(command, options);
    command.add_option("--repeat", options.repeat, "Compute N times, report the best time (default 1)")
        ->check(between(1, 1'000'000))
        ->type_name("N");
    add_machine(command, options.machine);
    add_json(command, options.json);
    command.footer(
        "Example:\n"
        "  headwise run --model samples/smollm2 --layers all --decode 8 \\\n"
        "    --input samples/smollm2/hidden.safetensors:text.layer{layer}.in \\\n"
        "    --check samples/smollm2/hidden.safetensors:text.layer{layer}.out");
    return command;
}

CLI::App& add_trace(CLI::App& app, TraceOptions& options, Typed& typed) {
    CLI::App& command =
        *app.add_subcommand("trace", "Show every view from x to y: shape, strides, address, copies");
    add_model(command, options.layer)
        ->description("Model directory or .gguf file; without it a layer with random weights");
    CLI::Option* input =
        command.add_option("--input", options.input, "x, [B,T,E] or [T,E] (default: random numbers)")
            ->type_name("FILE[:NAME]");
    command.add_option("--tokens", options.tokens, "Tokens of the random x (default 8)")
        ->check(between(1, kMostSize))
        ->excludes(input)
        ->type_name("T");
    CLI::Option* embed = command.add_option("--embed", options.embed, "Without a model: width of x")
                             ->check(between(1, kMostSize))
                             ->type_name("E");
    command.add_option("--heads", options.heads, "Query heads; several: compared, the first is traced")
        ->check(between(1, kMostSize))
        ->delimiter(',')
        ->type_name("H[,H...]");
    command.add_option("--kv-heads", options.kv_heads, "Key/value heads; several: compared, the first is traced")
        ->check(between(1, kMostSize))
        ->delimiter(',')
        ->type_name("G[,G...]");
    command.add_option("--head-dim", options.head_dim, "Without a model: width of a head (default E/H)")
        ->check(between(1, kMostSize))
        ->needs(embed)
        ->type_name("D");
    command.add_option("--window", options.window, "Without a model: keys that a query sees, itself included")
        ->check(between(1, kMostSize))
        ->needs(embed)
        ->type_name("W");
    command.add_option("--context", options.context, "Tokens of the cache table (default: those of the input)")
        ->check(between(1, std::numeric_limits<std::int32_t>::max()))
        ->type_name("N");
    command.add_flag("--causal,!--no-causal", typed.causal,
                     "Hide later tokens or not, where the family leaves it open");
    add_storage(command, typed);
    add_machine(command, options.machine);
    add_json(command, options.json);
    command.footer(
        "Examples:\n"
        "  headwise trace --model samples/smollm2 --layer 8 --context 8192\n"
        "  headwise trace --embed 512 --heads 8 --kv-heads 2,4 --tokens 16");
    return command;
}

CLI::App& add_example(CLI::App& app, ExampleOptions& options) {
    CLI::App& command = *app.add_subcommand("example", "Work two heads by hand, every number shown and checked");
    add_machine(command, options.machine);
    add_json(command, options.json);
    command.footer("Example:\n  headwise example");
    return command;
}

CLI::App& add_info(CLI::App& app, InfoOptions& options) {
    CLI::App& command =
        *app.add_subcommand("info", "Show the CPU, the instruction set chosen and why, the kernels");
    add_machine(command, options.machine);
    add_json(command, options.json);
    command.footer("Example:\n  headwise info --json");
    return command;
}

// What the user typed for --dtype and --causal; an option that was not given stays open.
void settle(const CLI::App& command, const Typed& typed, LayerChoice& choice) {
    static const std::map<std::string, DType> kTypes = {
        {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
    if (!typed.dtype.empty()) choice.dtype = kTypes.at(typed.dtype);
    if (command.count("--causal") > 0) choice.causal = typed.causal;
}

Exit exit_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::invalid_argument:
        case ErrorCode::cache_full:
            return Exit::wrong_use;
        case ErrorCode::bad_data:
        case ErrorCode::io:
        case ErrorCode::unsupported:
            return Exit::bad_data;
        case ErrorCode::out_of_memory:
        case ErrorCode::internal:
            break;
    }
    return Exit::our_fault;
}

Exit complain(const std::string& where, const std::string& message, Exit code) {
    std::fprintf(stderr, "%s: %s\n", where.c_str(), message.c_str());
    return code;
}

// Runs a command; whatever goes wrong becomes one sentence and an exit code.
template <class Command>
Exit guarded(const std::string& where, Command&& command) {
    try {
        return command();
    } catch (const Error& error) {
        return complain(where, error.what(), exit_of(error.code()));
    } catch (const std::bad_alloc&) {
        return complain(where, "out of memory", Exit::our_fault);
    } catch (const std::exception& error) {
        return complain(where, std::string("a defect of headwise itself: ") + error.what(), Exit::our_fault);
    }
}

Exit complain_about_flags(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
    const auto used = app.get_subcommands();
    if (!used.empty()) {
        const std::string where = "headwise " + used.front()->get_name();
        return complain(where, std::string(error.what()) + " (see " + where + " --help)", Exit::wrong_use);
    }
    const std::string wanted =
        argc > 1 ? "\"" + std::string(argv[1]) + "\" is not a command" : "a command is missing";
    return complain("headwise", wanted + "; it is run, trace, example or info (see headwise --help)",
                    Exit::wrong_use);
}

Exit parse_and_run(int argc, char** argv) {
    CLI::App app("headwise: exact multi-head attention on CPUs, one layer at a time", "headwise");
    app.set_version_flag("--version", std::string("headwise ") + version(), "Print the version and exit");
    app.require_subcommand(1);
    app.get_formatter()->column_width(32);
    app.footer(
        "Example:\n  headwise example\n\nExit codes: 0 done, 1 a check failed, 2 wrong use, 3 bad data, 4 a "
        "defect of "
        "headwise.\nEach command has its own --help.");

    RunOptions run_options;
    TraceOptions trace_options;
    ExampleOptions example_options;
    InfoOptions info_options;
    Typed run_typed, trace_typed;
    CLI::App& run_command = add_run(app, run_options, run_typed);
    CLI::App& trace_command = add_trace(app, trace_options, trace_typed);
    CLI::App& example_command = add_example(app, example_options);
    add_info(app, info_options);

    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help and --version
        return app.exit(asked) == 0 ? Exit::done : Exit::our_fault;
    } catch (const CLI::ParseError& error) {
        return complain_about_flags(app, error, argc, argv);
    }
    settle(run_command, run_typed, run_options.layer);
    settle(trace_command, trace_typed, trace_options.layer);
    if (run_command.parsed()) return guarded("headwise run", [&] { return run(run_options); });
    if (trace_command.parsed()) return guarded("headwise trace", [&] { return trace(trace_options); });
    if (example_command.parsed()) return guarded("headwise example", [&] { return example(example_options); });
    return guarded("headwise info", [&] { return info(info_options); });
}

}  // namespace

int main(int argc, char** argv) {
    const Exit code = guarded("headwise", [&] { return parse_and_run(argc, argv); });
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return static_cast<int>(code);
    return static_cast<int>(complain("headwise", "standard output cannot be written", Exit::bad_data));
}
