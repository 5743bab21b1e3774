#include "file.hh"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>

#include <XrdOuc/XrdOucEnv.hh>
#include <XrdSfs/XrdSfsAio.hh>
#include <XrdSfs/XrdSfsFlags.hh>

namespace forebay_xrootd {

namespace {

constexpr size_t PAGE_BYTES = 4096;

/// The CRC32C of each page, of which the first and the last may be a part; 0, or why not.
int sum_pages(const char *bytes, off_t offset, size_t count, uint32_t *sums) {
    size_t until_next = PAGE_BYTES - static_cast<size_t>(offset) % PAGE_BYTES;
    while (count > 0) {
        const size_t page = std::min(count, until_next);
        if (forebay_crc32c(bytes, page, sums++) != FOREBAY_DONE) {
            return -EIO;
        }
        bytes += page;
        count -= page;
        until_next = PAGE_BYTES;
    }
    return 0;
}

/// A length in bytes; -1 for none, or an estimate with a unit.
long long length_of(const char *text) {
    char *end = nullptr;
    const long long length = text != nullptr && *text != '\0' ? std::strtoll(text, &end, 10) : -1;
    return end != nullptr && *end == '\0' ? length : -1;
}

}  // namespace

File::~File() { let_go(); }

void File::let_go() {
    if (writer_ != nullptr) {
        // What was not closed stays as it is, and is not sealed; where it was, this does nothing.
        forebay_writer_abandon(writer_, 0);
    }
    readers_.let_go();
    is_as_opened_ = false;
    if (kept_ != nullptr) {
        store_.kept().close(std::move(kept_));
    }
    forebay_writer_free(writer_);
    writer_ = nullptr;
}

int File::Open(const char *path, int flags, mode_t, XrdOucEnv &environment) {
    if (readers_.is_open() || writer_ != nullptr) {
        return -EBADF;
    }
    path_ = store_.path(path);
    forebay_files *files = store_.files();
    if (files == nullptr) {
        return failed("reach the store for");
    }
    if ((flags & O_ACCMODE) != O_RDONLY) {
        announced_ = length_of(environment.Get("oss.asize"));
        return open_for_writing(files, (flags & O_TRUNC) != 0);
    }
    return open_for_reading(files) == FOREBAY_DONE ? 0 : failed("open");
}

int File::open_for_reading(forebay_files *files) {
    const int code = readers_.open(files, path_);
    is_as_opened_ = code == FOREBAY_DONE && readers_.stat(opened_as_) == FOREBAY_DONE;
    if (is_as_opened_ && opened_as_.is_sealed && opened_as_.has_length) {
        kept_ = store_.kept().open(opened_as_.number, opened_as_.length);
    }
    return code;
}

int File::open_for_writing(forebay_files *files, bool cut) {
    int code = forebay_files_open_write(files, path_.data(), path_.size(), FOREBAY_WRITE_SEAL, &writer_);
    if (code != FOREBAY_DONE) {
        return failed("open for writing");
    }
    if (cut) {
        code = forebay_writer_truncate(writer_, 0);
    }
    if (code == FOREBAY_DONE) {
        return 0;
    }
    const int error = failed("empty");
    let_go();
    return error;
}

int File::Close(long long *bytes) {
    if (bytes != nullptr) {
        struct stat known;
        const int error = Fstat(&known);
        *bytes = error == 0 ? known.st_size : 0;
    }
    int error = 0;
    if (readers_.close() != FOREBAY_DONE) {
        error = failed("close");
    }
    // What XRootD takes away itself nobody may take for whole until then, and not what a write of was refused.
    if (writer_ != nullptr && !is_pending_ && refused_ == 0) {
        error = persists_ ? seal() : sync();
    }
    let_go();
    return error != 0 ? error : refused_.load();
}

int File::seal() {
    struct stat known;
    const int error = announced_ >= 0 ? Fstat(&known) : 0;
    if (error != 0) {
        return error;
    }
    if (announced_ >= 0 && known.st_size != announced_) {
        sync();
        store_.warn("close", path_.c_str(),
                    (std::to_string(announced_) + " bytes were announced, and " + std::to_string(known.st_size) + " came: it is not sealed").c_str());
        return -EIO;
    }
    return forebay_writer_close(writer_) == FOREBAY_DONE ? 0 : failed("close");
}

int File::read_stored(uint64_t offset, char *into, size_t bytes, size_t &count) {
    if (kept_ != nullptr && kept_->read(offset, into, bytes, count)) {
        return FOREBAY_DONE;
    }
    const int code = readers_.read(offset, into, bytes, count);
    if (code == FOREBAY_DONE && kept_ != nullptr) {
        store_.kept().keep(*kept_, offset, into, count);
    }
    return code;
}

int File::read_written(uint64_t offset, char *into, size_t bytes, size_t &count) {
    int code = FOREBAY_DONE;
    size_t more = 1;
    for (count = 0; code == FOREBAY_DONE && more > 0 && count < bytes; count += more) {
        more = 0;
        code = forebay_writer_pread(writer_, offset + count, into + count, bytes - count, &more);
    }
    return code;
}

ssize_t File::Read(void *into, off_t offset, size_t bytes) {
    if (offset < 0) {
        return -EINVAL;
    }
    const auto place = static_cast<uint64_t>(offset);
    char *const room = static_cast<char *>(into);
    size_t count = 0;
    const int code = readers_.is_open() ? read_stored(place, room, bytes, count) : read_written(place, room, bytes, count);
    // Fewer bytes than were asked for are the end of the file.
    return code == FOREBAY_DONE ? static_cast<ssize_t>(count) : failed("read");
}

ssize_t File::pgRead(void *into, off_t offset, size_t bytes, uint32_t *sums, uint64_t) {
    const ssize_t count = Read(into, offset, bytes);
    if (count <= 0 || sums == nullptr) {
        return count;
    }
    const int error = sum_pages(static_cast<const char *>(into), offset, static_cast<size_t>(count), sums);
    return error == 0 ? count : error;
}

ssize_t File::Write(const void *from, off_t offset, size_t bytes) {
    if (writer_ == nullptr) {
        return -EBADF;
    }
    if (offset < 0) {
        return -EINVAL;
    }
    // A client has many writes on their way. What one of them waited for in vain, the others do not wait for again.
    if (refused_ == 0 && forebay_writer_pwrite(writer_, static_cast<uint64_t>(offset), from, bytes) != FOREBAY_DONE) {
        refused_ = failed("write");
    }
    return refused_ == 0 ? static_cast<ssize_t>(bytes) : refused_.load();
}

int File::Read(XrdSfsAio *request) {
    request->Result = Read(const_cast<void *>(request->sfsAio.aio_buf), request->sfsAio.aio_offset, request->sfsAio.aio_nbytes);
    request->doneRead();
    return 0;
}

int File::Write(XrdSfsAio *request) {
    request->Result = Write(const_cast<const void *>(request->sfsAio.aio_buf), request->sfsAio.aio_offset, request->sfsAio.aio_nbytes);
    request->doneWrite();
    return 0;
}

int File::sync() { return forebay_writer_sync(writer_) == FOREBAY_DONE ? 0 : failed("make durable"); }

int File::Fsync() {
    if (writer_ == nullptr) {
        return readers_.is_open() ? 0 : -EBADF;
    }
    return sync();
}

int File::Fsync(XrdSfsAio *request) {
    request->Result = Fsync();
    request->doneWrite();
    return 0;
}

int File::Ftruncate(unsigned long long length) {
    if (writer_ == nullptr) {
        return -EBADF;
    }
    return forebay_writer_truncate(writer_, length) == FOREBAY_DONE ? 0 : failed("cut");
}

int File::Fstat(struct stat *into) {
    if (is_as_opened_.exchange(false)) {
        fill(*into, opened_as_);
        return 0;
    }
    forebay_stat known;
    const int code = readers_.is_open() ? readers_.stat(known) : forebay_writer_stat(writer_, &known);
    if (code != FOREBAY_DONE) {
        return failed("look at");
    }
    fill(*into, known);
    return 0;
}

int File::Fchmod(mode_t mode) {
    persists_ = is_pending_ && (mode & XRDSFS_POSCPEND) == 0;
    is_pending_ = (mode & XRDSFS_POSCPEND) != 0;
    if (refused_ != 0) {
        return refused_;
    }
    const int code = writer_ != nullptr ? forebay_writer_set_mode(writer_, mode & 07777)
                                        : forebay_files_set_mode(store_.files(), path_.data(), path_.size(), mode & 07777);
    if (code == FOREBAY_DONE) {
        return 0;
    }
    // XRootD closes what it could not say to persist, tells the client that it did, and takes the file away when it is started again.
    refused_ = failed("set the mode of");
    return refused_;
}

}  // namespace forebay_xrootd
