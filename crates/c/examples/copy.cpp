// Copies a local file into the store and back, and compares.
//
//     c++ -std=c++17 -o copy copy.cpp $(pkg-config --cflags --libs forebay)
//     ./copy 127.0.0.1:7420 /data/raw.dat /run17/raw.dat /tmp/raw.dat

#include <forebay.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t BLOCK_BYTES = 1 << 20;

// Under a name of its own until it is whole, so that nobody takes a part of it for all of it.
void copy_in(forebay::Files &files, const std::string &local, const std::string &path) {
    std::ifstream source(local, std::ios::binary);
    if (!source) {
        throw std::runtime_error(local + " cannot be opened");
    }
    const std::string part = path + ".part";
    forebay::Writer writer = files.create(part);
    try {
        std::vector<char> block(BLOCK_BYTES);
        while (source) {
            source.read(block.data(), static_cast<std::streamsize>(block.size()));
            writer.write(block.data(), static_cast<std::size_t>(source.gcount()));
        }
        if (!source.eof()) {
            throw std::runtime_error(local + " cannot be read");
        }
        writer.close();  // durable, and sealed: it never changes again
        files.rename(part, path);
    } catch (...) {
        try {
            writer.abandon(false);
            files.remove(part);
        } catch (const forebay::Error &error) {
            std::cerr << part << " is left: " << error.what() << "\n";
        }
        throw;
    }
}

void copy_out(const forebay::Files &files, const std::string &path, const std::string &local) {
    std::ofstream target(local, std::ios::binary | std::ios::trunc);
    const forebay::Reader reader = files.open_read(path);
    std::vector<char> block(BLOCK_BYTES);
    std::uint64_t offset = 0;
    while (const std::size_t count = reader.pread(offset, block.data(), block.size())) {
        target.write(block.data(), static_cast<std::streamsize>(count));
        offset += count;
    }
    target.close();
    if (!target) {
        throw std::runtime_error(local + " cannot be written");
    }
}

bool same(const std::string &one, const std::string &other) {
    std::ifstream first(one, std::ios::binary), second(other, std::ios::binary);
    std::vector<char> left(BLOCK_BYTES), right(BLOCK_BYTES);
    while (first && second) {
        first.read(left.data(), static_cast<std::streamsize>(left.size()));
        second.read(right.data(), static_cast<std::streamsize>(right.size()));
        if (first.gcount() != second.gcount() || left != right) {
            return false;
        }
    }
    return first.eof() && second.eof();
}

}  // namespace

int main(int count, char **words) {
    if (count != 5) {
        std::cerr << "usage: " << words[0] << " HOST:PORT LOCAL PATH BACK\n";
        return 2;
    }
    try {
        forebay::Config config(words[1], "copy");
        forebay::Files files(config.set_deadline_ms(30000));
        copy_in(files, words[2], words[3]);
        const forebay::Stat stat = files.stat(words[3]);
        const forebay::Checksums sums = files.checksums(words[3]);
        std::printf("%s: %llu bytes, crc32c %08x, adler32 %08x\n", words[3], static_cast<unsigned long long>(stat.length),
                    static_cast<unsigned>(sums.crc32c), static_cast<unsigned>(sums.adler32));
        copy_out(files, words[3], words[4]);
        if (!same(words[2], words[4])) {
            std::cerr << words[4] << " is another file\n";
            return 1;
        }
        std::puts("what came back is what went in");
        return 0;
    } catch (const forebay::Error &error) {
        std::cerr << error.name() << ": " << error.what() << "\n";
        return error.is_retryable() ? 3 : 1;
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
