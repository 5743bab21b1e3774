#include "kept.hh"

#include <algorithm>
#include <fstream>
#include <string>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace forebay_xrootd {

namespace {

/// So many files at most, and no more than one in so many of the descriptors that the process may have.
constexpr size_t FILES_MAX = 4096;
constexpr size_t DESCRIPTORS_DIVISOR = 8;
/// So many that were opened are remembered.
constexpr size_t OPENED_MAX = 1 << 16;

size_t files_max() {
    rlimit descriptors{};
    const bool is_known = getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY;
    return is_known ? std::min<size_t>(FILES_MAX, descriptors.rlim_cur / DESCRIPTORS_DIVISOR) : FILES_MAX;
}

/// Memory of so many bytes, of which each page takes room when it is first written to; -1 where there is none.
int make_memory(uint64_t bytes) {
    const int memory = memfd_create("forebay-kept", MFD_CLOEXEC);
    if (memory >= 0 && ftruncate(memory, static_cast<off_t>(bytes)) != 0) {
        close(memory);
        return -1;
    }
    return memory;
}

bool write_all(int memory, uint64_t offset, const char *from, size_t bytes) {
    while (bytes > 0) {
        const ssize_t written = pwrite(memory, from, bytes, static_cast<off_t>(offset));
        if (written <= 0) {
            return false;
        }
        from += written;
        offset += static_cast<uint64_t>(written);
        bytes -= static_cast<size_t>(written);
    }
    return true;
}

/// What the control groups of this process leave it of `bytes`.
uint64_t limited_by_groups(uint64_t bytes) {
    std::ifstream own("/proc/self/cgroup");
    std::string line;
    while (std::getline(own, line) && line.rfind("0::", 0) != 0) {
    }
    for (std::string group = line.size() > 3 ? line.substr(3) : "/";; group.erase(group.find_last_of('/'))) {
        uint64_t most = 0;
        // Where there is no limit, there is a word instead of a number.
        if (std::ifstream("/sys/fs/cgroup" + group + "/memory.max") >> most) {
            bytes = std::min(bytes, most);
        }
        if (group.find('/') == std::string::npos) {
            return bytes;
        }
    }
}

}  // namespace

bool Opened::before(uint64_t number) {
    if (!numbers_.insert(number).second) {
        return true;
    }
    order_.push_back(number);
    if (order_.size() > OPENED_MAX) {
        numbers_.erase(order_.front());
        order_.pop_front();
    }
    return false;
}

KeptFile::~KeptFile() { ::close(memory_); }

int KeptFile::whole() const {
    const std::lock_guard<std::mutex> lock(lock_);
    return kept_bytes_ == length_ ? memory_ : -1;
}

bool KeptFile::read(uint64_t offset, char *into, size_t bytes, size_t &count) const {
    const uint64_t begin = std::min(offset, length_), end = begin + std::min<uint64_t>(bytes, length_ - begin);
    {
        const std::lock_guard<std::mutex> lock(lock_);
        if (missing(begin, end) > 0) {
            return false;
        }
    }
    for (count = 0; begin + count < end;) {
        const ssize_t more = pread(memory_, into + count, end - begin - count, static_cast<off_t>(begin + count));
        if (more <= 0) {
            return false;
        }
        count += static_cast<size_t>(more);
    }
    return true;
}

/// How many bytes of a range are not kept.
uint64_t KeptFile::missing(uint64_t offset, uint64_t end) const {
    uint64_t missing = end - offset;
    auto stretch = stretches_.upper_bound(offset);
    if (stretch != stretches_.begin()) {
        --stretch;
    }
    for (; stretch != stretches_.end() && stretch->first < end; ++stretch) {
        const uint64_t from = std::max(stretch->first, offset), to = std::min(stretch->second, end);
        missing -= from < to ? to - from : 0;
    }
    return missing;
}

/// Notes that a range is kept; how many bytes of it were not before.
uint64_t KeptFile::add(uint64_t offset, uint64_t end) {
    const uint64_t gained = missing(offset, end);
    auto stretch = stretches_.upper_bound(offset);
    if (stretch != stretches_.begin() && std::prev(stretch)->second >= offset) {
        --stretch;
    }
    while (stretch != stretches_.end() && stretch->first <= end) {
        offset = std::min(offset, stretch->first);
        end = std::max(end, stretch->second);
        stretch = stretches_.erase(stretch);
    }
    stretches_[offset] = end;
    kept_bytes_ += gained;
    return gained;
}

Kept::Kept(uint64_t bytes_max) : bytes_max_(bytes_max), files_max_(files_max()) {}

std::shared_ptr<KeptFile> Kept::open(uint64_t number, uint64_t length) {
    if (length == 0 || length > bytes_max_) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> lock(lock_);
    auto found = files_.find(number);
    if (found == files_.end()) {
        if (!opened_.before(number)) {
            return nullptr;
        }
        if (files_.size() >= files_max_ && !drop_one()) {
            return nullptr;
        }
        const int memory = make_memory(length);
        if (memory < 0) {
            return nullptr;
        }
        found = files_.emplace(number, std::make_shared<KeptFile>(number, length, memory)).first;
    }
    KeptFile &file = *found->second;
    if (file.length_ != length) {
        return nullptr;
    }
    if (file.handles_++ == 0) {
        unused_.erase(file.last_use_);
    }
    return found->second;
}

void Kept::close(std::shared_ptr<KeptFile> file) {
    const std::lock_guard<std::mutex> lock(lock_);
    if (--file->handles_ == 0) {
        file->last_use_ = ++uses_;
        unused_[file->last_use_] = file->number_;
    }
}

void Kept::keep(KeptFile &file, uint64_t offset, const char *from, size_t bytes) {
    const uint64_t end = offset + bytes;
    uint64_t missing = 0;
    {
        const std::lock_guard<std::mutex> lock(file.lock_);
        missing = end <= file.length_ ? file.missing(offset, end) : 0;
    }
    if (missing == 0 || !reserve(missing)) {
        return;
    }
    uint64_t gained = 0;
    // Whoever else writes here meanwhile writes the same.
    if (write_all(file.memory_, offset, from, bytes)) {
        const std::lock_guard<std::mutex> lock(file.lock_);
        gained = file.add(offset, end);
    }
    give_back(missing - gained);
}

bool Kept::reserve(uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(lock_);
    while (bytes_ + bytes > bytes_max_) {
        if (!drop_one()) {
            return false;
        }
    }
    bytes_ += bytes;
    return true;
}

void Kept::give_back(uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(lock_);
    bytes_ -= bytes;
}

/// Lets go of the file that has not been open for the longest time; false where all are open. What is still being sent of it stays with whom it is sent to: its memory is not used again before that.
bool Kept::drop_one() {
    if (unused_.empty()) {
        return false;
    }
    const auto oldest = files_.find(unused_.begin()->second);
    unused_.erase(unused_.begin());
    bytes_ -= oldest->second->kept_bytes_;
    files_.erase(oldest);
    return true;
}

uint64_t Kept::default_bytes() {
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    const uint64_t all = pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : 0;
    return limited_by_groups(all) / 4;
}

}  // namespace forebay_xrootd
