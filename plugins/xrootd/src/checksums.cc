// The checksums that the store keeps of sealed files, as those of an XRootD server (`ofs.ckslib`): nothing is read for them.

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <XrdCks/XrdCks.hh>
#include <XrdCks/XrdCksData.hh>
#include <XrdSys/XrdSysError.hh>
#include <XrdVersion.hh>

#include "store.hh"

namespace forebay_xrootd {

namespace {

/// Those that a store has; the first is told where nobody says which.
constexpr const char *NAMES[] = {"adler32", "crc32c"};
constexpr int SUM_BYTES = 4;

class Checksums : public XrdCks {
public:
    Checksums(XrdSysError &log, const char *settings) : XrdCks(&log), log_(log), settings_(settings != nullptr ? settings : "") {}

    int Calc(const char *path, XrdCksData &sum, int) override { return Get(path, sum) > 0 ? 0 : error_; }
    /// They are not kept beside the file, but are of it.
    int Del(const char *, XrdCksData &) override { return -ENOTSUP; }
    int Set(const char *, XrdCksData &, int) override { return -ENOTSUP; }
    int Get(const char *path, XrdCksData &sum) override;
    int Ver(const char *path, XrdCksData &sum) override;

    int Config(const char *, char *) override { return 1; }
    int Init(const char *, const char *) override { return the_store(settings_.c_str(), log_) != nullptr; }

    char *List(const char *path, char *into, int bytes, char separator) override;
    const char *Name(int number) override;
    int Size(const char *name) override { return index_of(name) >= 0 ? SUM_BYTES : 0; }

private:
    /// The place of a name in `NAMES`; none is the first.
    static int index_of(const char *name);
    int refuse(int error) {
        error_ = error;
        return error;
    }

    XrdSysError &log_;
    const std::string settings_;
    /// Of the last call of this thread.
    static thread_local int error_;
};

thread_local int Checksums::error_ = 0;

int Checksums::index_of(const char *name) {
    if (name == nullptr || *name == '\0') {
        return 0;
    }
    for (int number = 0; number < 2; ++number) {
        if (std::strcmp(name, NAMES[number]) == 0) {
            return number;
        }
    }
    return -1;
}

int Checksums::Get(const char *path, XrdCksData &sum) {
    const int which = index_of(sum.Name);
    if (which < 0) {
        return refuse(-ENOTSUP);
    }
    Store *store = the_store(nullptr, log_);
    forebay_files *files = store != nullptr ? store->files() : nullptr;
    if (files == nullptr) {
        return refuse(store != nullptr ? store->failed("reach the store for the checksum of", path) : -ENODEV);
    }
    uint32_t sums[2] = {0, 0};
    const unsigned long longest_ms = store->settings().checksum_ms;
    const size_t path_bytes = std::strlen(path);
    // The server has made it a path of the store.
    const int code = forebay_files_checksums(files, path, path_bytes, longest_ms, &sums[1], &sums[0]);
    if (code == FOREBAY_NOT_SEALED || code == FOREBAY_NOT_READY) {
        // "In progress", as XRootD says it to its clients.
        return refuse(-ETXTBSY);
    }
    forebay_stat known;
    if (code != FOREBAY_DONE || forebay_files_stat(files, path, path_bytes, &known) != FOREBAY_DONE) {
        return refuse(store->failed("ask for the checksum of", path));
    }
    const uint32_t value = sums[which];
    const unsigned char bytes[SUM_BYTES] = {static_cast<unsigned char>(value >> 24), static_cast<unsigned char>(value >> 16),
                                            static_cast<unsigned char>(value >> 8), static_cast<unsigned char>(value)};
    sum.Set(NAMES[which]);
    sum.Set(static_cast<const void *>(bytes), SUM_BYTES);
    sum.fmTime = known.written_unix_ns / 1'000'000'000;
    sum.csTime = 0;
    return SUM_BYTES;
}

int Checksums::Ver(const char *path, XrdCksData &sum) {
    XrdCksData kept;
    kept.Reset();
    kept.Set(sum.Name);
    const int bytes = Get(path, kept);
    if (bytes < 0) {
        return bytes;
    }
    return sum.Length == kept.Length && std::memcmp(sum.Value, kept.Value, SUM_BYTES) == 0;
}

char *Checksums::List(const char *, char *into, int bytes, char separator) {
    const std::string all = std::string(NAMES[0]) + separator + NAMES[1];
    if (bytes <= static_cast<int>(all.size())) {
        return nullptr;
    }
    std::memcpy(into, all.c_str(), all.size() + 1);
    return into;
}

const char *Checksums::Name(int number) { return number == 0 || number == 1 ? NAMES[number] : nullptr; }

}  // namespace

}  // namespace forebay_xrootd

XrdVERSIONINFO(XrdCksInit, forebay);

extern "C" XrdCks *XrdCksInit(XrdSysError *log, const char *, const char *settings) {
    return new forebay_xrootd::Checksums(*log, settings);
}
