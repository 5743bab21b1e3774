#include "directory.hh"

#include <cerrno>
#include <cstring>

namespace forebay_xrootd {

int Directory::Opendir(const char *path, XrdOucEnv &) {
    if (is_open_) {
        return -EBADF;
    }
    path_ = store_.path(path);
    forebay_files *files = store_.files();
    forebay_stat known;
    if (files == nullptr || forebay_files_stat(files, path_.data(), path_.size(), &known) != FOREBAY_DONE) {
        return store_.failed("list", path);
    }
    is_open_ = known.kind == FOREBAY_KIND_DIRECTORY;
    return is_open_ ? 0 : -ENOTDIR;
}

int Directory::StatRet(struct stat *into) {
    if (!is_open_ || listing_ != nullptr) {
        return -EBADF;
    }
    wanted_ = into;
    return 0;
}

int Directory::Readdir(char *into, int bytes) {
    if (!is_open_) {
        return -EBADF;
    }
    if (listing_ == nullptr) {
        const int detail = wanted_ != nullptr ? FOREBAY_LIST_ALL : FOREBAY_LIST_NAMES;
        if (forebay_files_list(store_.files(), path_.data(), path_.size(), detail, &listing_) != FOREBAY_DONE) {
            return store_.failed("list", path_.c_str());
        }
    }
    forebay_entry entry;
    if (forebay_listing_next(listing_, &entry) != FOREBAY_DONE) {
        return store_.failed("list", path_.c_str());
    }
    if (entry.name == nullptr) {
        *into = '\0';
        return 0;
    }
    if (entry.name_bytes >= static_cast<size_t>(bytes)) {
        return -ENAMETOOLONG;
    }
    std::memcpy(into, entry.name, entry.name_bytes + 1);
    if (wanted_ != nullptr) {
        fill(*wanted_, entry.stat);
    }
    return 0;
}

int Directory::Close(long long *) {
    forebay_listing_free(listing_);
    listing_ = nullptr;
    is_open_ = false;
    return 0;
}

}  // namespace forebay_xrootd
