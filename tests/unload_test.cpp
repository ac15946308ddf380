// A shared library with headwise in it is loaded, used from several threads, forked with and unloaded: afterwards none of
// its threads and handlers are left. The library, from unload_library.cpp, lies beside this program, which itself does
// not link headwise.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

namespace {

std::string library_path() {
    return std::filesystem::read_symlink("/proc/self/exe").replace_filename("libunload_library.so").string();
}

int own_threads() {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                          std::filesystem::directory_iterator()));
}

TEST(Unload, LeavesNoThreadsAndNoHandlers) {
    const std::string path = library_path();
    const int before = own_threads();
    for (int round = 0; round < 5; ++round) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
        auto* use = reinterpret_cast<int (*)(int)>(dlsym(library, "use_headwise"));
        ASSERT_NE(use, nullptr);
        EXPECT_EQ(use(4), 4950);
        EXPECT_EQ(own_threads(), before + 3);
        ASSERT_EQ(dlclose(library), 0);
        ASSERT_EQ(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << "still loaded: proves nothing";
        EXPECT_EQ(own_threads(), before);
        const pid_t child = fork();  // a handler that was left behind would be a jump into nowhere
        if (child == 0) _exit(0);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status));
    }
}

}  // namespace
