// The readers of a file that is open: each client that reads on where it was has one, which has what follows on its way.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <forebay.h>

namespace forebay_xrootd {

/// So many bytes may be read ahead, of all files that are open together. A reader that gets no share of it reads what is wanted and no more.
class AheadRoom {
public:
    AheadRoom(size_t all_bytes, size_t share_bytes) : shares_(all_bytes / share_bytes) {}

    bool take();
    void give_back();

private:
    std::mutex lock_;
    size_t shares_;
};

/// The readers of one file. XRootD gives all clients that read the same path one and the same open file, and tells of none of their requests whose it is; but whoever reads on begins where an earlier
/// request ended. Each of them gets the reader that is there, and who begins elsewhere the one that was used the longest ago, or another one. All are of the file that the first one opened, whatever has its name by now.
///
/// What fails is a code of the library, of which it keeps the words for this thread.
class Readers {
public:
    explicit Readers(AheadRoom &room) : room_(room) {}
    Readers(const Readers &) = delete;
    Readers &operator=(const Readers &) = delete;
    ~Readers() { let_go(); }

    int open(forebay_files *files, const std::string &path);
    bool is_open() const { return first_ != nullptr; }
    /// Fewer bytes than are wanted are the end of the file, or what cannot be read, which the next call tells.
    int read(uint64_t offset, char *into, size_t bytes, size_t &count);
    int stat(forebay_stat &known) { return forebay_reader_stat(first_, &known); }
    /// Says to the store that all of them are done. Nobody reads any more.
    int close();
    void let_go();

private:
    /// So many at most, of a file.
    static constexpr size_t READERS_MAX = 32;
    /// So many, before one is used again of which nobody has read on yet: clients that began at the same time must not take theirs from each other.
    static constexpr size_t CANDIDATES = 8;

    struct One {
        explicit One(forebay_reader *made) : reader(made) {}
        One(const One &) = delete;
        One &operator=(const One &) = delete;
        ~One() { forebay_reader_free(reader); }

        forebay_reader *const reader;
        /// What was read one after the other, the request that runs included.
        uint64_t begin = 0, end = 0;
        /// A request began where the one before it ended.
        bool reads_on = false;
        bool has_room = false;
        unsigned requests = 0;
        uint64_t last_use = 0;
    };

    One *that_ended_at(uint64_t offset);
    /// Of those of which nobody has read on, if there are enough of them.
    One *longest_unused_candidate();
    One *longest_unused();
    /// The reader for a request, made if there is none for it, with what it may read ahead until.
    One &choose(uint64_t offset, size_t bytes, uint64_t &ahead_end);
    /// Null where it cannot be made.
    One *make(std::unique_lock<std::mutex> &lock);
    void begin_at(One &one, uint64_t offset);
    uint64_t ahead_end_of(const One &one, uint64_t offset);
    void forget_stream(One &one);

    AheadRoom &room_;
    /// It keeps the file for the others.
    forebay_reader *first_ = nullptr;
    std::mutex lock_;
    std::vector<std::unique_ptr<One>> all_;
    size_t being_made_ = 0;
    uint64_t uses_ = 0;
};

}  // namespace forebay_xrootd
