#include "kernels/dispatch.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string>

#include <headwise/cpu.h>

#include "core/check.h"
#include "kernels/cpu.h"

namespace headwise {

#define HEADWISE_ISA_ENTRY(name)     \
    namespace name {                 \
    extern const KernelTable kTable; \
    }
#include "isa_list.inc"
#undef HEADWISE_ISA_ENTRY

namespace {

constexpr const KernelTable* kBuilt[] = {
#define HEADWISE_ISA_ENTRY(name) &name::kTable,
#include "isa_list.inc"
#undef HEADWISE_ISA_ENTRY
};

enum class Choice { best, environment, set_isa };

constexpr std::size_t kMaxAdded = 8;

// Constant-initialised and trivially destroyed, so a call may come from any constructor or destructor of the host.
struct Active {
    std::atomic<const KernelTable*> table{nullptr};  // the one in force; null until a call chooses
    std::mutex mutex;                                // guards the rest, and every change of `table`
    Choice choice = Choice::best;
    std::array<const KernelTable*, kMaxAdded> added{};  // null from the first free place on
};
constinit Active active;

void append(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

// What there is, for the end of a message. The caller holds the mutex.
std::string listing() {
    std::string usable, others;
    for (const KernelTable* table : kBuilt) {
        const std::string missing = missing_features(table->isa);
        if (missing.empty()) {
            append(usable, table->isa);
        } else {
            append(others, text(table->isa, " (needs ", missing, ")"));
        }
    }
    for (const KernelTable* table : active.added) {
        if (table != nullptr) append(usable, table->isa);
    }
    return text("usable here: ", usable, others.empty() ? "" : "; built, but not usable here: ", others);
}

// The caller holds the mutex; `where` begins the message.
const KernelTable& find(std::string_view name, std::string_view where) {
    for (const KernelTable* table : kBuilt) {
        if (table->isa != name) continue;
        const std::string missing = missing_features(name);
        if (missing.empty()) return *table;
        fail(ErrorCode::invalid_argument, where, ": instruction set \"", name, "\" needs ", missing,
             ", which this machine does not have; name one of those that it can run; ", listing());
    }
    for (const KernelTable* table : active.added) {
        if (table != nullptr && table->isa == name) return *table;
    }
    fail(ErrorCode::invalid_argument, where, ": no instruction set \"", name,
         "\" in this build; name one of the list; ", listing());
}

const KernelTable& best() {
    for (const KernelTable* table : kBuilt) {
        if (missing_features(table->isa).empty()) return *table;
    }
    fail(ErrorCode::internal, "kernels: no instruction set of this build runs here, not even scalar");
}

const KernelTable& choose() {
    const std::lock_guard lock(active.mutex);
    if (const KernelTable* table = active.table.load(std::memory_order_relaxed)) return *table;
    const char* name = std::getenv("HEADWISE_ISA");
    const bool forced = name != nullptr && *name != '\0';
    const KernelTable& table = forced ? find(name, "environment variable HEADWISE_ISA") : best();
    active.choice = forced ? Choice::environment : Choice::best;
    active.table.store(&table, std::memory_order_release);
    return table;
}

}  // namespace

const KernelTable& kernels() {
    const KernelTable* table = active.table.load(std::memory_order_acquire);
    return table != nullptr ? *table : choose();
}

std::vector<const KernelTable*> built_tables() { return {std::begin(kBuilt), std::end(kBuilt)}; }

std::vector<const KernelTable*> usable_tables() {
    std::vector<const KernelTable*> tables = built_tables();
    std::erase_if(tables, [](const KernelTable* table) { return !missing_features(table->isa).empty(); });
    return tables;
}

void add_table(const KernelTable& table) {
    const std::lock_guard lock(active.mutex);
    for (const KernelTable*& place : active.added) {
        if (place == &table) return;
        if (place != nullptr) continue;
        place = &table;
        return;
    }
    fail(ErrorCode::internal, "add_table: ", kMaxAdded, " tables are added already");
}

std::vector<IsaInfo> isas() {
    std::vector<IsaInfo> infos;
    for (const KernelTable* table : kBuilt) {
        const std::string missing = missing_features(table->isa);
        infos.push_back({.name = table->isa,
                         .usable = missing.empty(),
                         .reason = missing.empty() ? "" : "this machine does not have " + missing});
    }
    return infos;
}

std::string active_isa() { return kernels().isa; }

std::string active_isa_reason() {
    kernels();
    const std::lock_guard lock(active.mutex);
    switch (active.choice) {
        case Choice::environment:
            return "HEADWISE_ISA";
        case Choice::set_isa:
            return "set_isa";
        case Choice::best:
            break;
    }
    return "best of this CPU";
}

void set_isa(std::string_view name) {
    const std::lock_guard lock(active.mutex);
    const KernelTable* table = name.empty() ? nullptr : &find(name, "set_isa");
    active.choice = Choice::set_isa;
    active.table.store(table, std::memory_order_release);
}

}  // namespace headwise
