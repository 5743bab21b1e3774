// XRootD's client library in functions that C can call. Each writes into `status` why it failed, as the library says it; nothing when it did not.

#include <XrdCl/XrdClDefaultEnv.hh>
#include <XrdCl/XrdClEnv.hh>
#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClFileSystem.hh>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr size_t kStatusBytes = 1024;
// Blocks that are on their way at once.
constexpr unsigned kWritesMax = 8;

void copy(const std::string &text, char *to, size_t bytes) {
    const size_t length = std::min(text.size(), bytes - 1);
    std::memcpy(to, text.data(), length);
    to[length] = 0;
}

void tell(const XrdCl::XRootDStatus &status, char *words) {
    copy(status.IsOK() ? std::string() : status.ToStr(), words, kStatusBytes);
    if (!status.IsOK() && words[0] == 0) copy("unknown error", words, kStatusBytes);
}

// What writes on their way share with the file; it lives as long as any of them.
struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned writes = 0;
    XrdCl::XRootDStatus first;
};

struct File {
    XrdCl::File file;
    std::shared_ptr<Shared> shared = std::make_shared<Shared>();
    // Whether each page of 4 KiB goes with its CRC32C, which the server compares.
    bool page_sums = false;

    XrdCl::XRootDStatus write(uint64_t offset, uint32_t length, const void *bytes, XrdCl::ResponseHandler *handler,
                              uint16_t seconds) {
        if (!page_sums) return file.Write(offset, length, bytes, handler, seconds);
        std::vector<uint32_t> sums; // It computes them.
        return file.PgWrite(offset, length, bytes, sums, handler, seconds);
    }
};

class Written final : public XrdCl::ResponseHandler {
  public:
    Written(std::shared_ptr<Shared> shared, const void *bytes, uint32_t length)
        : shared_(std::move(shared)), bytes_(new char[length]) {
        std::memcpy(bytes_.get(), bytes, length);
    }

    const char *bytes() const { return bytes_.get(); }

    void HandleResponse(XrdCl::XRootDStatus *status, XrdCl::AnyObject *response) override {
        {
            std::lock_guard<std::mutex> lock(shared_->mutex);
            shared_->writes -= 1;
            if (!status->IsOK() && shared_->first.IsOK()) shared_->first = *status;
            shared_->changed.notify_all();
        }
        delete status;
        delete response;
        delete this;
    }

  private:
    std::shared_ptr<Shared> shared_;
    std::unique_ptr<char[]> bytes_;
};

} // namespace

extern "C" {

void forebay_xrdcl_set(const char *name, int value) noexcept { XrdCl::DefaultEnv::GetEnv()->PutInt(name, value); }

void forebay_xrdcl_stat(const char *server, const char *path, uint16_t seconds, uint64_t *bytes, uint32_t *flags,
                        char *status) noexcept {
    XrdCl::FileSystem system{XrdCl::URL(server)};
    XrdCl::StatInfo *info = nullptr;
    tell(system.Stat(path, info, seconds), status);
    std::unique_ptr<XrdCl::StatInfo> owned(info);
    if (status[0] != 0) return;
    if (!owned) return copy("no answer to stat", status, kStatusBytes);
    *bytes = owned->GetSize();
    *flags = owned->GetFlags();
}

void forebay_xrdcl_checksum(const char *server, const char *path, uint16_t seconds, char *answer, size_t answer_bytes,
                            char *status) noexcept {
    XrdCl::FileSystem system{XrdCl::URL(server)};
    XrdCl::Buffer asked, *told = nullptr;
    asked.FromString(path);
    tell(system.Query(XrdCl::QueryCode::Checksum, asked, told, seconds), status);
    std::unique_ptr<XrdCl::Buffer> owned(told);
    copy(owned ? owned->ToString() : std::string(), answer, answer_bytes);
}

void forebay_xrdcl_rename(const char *server, const char *from, const char *to, uint16_t seconds,
                          char *status) noexcept {
    tell(XrdCl::FileSystem{XrdCl::URL(server)}.Mv(from, to, seconds), status);
}

void forebay_xrdcl_remove(const char *server, const char *path, uint16_t seconds, char *status) noexcept {
    tell(XrdCl::FileSystem{XrdCl::URL(server)}.Rm(path, seconds), status);
}

// Nothing when it is not opened.
File *forebay_xrdcl_open(const char *url, int writes, uint16_t seconds, char *status) noexcept {
    using XrdCl::Access;
    using XrdCl::OpenFlags;
    auto file = std::make_unique<File>();
    // That nobody but this has made it. Without POSC: a server (5.5.3) of which several writes on their way fail to such a file keeps it open, and its space, for good.
    const auto flags = writes ? OpenFlags::New | OpenFlags::Update | OpenFlags::MakePath : OpenFlags::Read;
    const auto mode = writes ? Access::UR | Access::UW | Access::GR | Access::OR : Access::None;
    tell(file->file.Open(url, flags, mode, seconds), status);
    return status[0] == 0 ? file.release() : nullptr;
}

// Waits so long at most until no more than `writes` blocks are on their way; whether that is so.
int forebay_xrdcl_wait(File *file, unsigned writes, unsigned milliseconds, char *status) noexcept {
    Shared &shared = *file->shared;
    std::unique_lock<std::mutex> lock(shared.mutex);
    const bool is_so = shared.changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                               [&] { return shared.writes <= writes || !shared.first.IsOK(); });
    tell(shared.first, status);
    return is_so;
}

unsigned forebay_xrdcl_writes_max() noexcept { return kWritesMax; }

// The bytes are copied; what becomes of them is told by a later wait.
void forebay_xrdcl_write(File *file, uint64_t offset, const void *bytes, uint32_t length, uint16_t seconds,
                         char *status) noexcept {
    auto handler = std::make_unique<Written>(file->shared, bytes, length);
    {
        std::lock_guard<std::mutex> lock(file->shared->mutex);
        file->shared->writes += 1;
    }
    const XrdCl::XRootDStatus sent = file->write(offset, length, handler->bytes(), handler.get(), seconds);
    if (sent.IsOK()) {
        handler.release();
    } else {
        std::lock_guard<std::mutex> lock(file->shared->mutex);
        file->shared->writes -= 1;
    }
    tell(sent, status);
}

void forebay_xrdcl_sum_pages(File *file) noexcept { file->page_sums = true; }

void forebay_xrdcl_sync(File *file, uint16_t seconds, char *status) noexcept { tell(file->file.Sync(seconds), status); }

void forebay_xrdcl_read(File *file, uint64_t offset, void *bytes, uint32_t length, uint16_t seconds, uint32_t *read,
                        char *status) noexcept {
    tell(file->file.Read(offset, length, bytes, *read, seconds), status);
}

void forebay_xrdcl_close(File *file, uint16_t seconds, char *status) noexcept { tell(file->file.Close(seconds), status); }

void forebay_xrdcl_delete(File *file) noexcept { delete file; }
}
