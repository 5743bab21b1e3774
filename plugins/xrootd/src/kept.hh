// What is read again and again of sealed files, which never change: kept in memory, from where whoever reads them next is sent it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace forebay_xrootd {

class Kept;

/// Numbers of files that were opened lately.
class Opened {
public:
    /// Whether a file was opened before; it is known from now on, until many others were.
    bool before(uint64_t number);

private:
    std::unordered_set<uint64_t> numbers_;
    std::deque<uint64_t> order_;
};

/// What is kept of one file.
class KeptFile {
public:
    KeptFile(uint64_t number, uint64_t length, int memory) : number_(number), length_(length), memory_(memory) {}
    KeptFile(const KeptFile &) = delete;
    KeptFile &operator=(const KeptFile &) = delete;
    ~KeptFile();

    /// A descriptor of memory that has all bytes of the file where the file has them, for as long as the file is open; -1 while some are missing.
    int whole() const;
    /// Reads as many of so many bytes as the file has; whether all of these are kept.
    bool read(uint64_t offset, char *into, size_t bytes, size_t &count) const;

private:
    friend class Kept;

    uint64_t missing(uint64_t offset, uint64_t end) const;
    uint64_t add(uint64_t offset, uint64_t end);

    const uint64_t number_;
    const uint64_t length_;
    const int memory_;
    mutable std::mutex lock_;
    /// What is kept: where each stretch begins, and where it ends. They do not touch each other.
    std::map<uint64_t, uint64_t> stretches_;
    uint64_t kept_bytes_ = 0;

    // Those of `Kept`, under its lock.
    unsigned handles_ = 0;
    uint64_t last_use_ = 0;
};

/// The kept files of a server. A file is kept from the second time on that it is opened: most are read once, to be stored elsewhere, and to keep what is read takes a third of a second of a processor for a GB.
/// Where there is no room for more, those go first that have not been open for the longest time; none that is open.
///
/// A file is known by its number, which no other file of a store ever has, and each time it is opened the store is asked first: what is removed or replaced there is so here.
class Kept {
public:
    /// So many bytes at most; with 0 nothing is kept.
    explicit Kept(uint64_t bytes_max);
    Kept(const Kept &) = delete;
    Kept &operator=(const Kept &) = delete;

    /// A sealed file that was opened, `length` bytes long; null where it is not kept. It is to be given back.
    std::shared_ptr<KeptFile> open(uint64_t number, uint64_t length);
    void close(std::shared_ptr<KeptFile> file);
    /// Keeps what was read of an open file, if there is room for it.
    void keep(KeptFile &file, uint64_t offset, const char *from, size_t bytes);

    /// What a server keeps when nobody says how much: a quarter of the memory that it may have.
    static uint64_t default_bytes();

private:
    bool reserve(uint64_t bytes);
    void give_back(uint64_t bytes);
    bool drop_one();

    const uint64_t bytes_max_;
    /// Each has a descriptor.
    const size_t files_max_;
    std::mutex lock_;
    Opened opened_;
    uint64_t bytes_ = 0;
    uint64_t uses_ = 0;
    std::map<uint64_t, std::shared_ptr<KeptFile>> files_;
    /// Those that nobody has open, by their last use.
    std::map<uint64_t, uint64_t> unused_;
};

}  // namespace forebay_xrootd
