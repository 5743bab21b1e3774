#include "store.hh"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>

#include <XrdSys/XrdSysError.hh>

namespace forebay_xrootd {

namespace {

/// A number without a sign, all of the text.
bool number(const std::string &text, unsigned long most, unsigned long &value) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos || text.size() > 18) {
        return false;
    }
    value = std::strtoul(text.c_str(), nullptr, 10);
    return value <= most;
}

/// What an option comes to; false where it has no such value, or is none.
bool set(Settings &settings, const std::string &name, const std::string &value) {
    unsigned long given = 0;
    if (name == "prefix") {
        settings.prefix = value;
        while (!settings.prefix.empty() && settings.prefix.back() == '/') {
            settings.prefix.pop_back();
        }
        return settings.prefix.empty() || settings.prefix.front() == '/';
    }
    if (name == "connections" && number(value, 64, given) && given > 0) {
        settings.connections = static_cast<unsigned>(given);
    } else if (name == "patience_s" && number(value, 86'400, given)) {
        settings.patience_ms = static_cast<long>(given) * 1000;
    } else if (name == "deadline_s" && number(value, 86'400, given) && given > 0) {
        settings.deadline_ms = static_cast<long>(given) * 1000;
    } else if (name == "checksum_s" && number(value, 86'400, given)) {
        settings.checksum_ms = given * 1000;
    } else if (name == "ahead_mib" && number(value, 1024, given) && given > 0) {
        settings.ahead_bytes = given << 20;
    } else if (name == "ahead_all_mib" && number(value, 1 << 20, given)) {
        settings.ahead_all_bytes = given << 20;
    } else if (name == "kept_mib" && number(value, 1 << 30, given)) {
        settings.kept_bytes = static_cast<uint64_t>(given) << 20;
    } else {
        return false;
    }
    return true;
}

/// A configuration of the library, freed in the end.
struct Config {
    forebay_config *config = nullptr;
    ~Config() { forebay_config_free(config); }
};

/// Connects; null when nothing answers.
forebay_files *connect(const Settings &settings) {
    Config made;
    if (forebay_config_new(settings.address.c_str(), "xrootd", &made.config) != FOREBAY_DONE) {
        return nullptr;
    }
    forebay_files *files = nullptr;
    bool is_set = forebay_config_set_deadline_ms(made.config, settings.deadline_ms) == FOREBAY_DONE;
    is_set = is_set && forebay_config_set_connections(made.config, settings.connections) == FOREBAY_DONE;
    is_set = is_set && forebay_config_set_patience_ms(made.config, settings.patience_ms) == FOREBAY_DONE;
    is_set = is_set && forebay_config_set_ahead_bytes(made.config, settings.ahead_bytes) == FOREBAY_DONE;
    if (!is_set || forebay_files_connect(made.config, &files) != FOREBAY_DONE) {
        return nullptr;
    }
    return files;
}

/// What everybody meets who looks for a name, and no operator has to know.
bool is_everyday(int code) {
    switch (code) {
        case FOREBAY_NOT_FOUND:
        case FOREBAY_EXISTS:
        case FOREBAY_NOT_DIRECTORY:
        case FOREBAY_IS_DIRECTORY:
        case FOREBAY_NOT_FILE:
        case FOREBAY_NOT_EMPTY:
        case FOREBAY_BAD_NAME:
        case FOREBAY_TOO_LONG:
        case FOREBAY_NOT_SEALED:
        case FOREBAY_NOT_READY:
        case FOREBAY_SEALED:
        case FOREBAY_REMOVED:
            return true;
        default:
            return false;
    }
}

}  // namespace

std::string Settings::parse(const char *text) {
    std::istringstream words(text != nullptr ? text : "");
    std::string word;
    if (!(words >> address) || address.find(':') == std::string::npos) {
        return "the first word behind the library must be the store's HOST:PORT, as in ofs.osslib libXrdForebay.so 127.0.0.1:7420";
    }
    while (words >> word) {
        const auto equals = word.find('=');
        if (equals == std::string::npos || !set(*this, word.substr(0, equals), word.substr(equals + 1))) {
            return word + " is no option: prefix=/DIR, connections=1..64, patience_s=N, deadline_s=N, checksum_s=N, ahead_mib=N, ahead_all_mib=N and kept_mib=N are";
        }
    }
    return "";
}

forebay_files *Store::files() {
    const std::lock_guard<std::mutex> lock(connecting_);
    if (connected_ == nullptr) {
        connected_ = connect(settings_);
    }
    return connected_;
}

std::string Store::path(const char *path) const { return settings_.prefix + path; }

int Store::failed(const char *action, const char *path) {
    const int code = forebay_last_code(), error = forebay_last_errno();
    if (!is_everyday(code)) {
        warn(action, path, forebay_last_error());
    }
    switch (error) {
        case ETIMEDOUT: return -ENETUNREACH;
        case EBUSY: return -ETXTBSY;
        default: return error > 0 ? -error : -EIO;
    }
}

void Store::warn(const char *action, const char *path, const char *what) {
    log_.Emsg("forebay", action, path);
    log_.Say("------ forebay: ", what);
}

Store *the_store(const char *text, XrdSysError &log) {
    static std::mutex one_at_a_time;
    static Store *store = nullptr;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    if (store != nullptr && (text == nullptr || *text == '\0')) {
        return store;
    }
    Settings settings;
    const std::string wrong = settings.parse(text);
    if (!wrong.empty()) {
        log.Say("------ forebay: ", wrong.c_str());
        return nullptr;
    }
    if (store != nullptr && store->settings().address != settings.address) {
        log.Say("------ forebay: one server has one store: ", settings.address.c_str(), " is another than before");
        return nullptr;
    }
    if (store == nullptr) {
        store = new Store(std::move(settings), log);
    }
    return store;
}

void fill(struct stat &into, const forebay_stat &known) {
    std::memset(&into, 0, sizeof into);
    const auto split = [](int64_t unix_ns) {
        const int64_t seconds = unix_ns >= 0 ? unix_ns / 1'000'000'000 : (unix_ns - 999'999'999) / 1'000'000'000;
        return timespec{static_cast<time_t>(seconds), static_cast<long>(unix_ns - seconds * 1'000'000'000)};
    };
    mode_t kind = S_IFREG;
    switch (known.kind) {
        case FOREBAY_KIND_DIRECTORY: kind = S_IFDIR; break;
        case FOREBAY_KIND_LINK: kind = S_IFLNK; break;
        case FOREBAY_KIND_PIPE: kind = S_IFIFO; break;
        case FOREBAY_KIND_SOCKET: kind = S_IFSOCK; break;
        case FOREBAY_KIND_CHARACTER_DEVICE: kind = S_IFCHR; break;
        case FOREBAY_KIND_BLOCK_DEVICE: kind = S_IFBLK; break;
        default: break;
    }
    into.st_mode = kind | known.mode;
    // Those of a disk are not told apart from these: XRootD takes the device of 0 for a file that is not on disk.
    into.st_dev = 1;
    into.st_ino = known.number;
    into.st_nlink = known.links > 0 ? known.links : 1;
    into.st_uid = known.owner;
    into.st_gid = known.group;
    into.st_size = static_cast<off_t>(known.length);
    into.st_blksize = 1 << 20;
    into.st_blocks = static_cast<blkcnt_t>((known.length + 511) / 512);
    into.st_mtim = split(known.written_unix_ns);
    into.st_ctim = split(known.changed_unix_ns);
    into.st_atim = split(known.accessed_unix_ns);
}

}  // namespace forebay_xrootd
