// A directory of the store that is listed.

#pragma once

#include <string>

#include <XrdOss/XrdOss.hh>

#include "store.hh"

namespace forebay_xrootd {

/// A directory that a client lists. Pages are asked for as it goes on.
class Directory : public XrdOssDF {
public:
    Directory(Store &store, const char *client) : XrdOssDF(client, DF_isDir), store_(store) {}
    ~Directory() override { forebay_listing_free(listing_); }

    int Opendir(const char *path, XrdOucEnv &environment) override;
    int Readdir(char *into, int bytes) override;
    int StatRet(struct stat *into) override;
    int Close(long long *bytes = nullptr) override;

private:
    Store &store_;
    std::string path_;
    forebay_listing *listing_ = nullptr;
    /// Where what is known of each entry goes, if anybody wants it.
    struct stat *wanted_ = nullptr;
    bool is_open_ = false;
};

}  // namespace forebay_xrootd
