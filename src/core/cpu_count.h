// How many CPUs this process may use.
#pragma once

#include <string>

namespace headwise {

// The smaller of the affinity mask of the calling thread and the cgroup quota; at least 1. Read at the first call.
int available_cpus() noexcept;
void recount_cpus() noexcept;  // the next available_cpus() reads again

// Whole CPUs that the cgroup quotas (version 1 or 2, this group and all above it) leave to this process; 0 without a
// quota. A fraction is rounded down to at least 1: a thread beyond the quota stalls all others at the next join.
// `root` is put in front of every path that is read; tests point it at a made-up tree.
int cgroup_cpus(const std::string& root = "");

}  // namespace headwise
