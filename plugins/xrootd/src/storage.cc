// The store as the storage system of an XRootD server (`ofs.osslib`).

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <XrdOss/XrdOss.hh>
#include <XrdOss/XrdOssVS.hh>
#include <XrdSys/XrdSysError.hh>
#include <XrdVersion.hh>

#include "directory.hh"
#include "file.hh"
#include "store.hh"

namespace forebay_xrootd {

namespace {

/// The directory that something lies in; empty for what lies in the root.
std::string parent_of(const std::string &path) { return path.substr(0, path.find_last_of('/')); }

class Storage : public XrdOss {
public:
    explicit Storage(Store &store) : store_(store) {}

    XrdOssDF *newDir(const char *client) override { return new Directory(store_, client); }
    XrdOssDF *newFile(const char *client) override { return new File(store_, client); }

    int Init(XrdSysLogger *, const char *) override { return 0; }
    void Connect(XrdOucEnv &) override { has_clients_ = true; }
    int Chmod(const char *path, mode_t mode, XrdOucEnv *) override;
    int Create(const char *client, const char *path, mode_t mode, XrdOucEnv &environment, int options) override;
    /// Requests are answered when they are done, in a thread of the server. What is read has the sums of its pages if they are wanted.
    uint64_t Features() override { return XRDOSS_HASPGRW | XRDOSS_HASNAIO; }
    int Mkdir(const char *path, mode_t mode, int make_parents, XrdOucEnv *) override;
    int Remdir(const char *path, int, XrdOucEnv *) override;
    int Rename(const char *from, const char *to, XrdOucEnv *, XrdOucEnv *) override;
    int Stat(const char *path, struct stat *into, int options, XrdOucEnv *) override;
    int StatFS(const char *path, char *into, int &bytes, XrdOucEnv *) override;
    int StatLS(XrdOucEnv &environment, const char *path, char *into, int &bytes) override;
    int StatVS(XrdOssVSInfo *into, const char *space, int) override;
    int Truncate(const char *path, unsigned long long length, XrdOucEnv *) override;
    int Unlink(const char *path, int, XrdOucEnv *) override;
    int Lfn2Pfn(const char *path, char *into, int bytes) override;
    const char *Lfn2Pfn(const char *path, char *into, int bytes, int &error) override;

private:
    int create(forebay_files *files, const std::string &path, mode_t mode);
    int replace(forebay_files *files, const std::string &path, mode_t mode);
    int make_directory(forebay_files *files, const std::string &path, mode_t mode, bool make_parents);
    /// A call that needs the store and a path.
    template <typename Call> int with(const char *action, const char *path, Call call);
    int room(uint64_t &capacity_bytes, uint64_t &free_bytes);
    int look_at(const char *path, forebay_stat &known);

    Store &store_;
    /// Somebody has come since it was started.
    std::atomic<bool> has_clients_{false};
};

template <typename Call> int Storage::with(const char *action, const char *path, Call call) {
    forebay_files *files = store_.files();
    const std::string there = store_.path(path);
    return files != nullptr && call(files, there) == FOREBAY_DONE ? 0 : store_.failed(action, path);
}

int Storage::Chmod(const char *path, mode_t mode, XrdOucEnv *) {
    return with("set the mode of", path, [&](forebay_files *files, const std::string &there) {
        return forebay_files_set_mode(files, there.data(), there.size(), mode & 07777);
    });
}

int Storage::make_directory(forebay_files *files, const std::string &path, mode_t mode, bool make_parents) {
    const forebay_owner owner{static_cast<uint32_t>(mode & 07777), geteuid(), getegid()};
    return forebay_files_make_directory(files, path.data(), path.size(), &owner, make_parents ? FOREBAY_MAKE_PARENTS : 0);
}

int Storage::create(forebay_files *files, const std::string &path, mode_t mode) {
    const forebay_owner owner{static_cast<uint32_t>(mode & 07777), geteuid(), getegid()};
    forebay_writer *writer = nullptr;
    const int code = forebay_files_create(files, path.data(), path.size(), &owner, 0, &writer);
    if (code != FOREBAY_DONE) {
        return code;
    }
    const int closed = forebay_writer_close(writer);
    forebay_writer_free(writer);
    return closed;
}

int Storage::replace(forebay_files *files, const std::string &path, mode_t mode) {
    // It is another file, so that whoever reads what was there reads it to its end; made before that goes, which stays where there is no room for a new one.
    static std::atomic<unsigned> made{0};
    const std::string beside = parent_of(path) + "/.forebay-" + std::to_string(getpid()) + "-" + std::to_string(made++);
    const int code = create(files, beside, mode);
    if (code != FOREBAY_DONE) {
        return code;
    }
    const int renamed = forebay_files_rename(files, beside.data(), beside.size(), path.data(), path.size(), FOREBAY_RENAME_REPLACE);
    if (renamed != FOREBAY_DONE) {
        forebay_files_remove(files, beside.data(), beside.size());
    }
    return renamed;
}

int Storage::Create(const char *, const char *path, mode_t mode, XrdOucEnv &, int options) {
    return with("create", path, [&](forebay_files *files, const std::string &there) {
        const bool may_replace = ((options >> 8) & O_EXCL) == 0 && (options & XRDOSS_new) == 0;
        int code = create(files, there, mode);
        if (code == FOREBAY_NOT_FOUND && (options & XRDOSS_mkpath) != 0) {
            code = make_directory(files, parent_of(there), 0755, true);
            code = code == FOREBAY_DONE || code == FOREBAY_EXISTS ? create(files, there, mode) : code;
        }
        if (code == FOREBAY_EXISTS && may_replace) {
            code = replace(files, there, mode);
        }
        return code;
    });
}

int Storage::Mkdir(const char *path, mode_t mode, int make_parents, XrdOucEnv *) {
    return with("make the directory", path, [&](forebay_files *files, const std::string &there) {
        return make_directory(files, there, mode, make_parents != 0);
    });
}

int Storage::Remdir(const char *path, int, XrdOucEnv *) {
    return with("remove the directory", path, [&](forebay_files *files, const std::string &there) {
        return forebay_files_remove_directory(files, there.data(), there.size());
    });
}

int Storage::Rename(const char *from, const char *to, XrdOucEnv *, XrdOucEnv *) {
    return with("rename", from, [&](forebay_files *files, const std::string &there) {
        const std::string target = store_.path(to);
        const auto rename = [&] {
            return forebay_files_rename(files, there.data(), there.size(), target.data(), target.size(), FOREBAY_RENAME_REPLACE);
        };
        int code = rename();
        forebay_stat known;
        // As XRootD has it over a directory: what the new name lies in is made.
        if (code == FOREBAY_NOT_FOUND && forebay_files_stat_link(files, there.data(), there.size(), &known) == FOREBAY_DONE) {
            code = make_directory(files, parent_of(target), 0755, true);
            code = code == FOREBAY_DONE || code == FOREBAY_EXISTS ? rename() : code;
        }
        return code;
    });
}

int Storage::look_at(const char *path, forebay_stat &known) {
    return with("look at", path, [&](forebay_files *files, const std::string &there) {
        return forebay_files_stat(files, there.data(), there.size(), &known);
    });
}

int Storage::Stat(const char *path, struct stat *into, int, XrdOucEnv *) {
    forebay_stat known;
    const int error = look_at(path, known);
    if (error == 0) {
        fill(*into, known);
    }
    if (!has_clients_ && error != 0 && error != -ENOENT) {
        // At its start XRootD goes through what was not closed when it was killed, and forgets what it cannot look at: clients would write on where some of what they wrote is gone. So it is said to be there, and that it
        // cannot be taken away ends the start.
        std::memset(into, 0, sizeof *into);
        into->st_mode = S_IFREG;
        return 0;
    }
    return error;
}

int Storage::room(uint64_t &capacity_bytes, uint64_t &free_bytes) {
    return with("ask for the room of", "/", [&](forebay_files *files, const std::string &) {
        return forebay_files_room(files, &capacity_bytes, &free_bytes);
    });
}

int Storage::StatFS(const char *, char *into, int &bytes, XrdOucEnv *) {
    uint64_t capacity = 0, unused = 0;
    const int error = room(capacity, unused);
    if (error != 0) {
        return error;
    }
    // Writable, MiB free, percent used; and the same for staging, which there is not.
    const long long free_mib = static_cast<long long>(unused >> 20);
    const long long used = capacity > 0 ? static_cast<long long>((capacity - unused) * 100 / capacity) : 0;
    bytes = std::snprintf(into, static_cast<size_t>(bytes), "1 %lld %lld 0 0 0", free_mib, used);
    return 0;
}

int Storage::StatLS(XrdOucEnv &, const char *, char *into, int &bytes) {
    uint64_t capacity = 0, unused = 0;
    const int error = room(capacity, unused);
    if (error != 0) {
        return error;
    }
    const auto all = static_cast<long long>(capacity), left = static_cast<long long>(unused);
    bytes = std::snprintf(into, static_cast<size_t>(bytes),
                          "oss.cgroup=public&oss.space=%lld&oss.free=%lld&oss.maxf=%lld&oss.used=%lld&oss.quota=-1", all, left, left, all - left);
    return 0;
}

int Storage::StatVS(XrdOssVSInfo *into, const char *, int) {
    uint64_t capacity = 0, unused = 0;
    const int error = room(capacity, unused);
    if (error == 0) {
        into->Total = static_cast<long long>(capacity);
        into->Free = into->Large = into->LFree = static_cast<long long>(unused);
        into->Usage = static_cast<long long>(capacity - unused);
        into->Quota = -1;
        into->Extents = 1;
    }
    return error;
}

int Storage::Truncate(const char *path, unsigned long long length, XrdOucEnv *) {
    return with("cut", path, [&](forebay_files *files, const std::string &there) {
        forebay_writer *writer = nullptr;
        int code = forebay_files_open_write(files, there.data(), there.size(), 0, &writer);
        if (code != FOREBAY_DONE) {
            return code;
        }
        code = forebay_writer_truncate(writer, length);
        code = code == FOREBAY_DONE ? forebay_writer_close(writer) : code;
        forebay_writer_free(writer);
        return code;
    });
}

int Storage::Unlink(const char *path, int, XrdOucEnv *client) {
    if (client == nullptr) {
        // By itself, XRootD takes away by its name what nobody closed, and that may be long ago, and was not sealed.
        forebay_stat known;
        const int error = look_at(path, known);
        if (error != 0) {
            return error;
        }
        if (known.is_sealed) {
            store_.warn("take away", path, "it is sealed, so another file has this name by now: it stays");
            return -ENOENT;
        }
    }
    return with("remove", path, [&](forebay_files *files, const std::string &there) {
        return forebay_files_remove(files, there.data(), there.size());
    });
}

/// Those of the server's other parts that know the store by themselves (checksums, what fetches) are told its own paths.
int Storage::Lfn2Pfn(const char *path, char *into, int bytes) {
    const std::string there = store_.path(path);
    if (there.size() >= static_cast<size_t>(bytes)) {
        return -ENAMETOOLONG;
    }
    std::memcpy(into, there.c_str(), there.size() + 1);
    return 0;
}

const char *Storage::Lfn2Pfn(const char *path, char *into, int bytes, int &error) {
    error = Lfn2Pfn(path, into, bytes);
    return error == 0 ? into : nullptr;
}

}  // namespace

}  // namespace forebay_xrootd

XrdVERSIONINFO(XrdOssGetStorageSystem, forebay);

extern "C" XrdOss *XrdOssGetStorageSystem(XrdOss *, XrdSysLogger *logger, const char *, const char *settings) {
    // It is used for as long as the process lives.
    auto *log = new XrdSysError(logger, "forebay_");
    forebay_xrootd::Store *store = forebay_xrootd::the_store(settings, *log);
    return store != nullptr ? new forebay_xrootd::Storage(*store) : nullptr;
}
