// Reads a file of a store, or writes one of what a local file holds, in requests of a MiB.
//
//     client read HOST:PORT PATH
//     client write HOST:PORT PATH LOCAL

#include <forebay.hpp>

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

int main(int count, char **words) {
    const std::string what = count > 3 ? words[1] : "";
    if (count != (what == "write" ? 5 : 4)) {
        std::fprintf(stderr, "usage: %s read HOST:PORT PATH | write HOST:PORT PATH LOCAL\n", words[0]);
        return 2;
    }
    try {
        forebay::Files files(forebay::Config(words[2], "client"));
        std::vector<char> block(1 << 20);
        if (what == "write") {
            const int local = open(words[4], O_RDONLY);
            forebay::Writer writer = files.create(words[3]);
            ssize_t bytes = 0;
            while ((bytes = read(local, block.data(), block.size())) > 0) {
                writer.write(block.data(), static_cast<std::size_t>(bytes));
            }
            writer.close();
            return bytes == 0 ? 0 : 1;
        }
        const forebay::Reader reader = files.open_read(words[3]);
        std::uint64_t offset = 0;
        while (const std::size_t bytes = reader.pread(offset, block.data(), block.size())) {
            offset += bytes;
        }
        return offset == files.stat(words[3]).length ? 0 : 1;
    } catch (const forebay::Error &error) {
        std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
        return 1;
    }
}
