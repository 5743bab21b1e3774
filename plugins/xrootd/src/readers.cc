#include "readers.hh"

#include <algorithm>

namespace forebay_xrootd {

bool AheadRoom::take() {
    const std::lock_guard<std::mutex> lock(lock_);
    if (shares_ == 0) {
        return false;
    }
    --shares_;
    return true;
}

void AheadRoom::give_back() {
    const std::lock_guard<std::mutex> lock(lock_);
    ++shares_;
}

int Readers::open(forebay_files *files, const std::string &path) {
    const int code = forebay_files_open_read(files, path.data(), path.size(), &first_);
    if (code == FOREBAY_DONE) {
        all_.push_back(std::make_unique<One>(first_));
    }
    return code;
}

int Readers::close() {
    int code = FOREBAY_DONE;
    // The first one goes last. Where one is not answered, the others are not waited for in vain: the store is told of them later.
    for (auto one = all_.rbegin(); one != all_.rend() && code == FOREBAY_DONE; ++one) {
        code = forebay_reader_close((*one)->reader);
    }
    return code;
}

void Readers::let_go() {
    first_ = nullptr;
    while (!all_.empty()) {
        forget_stream(*all_.back());
        all_.pop_back();
    }
}

int Readers::read(uint64_t offset, char *into, size_t bytes, size_t &count) {
    int code = FOREBAY_DONE;
    uint64_t ahead_end = 0;
    One &one = choose(offset, bytes, ahead_end);
    count = 0;
    while (code == FOREBAY_DONE && count < bytes) {
        size_t more = 0;
        code = forebay_reader_pread_until(one.reader, offset + count, into + count, bytes - count, ahead_end, &more);
        if (code == FOREBAY_DONE && more == 0) {
            break;
        }
        count += more;
    }
    const std::lock_guard<std::mutex> lock(lock_);
    --one.requests;
    if (count < bytes && one.requests == 0) {
        // Nothing follows for now.
        begin_at(one, offset + count);
        one.end = one.begin;
    }
    return code;
}

Readers::One &Readers::choose(uint64_t offset, size_t bytes, uint64_t &ahead_end) {
    std::unique_lock<std::mutex> lock(lock_);
    One *one = that_ended_at(offset);
    if (one == nullptr) {
        one = longest_unused_candidate();
        if (one == nullptr && all_.size() + being_made_ < READERS_MAX) {
            one = make(lock);
        }
        one = one != nullptr ? one : longest_unused();
        begin_at(*one, offset);
    } else if (one->end > one->begin) {
        one->reads_on = true;
        one->has_room = one->has_room || room_.take();
    }
    one->end = offset + bytes;
    one->last_use = ++uses_;
    ++one->requests;
    ahead_end = one->has_room ? ahead_end_of(*one, offset) : offset;
    return *one;
}

/// Nobody waits for the others' requests while it is made. Where it cannot be, those that are there are enough.
Readers::One *Readers::make(std::unique_lock<std::mutex> &lock) {
    forebay_reader *another = nullptr;
    ++being_made_;
    lock.unlock();
    const int code = forebay_reader_open_again(first_, &another);
    lock.lock();
    --being_made_;
    if (code != FOREBAY_DONE) {
        return nullptr;
    }
    all_.push_back(std::make_unique<One>(another));
    return all_.back().get();
}

Readers::One *Readers::that_ended_at(uint64_t offset) {
    One *found = nullptr;
    for (const auto &one : all_) {
        const bool is_better = found == nullptr || one->requests < found->requests;
        if (one->end == offset && is_better) {
            found = one.get();
        }
    }
    return found;
}

Readers::One *Readers::longest_unused_candidate() {
    One *found = nullptr;
    size_t candidates = 0;
    for (const auto &one : all_) {
        if (one->reads_on || one->requests > 0) {
            continue;
        }
        ++candidates;
        if (found == nullptr || one->last_use < found->last_use) {
            found = one.get();
        }
    }
    return candidates >= CANDIDATES ? found : nullptr;
}

Readers::One *Readers::longest_unused() {
    const auto earlier = [](const auto &one, const auto &other) {
        return one->requests != other->requests ? one->requests < other->requests : one->last_use < other->last_use;
    };
    return std::min_element(all_.begin(), all_.end(), earlier)->get();
}

void Readers::begin_at(One &one, uint64_t offset) {
    forget_stream(one);
    one.begin = offset;
}

/// Where another one began behind it, somebody reads already: a client that reads by several connections asks for parts that follow each other at once.
uint64_t Readers::ahead_end_of(const One &one, uint64_t offset) {
    uint64_t end = UINT64_MAX;
    for (const auto &other : all_) {
        if (other.get() != &one && other->end > other->begin && other->begin > offset) {
            end = std::min(end, other->begin);
        }
    }
    return end;
}

void Readers::forget_stream(One &one) {
    if (one.has_room) {
        room_.give_back();
    }
    one.has_room = false;
    one.reads_on = false;
}

}  // namespace forebay_xrootd
