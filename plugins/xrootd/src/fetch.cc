// What an XRootD server runs when it is to fetch a file from another server (`ofs.tpc pgm`): the file is open at the server already, and is filled here.
//
//     forebay-xrootd-fetch STORE [-S STREAMS] SOURCE PATH

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <forebay.hpp>

namespace {

constexpr size_t BLOCK_BYTES = 1 << 20;

/// What it is told.
struct Words {
    std::string store, streams, source, path;
};

/// Says what is wrong; false.
bool refuse(const std::string &what) {
    std::fprintf(stderr, "forebay-xrootd-fetch: %s\n", what.c_str());
    return false;
}

bool parse(int count, char **given, Words &words) {
    std::vector<std::string> places;
    for (int number = 1; number < count; ++number) {
        const std::string word = given[number];
        if (word == "-C") {
            return refuse("a checksum cannot be compared while the file is fetched; nothing was fetched. Ask both servers for theirs afterwards (xrdcp --cksum without :type does)");
        }
        if (word == "-S" && number + 1 < count) {
            words.streams = given[++number];
        } else {
            places.push_back(word);
        }
    }
    if (places.size() != 3) {
        return refuse("STORE [-S STREAMS] SOURCE PATH are wanted, and " + std::to_string(places.size()) + " places were given");
    }
    words.store = places[0];
    words.source = places[1];
    words.path = places[2];
    return true;
}

/// Starts `xrdcp`, which writes the file to the pipe; its number, or -1.
pid_t start(const Words &words, int &pipe_end) {
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        std::vector<const char *> arguments = {"xrdcp", "--server", "--nopbar", "--silent"};
        if (!words.streams.empty()) {
            arguments.insert(arguments.end(), {"-S", words.streams.c_str()});
        }
        arguments.insert(arguments.end(), {words.source.c_str(), "-", nullptr});
        execvp(arguments[0], const_cast<char **>(arguments.data()));
        std::fprintf(stderr, "forebay-xrootd-fetch: xrdcp does not run: %s\n", std::strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    pipe_end = ends[0];
    return child;
}

/// Writes what comes to the file, durably; it is left unsealed, as whoever has it open closes it.
void fill(forebay::Writer &file, int from) {
    std::vector<char> block(BLOCK_BYTES);
    uint64_t place = 0;
    for (;;) {
        const ssize_t count = read(from, block.data(), block.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            throw std::runtime_error(std::string("the pipe from xrdcp: ") + std::strerror(errno));
        }
        if (count == 0) {
            break;
        }
        file.pwrite(place, block.data(), static_cast<size_t>(count));
        place += static_cast<uint64_t>(count);
    }
    file.close();
}

}  // namespace

int main(int count, char **given) {
    Words words;
    if (!parse(count, given, words)) {
        return 50;
    }
    int from = -1;
    pid_t child = -1;
    try {
        forebay::Files files(forebay::Config(words.store, "xrootd-fetch"));
        forebay::Writer file = files.open_write(words.path, 0);
        child = start(words, from);
        if (child < 0) {
            throw std::runtime_error(std::string("xrdcp does not start: ") + std::strerror(errno));
        }
        fill(file, from);
    } catch (const std::exception &error) {
        refuse(error.what());
        // It ends when nobody reads what it writes.
        close(from);
        if (child > 0) {
            waitpid(child, nullptr, 0);
        }
        return 51;
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 52;
}
