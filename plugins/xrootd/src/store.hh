// The store behind a server: how it is reached, how its paths are made, and how its failures are told.

#pragma once

#include <mutex>
#include <string>

#include <forebay.h>
#include <sys/stat.h>

#include "kept.hh"
#include "readers.hh"

class XrdSysError;

namespace forebay_xrootd {

/// What the configuration says behind the library's name: `HOST:PORT [OPTION...]`.
struct Settings {
    std::string address;
    /// A directory of the store that is the root of the server's paths; empty, or with a slash before and none behind.
    std::string prefix;
    unsigned connections = 8;
    /// So long writing tries again what the store refuses for now, before the client is told.
    long patience_ms = 10'000;
    /// So long a request waits for a server that does not answer.
    long deadline_ms = 30'000;
    /// So much of a file that is read in order is asked for ahead of what is read.
    size_t ahead_bytes = 8 << 20;
    /// So much of all files that are open together.
    size_t ahead_all_bytes = 512 << 20;
    /// So much of sealed files that are read again stays in memory.
    uint64_t kept_bytes = Kept::default_bytes();
    /// So long whoever asks for a checksum waits for one that is being computed.
    unsigned long checksum_ms = 60'000;

    /// Reads the settings; what is wrong with them, or nothing.
    std::string parse(const char *text);
};

/// A store. It is reached when it is first needed, so that a server starts, and goes on, whatever becomes of the store meanwhile.
class Store {
public:
    Store(Settings settings, XrdSysError &log)
        : settings_(std::move(settings)), log_(log), ahead_room_(settings_.ahead_all_bytes, settings_.ahead_bytes), kept_(settings_.kept_bytes) {}
    Store(const Store &) = delete;
    Store &operator=(const Store &) = delete;

    /// The files of the store; null when it cannot be reached, which `failed` tells.
    forebay_files *files();

    /// The path in the store of what has a path here.
    std::string path(const char *path) const;

    const Settings &settings() const { return settings_; }
    /// What all files that are open may read ahead.
    AheadRoom &ahead_room() { return ahead_room_; }
    /// What is kept of sealed files.
    Kept &kept() { return kept_; }

    /// What the last call of this thread came to, as XRootD wants it: a negative error number. What an operator should know is said in the log, in the store's own words.
    ///
    /// "Timed out" and "busy" it is never told. XRootD makes seconds to wait of them, and takes these for bytes that were read or written, or for the end of a directory; a close that is asked for again it
    /// calls done, and by the web a file is not found.
    int failed(const char *action, const char *path);
    /// Tells the log of something that is not as it should be.
    void warn(const char *action, const char *path, const char *what);

private:
    const Settings settings_;
    XrdSysError &log_;
    AheadRoom ahead_room_;
    Kept kept_;
    std::mutex connecting_;
    /// Made once and kept for as long as the process lives: files that are open use its connections.
    forebay_files *connected_ = nullptr;
};

/// The store of this process, which the first of the plug-ins makes; null where the settings are wrong, which is said.
Store *the_store(const char *settings, XrdSysError &log);

/// What is known of something, as the operating system says it.
void fill(struct stat &into, const forebay_stat &known);

}  // namespace forebay_xrootd
