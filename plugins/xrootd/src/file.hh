// A file of the store that a client has open.

#pragma once

#include <atomic>
#include <string>

#include <XrdOss/XrdOss.hh>

#include "kept.hh"
#include "readers.hh"
#include "store.hh"

namespace forebay_xrootd {

/// A file that is open for reading, or for writing and reading. XRootD gives all clients that have the same path open the same one.
///
/// What a client makes and closes is sealed: it never changes again, and its checksums are kept. Not so a file whose client went away, which XRootD closes, too; nor one that has another length than its
/// client said when it opened it, as copies close what they failed to copy. XRootD tells the two apart for files that persist only when they are closed (`ofs.persist`), and no others are sealed here.
class File : public XrdOssDF {
public:
    File(Store &store, const char *client) : XrdOssDF(client, DF_isFile), store_(store), readers_(store.ahead_room()) {}
    ~File() override;

    int Open(const char *path, int flags, mode_t mode, XrdOucEnv &environment) override;
    int Close(long long *bytes = nullptr) override;

    ssize_t Read(off_t, size_t) override { return 0; }
    ssize_t Read(void *into, off_t offset, size_t bytes) override;
    int Read(XrdSfsAio *request) override;
    /// With the CRC32C of each page of 4 KiB: that of XRootD 5.5 takes several times as long as all else of a read.
    ssize_t pgRead(void *into, off_t offset, size_t bytes, uint32_t *sums, uint64_t options) override;
    using XrdOssDF::pgRead;
    ssize_t ReadRaw(void *into, off_t offset, size_t bytes) override { return Read(into, offset, bytes); }
    ssize_t Write(const void *from, off_t offset, size_t bytes) override;
    int Write(XrdSfsAio *request) override;

    int Fsync() override;
    int Fsync(XrdSfsAio *request) override;
    int Ftruncate(unsigned long long length) override;
    int Fstat(struct stat *into) override;
    int Fchmod(mode_t mode) override;
    /// From where XRootD sends a file without asking for its bytes, when all of it is kept: memory, at the file's own offsets.
    int getFD() override { return kept_ != nullptr ? kept_->whole() : -1; }

private:
    /// Is done with the handles.
    void let_go();
    int open_for_reading(forebay_files *files);
    int open_for_writing(forebay_files *files, bool cut);
    /// Of a file that is open for reading; what is wrong, or 0.
    int read_stored(uint64_t offset, char *into, size_t bytes, size_t &count);
    /// As `Readers::read`, of a file that is open for writing.
    int read_written(uint64_t offset, char *into, size_t bytes, size_t &count);
    /// Seals what was written; what is wrong, or 0.
    int seal();
    /// Makes it durable; what is wrong, or 0.
    int sync();
    int failed(const char *action) { return store_.failed(action, path_.c_str()); }

    Store &store_;
    std::string path_;
    Readers readers_;
    /// What is kept of it; null where nothing is.
    std::shared_ptr<KeptFile> kept_;
    /// What was known of it when it was opened, which XRootD asks for at once: it is told so once, and then what the store says.
    forebay_stat opened_as_{};
    std::atomic<bool> is_as_opened_{false};
    forebay_writer *writer_ = nullptr;
    /// The length that the client said it will have (`oss.asize`); -1 where it did not.
    long long announced_ = -1;
    /// It persists only when its client closes it, which has not happened.
    bool is_pending_ = false;
    /// It was one of those, and its client closed it.
    bool persists_ = false;
    /// What the first write came to that failed; 0 when none has.
    std::atomic<int> refused_{0};
};

}  // namespace forebay_xrootd
