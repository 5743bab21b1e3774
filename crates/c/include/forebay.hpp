// The client of a Forebay server for C++17, over forebay.h: handles that free themselves, and exceptions. docs/c.md says how to use it.
//
// - What fails throws forebay::Error. No destructor throws, and none waits for an answer of its own.
// - Handles move and are not copied. Any thread may use one, but a Config.
// - A Writer that is destroyed without close() leaves its file as it is: not sealed, with what was acknowledged and perhaps more. abandon() is for one that is to go.
// - What a Fragment or an Event shows lives as long as the Fragments or Events that it is from.

#ifndef FOREBAY_HPP
#define FOREBAY_HPP

#include <forebay.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forebay {

// What went wrong: what() says what happened, what it means for the data, and what to do.
class Error : public std::runtime_error {
public:
    // Of the last call of this thread that failed.
    explicit Error(std::int32_t code)
        : std::runtime_error(forebay_last_error()), code_(code), number_(forebay_last_errno()), retryable_(forebay_last_is_retryable()) {}

    // One of FOREBAY_...
    std::int32_t code() const noexcept { return code_; }
    // Its name, as in "FOREBAY_NOT_FOUND".
    const char *name() const noexcept { return forebay_code_name(code_); }
    // The number of POSIX, as in errno.h.
    int posix() const noexcept { return number_; }
    // Whether the same call may be made again, and may succeed then.
    bool is_retryable() const noexcept { return retryable_; }

private:
    std::int32_t code_;
    int number_;
    bool retryable_;
};

// Throws what a function of forebay.h that failed says.
inline void check(std::int32_t code) {
    if (code != FOREBAY_DONE) {
        throw Error(code);
    }
}

namespace detail {

template <auto Free>
struct Freer {
    template <typename T>
    void operator()(T *handle) const noexcept {
        Free(handle);
    }
};

template <typename T, auto Free>
using Handle = std::unique_ptr<T, Freer<Free>>;

// A text of the library, as one of C++.
inline std::string take(forebay_text *text) {
    Handle<forebay_text, forebay_text_free> owned(text);
    return std::string(forebay_text_data(text), forebay_text_bytes(text));
}

// An array as C takes it: null when there is nothing in it.
template <typename T>
const T *data(const std::vector<T> &items) noexcept {
    return items.empty() ? nullptr : items.data();
}

}  // namespace detail

using FragmentId = forebay_fragment_id;
using EventKey = forebay_event_key;
using PutResult = forebay_put_result;
using ListedEvent = forebay_listed_event;
using Owner = forebay_owner;
using Stat = forebay_stat;

// How clients behave. One thread at a time may use it.
class Config {
public:
    // The defaults, for the server at HOST:PORT; the name stands in its log.
    explicit Config(const std::string &address, const std::string &name = "c++") {
        forebay_config *made = nullptr;
        check(forebay_config_new(address.c_str(), name.c_str(), &made));
        config_.reset(made);
    }

    Config &set_class(std::int32_t value) { return set(forebay_config_set_class(get(), value)); }
    Config &set_deadline_ms(std::int64_t value) { return set(forebay_config_set_deadline_ms(get(), value)); }
    Config &set_connect_timeout_ms(std::uint32_t value) { return set(forebay_config_set_connect_timeout_ms(get(), value)); }
    Config &set_must_listen(bool value) { return set(forebay_config_set_must_listen(get(), value)); }
    Config &set_batch(std::size_t bytes, std::uint64_t delay_us) { return set(forebay_config_set_batch(get(), bytes, delay_us)); }
    Config &set_connections(std::uint32_t value) { return set(forebay_config_set_connections(get(), value)); }
    Config &set_patience_ms(std::int64_t value) { return set(forebay_config_set_patience_ms(get(), value)); }
    Config &set_ahead_bytes(std::size_t value) { return set(forebay_config_set_ahead_bytes(get(), value)); }
    Config &set_unanswered_bytes(std::size_t value) { return set(forebay_config_set_unanswered_bytes(get(), value)); }

    forebay_config *get() const noexcept { return config_.get(); }

private:
    Config &set(std::int32_t code) {
        check(code);
        return *this;
    }

    detail::Handle<forebay_config, forebay_config_free> config_;
};

// A fragment that was read.
struct Fragment {
    FragmentId id;
    // One of FOREBAY_READ_...
    std::int32_t outcome;
    // Its bytes, checked; none unless found.
    std::string_view bytes;

    explicit Fragment(const forebay_fragment &read)
        : id(read.id), outcome(read.outcome), bytes(reinterpret_cast<const char *>(read.bytes), read.bytes_count) {}

    bool found() const noexcept { return outcome == FOREBAY_READ_FOUND; }
};

// Fragments that were read, in the order in which they were asked for.
class Fragments {
public:
    explicit Fragments(forebay_fragments *owned) : fragments_(owned) {}

    std::size_t size() const noexcept { return forebay_fragments_count(fragments_.get()); }

    Fragment operator[](std::size_t index) const {
        forebay_fragment read{};
        check(forebay_fragments_at(fragments_.get(), index, &read));
        return Fragment(read);
    }

private:
    detail::Handle<forebay_fragments, forebay_fragments_free> fragments_;
};

// Events that were read.
class Events {
public:
    explicit Events(forebay_events *owned) : events_(owned) {}

    std::size_t size() const noexcept { return forebay_events_count(events_.get()); }

    forebay_event operator[](std::size_t index) const {
        forebay_event read{};
        check(forebay_events_at(events_.get(), index, &read));
        return read;
    }

    // A fragment of one of them.
    Fragment fragment(std::size_t index, std::size_t fragment_index) const {
        forebay_fragment read{};
        check(forebay_events_fragment(events_.get(), index, fragment_index, &read));
        return Fragment(read);
    }

private:
    detail::Handle<forebay_events, forebay_events_free> events_;
};

// The word of a filter on an event: accepted into streams, or without any rejected.
struct Decision {
    EventKey key;
    std::vector<std::string> streams;
    bool incomplete = false;
};

// Events that are leased.
struct Lease {
    std::vector<ListedEvent> events;
    // Events without a decision, leased or not.
    std::uint64_t undecided;
    // When it is worth to ask again for those that are missing.
    std::uint64_t retry_after_ms;
};

// Accepted events of a stream.
struct Accepted {
    std::vector<ListedEvent> events;
    // Whether there are more behind the last one now.
    bool more;
    // The smallest undecided event: none below it that is there now will still be accepted.
    std::optional<EventKey> undecided_floor;
};

class Subscription;

// A client of fragments and events. Its calls wait for each other: threads that are to work at the same time have one each.
class Client {
public:
    explicit Client(const Config &config) {
        forebay_client *made = nullptr;
        check(forebay_client_connect(config.get(), &made));
        client_.reset(made);
    }

    void ping() { check(forebay_client_ping(get())); }

    // The state of the server, as JSON.
    std::string status() {
        forebay_text *text = nullptr;
        check(forebay_client_status(get(), &text));
        return detail::take(text);
    }

    // All that is known of an event, as JSON.
    std::string trace(EventKey key) {
        forebay_text *text = nullptr;
        check(forebay_client_trace(get(), key, &text));
        return detail::take(text);
    }

    // Puts a fragment: what becomes of it is told by take_results() or wait_results(). expected: fragments of the event, 0 when not known.
    void put(FragmentId id, std::uint16_t expected, std::string_view payload) {
        check(forebay_client_put(get(), id, expected, payload.data(), payload.size()));
    }

    void put(FragmentId id, std::uint16_t expected, std::string_view payload, std::uint32_t crc32c) {
        check(forebay_client_put_with_crc32c(get(), id, expected, payload.data(), payload.size(), crc32c));
    }

    // Sends what is batched and waits until every put has its result.
    void flush() { check(forebay_client_flush(get())); }

    // The results that are there, at most so many.
    std::vector<PutResult> take_results(std::size_t max = 1024) {
        std::vector<PutResult> results(max);
        std::size_t count = 0;
        check(forebay_client_take_put_results(get(), results.data(), max, &count));
        results.resize(count);
        return results;
    }

    // The same, waiting for the first of them.
    std::vector<PutResult> wait_results(std::uint64_t longest_ms, std::size_t max = 1024) {
        std::vector<PutResult> results(max);
        std::size_t count = 0;
        check(forebay_client_wait_put_results(get(), longest_ms, results.data(), max, &count));
        results.resize(count);
        return results;
    }

    std::size_t pending_puts() const {
        std::size_t count = 0;
        check(forebay_client_pending_puts(get(), &count));
        return count;
    }

    // A fragment; it throws when there is none.
    Fragments get(FragmentId id) {
        forebay_fragments *read = nullptr;
        check(forebay_client_get(get(), id, &read));
        return Fragments(read);
    }

    Fragments get_many(const std::vector<FragmentId> &ids) {
        forebay_fragments *read = nullptr;
        check(forebay_client_get_many(get(), detail::data(ids), ids.size(), &read));
        return Fragments(read);
    }

    // Whole events.
    Events get_events(const std::vector<EventKey> &keys) { return get_events(keys, nullptr, 0); }

    // Some sources of them; without any, the events without fragments.
    Events get_events(const std::vector<EventKey> &keys, const std::vector<std::uint32_t> &sources) {
        const std::uint32_t none = 0;
        return get_events(keys, sources.empty() ? &none : sources.data(), sources.size());
    }

    // Leases undecided events, of a run or of all.
    Lease lease(std::uint32_t max, std::uint64_t duration_ms, std::uint64_t filter, std::optional<std::uint32_t> run = std::nullopt) {
        Lease lease{std::vector<ListedEvent>(max), 0, 0};
        forebay_lease told{};
        check(forebay_client_lease(get(), duration_ms, filter, run ? &*run : nullptr, lease.events.data(), max, &told));
        lease.events.resize(told.count);
        lease.undecided = told.undecided;
        lease.retry_after_ms = told.retry_after_ms;
        return lease;
    }

    // Tells decisions; the outcomes, FOREBAY_DECIDE_..., in their order.
    std::vector<std::int32_t> decide(const std::vector<Decision> &decisions) {
        std::vector<std::vector<const char *>> names;
        std::vector<forebay_decision> told;
        names.reserve(decisions.size());
        for (const Decision &decision : decisions) {
            std::vector<const char *> &streams = names.emplace_back();
            for (const std::string &stream : decision.streams) {
                streams.push_back(stream.c_str());
            }
            told.push_back(forebay_decision{decision.key, detail::data(streams), streams.size(), decision.incomplete});
        }
        std::vector<std::int32_t> outcomes(decisions.size());
        check(forebay_client_decide(get(), detail::data(told), told.size(), outcomes.data()));
        return outcomes;
    }

    // Drops events, whatever was decided.
    std::vector<std::int32_t> drop(const std::vector<EventKey> &keys) {
        std::vector<std::int32_t> outcomes(keys.size());
        check(forebay_client_delete(get(), detail::data(keys), keys.size(), outcomes.data()));
        return outcomes;
    }

    // Accepted events of a stream that it has not released.
    Accepted accepted(const std::string &stream, std::uint32_t max, std::optional<EventKey> after = std::nullopt) {
        Accepted page{std::vector<ListedEvent>(max), false, std::nullopt};
        forebay_accepted told{};
        check(forebay_client_accepted(get(), stream.c_str(), after ? &*after : nullptr, page.events.data(), max, &told));
        page.events.resize(told.count);
        page.more = told.more;
        if (told.has_undecided_floor) {
            page.undecided_floor = told.undecided_floor;
        }
        return page;
    }

    // Says that a stream has these events safely elsewhere.
    std::vector<std::int32_t> release(const std::string &stream, const std::vector<EventKey> &keys) {
        std::vector<std::int32_t> outcomes(keys.size());
        check(forebay_client_release(get(), stream.c_str(), detail::data(keys), keys.size(), outcomes.data()));
        return outcomes;
    }

    forebay_client *get() const noexcept { return client_.get(); }

private:
    Events get_events(const std::vector<EventKey> &keys, const std::uint32_t *sources, std::size_t count) {
        forebay_events *read = nullptr;
        check(forebay_client_get_events(get(), detail::data(keys), keys.size(), sources, count, &read));
        return Events(read);
    }

    detail::Handle<forebay_client, forebay_client_free> client_;
};

// Somebody who looks on while events arrive, best effort. The client has to live as long.
class Subscription {
public:
    // Of a run or of all, into a stream or (none named) as soon as filters may have them, so many of a million.
    explicit Subscription(Client &client, std::optional<std::uint32_t> run = std::nullopt, const std::string &stream = "",
                          std::uint32_t fraction_millionths = 1000000)
        : client_(client.get()) {
        forebay_subscription *made = nullptr;
        const char *name = stream.empty() ? nullptr : stream.c_str();
        check(forebay_client_subscribe(client_, run ? &*run : nullptr, name, fraction_millionths, &made));
        subscription_.reset(made);
    }

    // The next events, read; it waits for the first of them.
    Events next(std::uint64_t longest_ms) {
        forebay_events *read = nullptr;
        check(forebay_subscription_next(client_, subscription_.get(), longest_ms, &read));
        return Events(read);
    }

    forebay_subscription_counts counts() const {
        forebay_subscription_counts counts{};
        check(forebay_subscription_get_counts(subscription_.get(), &counts));
        return counts;
    }

private:
    forebay_client *client_;
    detail::Handle<forebay_subscription, forebay_subscription_free> subscription_;
};

// A file that is open for reading.
class Reader {
public:
    explicit Reader(forebay_reader *owned) : reader_(owned) {}

    // As many bytes as there is room for, fewer before the end; how many.
    std::size_t pread(std::uint64_t offset, void *into, std::size_t bytes) const {
        std::size_t count = 0;
        check(forebay_reader_pread(get(), offset, into, bytes, &count));
        return count;
    }

    // The same; from ahead_end on nothing is read ahead, as somebody else reads there.
    std::size_t pread_until(std::uint64_t offset, void *into, std::size_t bytes, std::uint64_t ahead_end) const {
        std::size_t count = 0;
        check(forebay_reader_pread_until(get(), offset, into, bytes, ahead_end, &count));
        return count;
    }

    // The same file once more, whatever became of its name, for who reads elsewhere in it. This reader has to stay open as long.
    Reader open_again() const {
        forebay_reader *again = nullptr;
        check(forebay_reader_open_again(get(), &again));
        return Reader(again);
    }

    Stat stat() const {
        Stat stat{};
        check(forebay_reader_stat(get(), &stat));
        return stat;
    }

    void close() { check(forebay_reader_close(get())); }

    forebay_reader *get() const noexcept { return reader_.get(); }

private:
    detail::Handle<forebay_reader, forebay_reader_free> reader_;
};

// A file that is open for writing, and for reading what is in it.
class Writer {
public:
    explicit Writer(forebay_writer *owned) : writer_(owned) {}

    // At the end of what was there and of what was written so.
    void write(std::string_view bytes) { check(forebay_writer_write(get(), bytes.data(), bytes.size())); }
    void write(const void *data, std::size_t bytes) { check(forebay_writer_write(get(), data, bytes)); }
    void pwrite(std::uint64_t offset, const void *data, std::size_t bytes) { check(forebay_writer_pwrite(get(), offset, data, bytes)); }

    // As Reader::pread, when all that was written is durable.
    std::size_t pread(std::uint64_t offset, void *into, std::size_t bytes) const {
        std::size_t count = 0;
        check(forebay_writer_pread(get(), offset, into, bytes, &count));
        return count;
    }

    // Waits until all that was written is durable.
    void sync() { check(forebay_writer_sync(get())); }
    void truncate(std::uint64_t length) { check(forebay_writer_truncate(get(), length)); }
    void set_mode(std::uint32_t mode) { check(forebay_writer_set_mode(get(), mode)); }

    Stat stat() const {
        Stat stat{};
        check(forebay_writer_stat(get(), &stat));
        return stat;
    }

    // Waits until all is durable, and seals the file when it was opened with FOREBAY_WRITE_SEAL.
    void close() { check(forebay_writer_close(get())); }
    // Leaves what is there, not sealed; with remove, it loses its name and is gone.
    void abandon(bool remove) { check(forebay_writer_abandon(get(), remove ? FOREBAY_ABANDON_REMOVE : 0)); }

    forebay_writer *get() const noexcept { return writer_.get(); }

private:
    detail::Handle<forebay_writer, forebay_writer_free> writer_;
};

// An entry of a directory.
struct Entry {
    std::string name;
    Stat stat;
};

// A directory that is listed, page by page.
class Listing {
public:
    explicit Listing(forebay_listing *owned) : listing_(owned) {}

    // The next entry, in the order of names; none behind the last one.
    std::optional<Entry> next() {
        forebay_entry entry{};
        check(forebay_listing_next(listing_.get(), &entry));
        if (entry.name == nullptr) {
            return std::nullopt;
        }
        return Entry{std::string(entry.name, entry.name_bytes), entry.stat};
    }

private:
    detail::Handle<forebay_listing, forebay_listing_free> listing_;
};

// The sums of all of a sealed file.
struct Checksums {
    std::uint32_t crc32c;
    std::uint32_t adler32;
};

// How full a store is.
struct Room {
    std::uint64_t capacity_bytes;
    std::uint64_t free_bytes;
};

// The files of a store. Any thread may use it, at the same time as others.
class Files {
public:
    explicit Files(const Config &config) {
        forebay_files *made = nullptr;
        check(forebay_files_connect(config.get(), &made));
        files_.reset(made);
    }

    Stat stat(std::string_view path) const {
        Stat stat{};
        check(forebay_files_stat(get(), path.data(), path.size(), &stat));
        return stat;
    }

    // Of a link itself.
    Stat stat_link(std::string_view path) const {
        Stat stat{};
        check(forebay_files_stat_link(get(), path.data(), path.size(), &stat));
        return stat;
    }

    // The sums of a sealed file, waiting for them.
    Checksums checksums(std::string_view path, std::uint64_t longest_ms = 10000) const {
        Checksums sums{};
        check(forebay_files_checksums(get(), path.data(), path.size(), longest_ms, &sums.crc32c, &sums.adler32));
        return sums;
    }

    // detail: one of FOREBAY_LIST_...
    Listing list(std::string_view path, std::int32_t detail = FOREBAY_LIST_SIZES) const {
        forebay_listing *made = nullptr;
        check(forebay_files_list(get(), path.data(), path.size(), detail, &made));
        return Listing(made);
    }

    void make_directory(std::string_view path, std::uint32_t flags = 0, const Owner *owner = nullptr) {
        check(forebay_files_make_directory(get(), path.data(), path.size(), owner, flags));
    }

    void symlink(std::string_view target, std::string_view path, const Owner *owner = nullptr) {
        check(forebay_files_symlink(get(), target.data(), target.size(), path.data(), path.size(), owner));
    }

    std::string read_link(std::string_view path) const {
        forebay_text *target = nullptr;
        check(forebay_files_read_link(get(), path.data(), path.size(), &target));
        return detail::take(target);
    }

    void link(std::string_view existing, std::string_view path) {
        check(forebay_files_link(get(), existing.data(), existing.size(), path.data(), path.size()));
    }

    void rename(std::string_view from, std::string_view to, bool replace = false) {
        check(forebay_files_rename(get(), from.data(), from.size(), to.data(), to.size(), replace ? FOREBAY_RENAME_REPLACE : 0));
    }

    void remove(std::string_view path) { check(forebay_files_remove(get(), path.data(), path.size())); }
    void remove_directory(std::string_view path) { check(forebay_files_remove_directory(get(), path.data(), path.size())); }
    void seal(std::string_view path) { check(forebay_files_seal(get(), path.data(), path.size())); }
    void set_mode(std::string_view path, std::uint32_t mode) { check(forebay_files_set_mode(get(), path.data(), path.size(), mode)); }

    void set_owner(std::string_view path, std::uint32_t owner, std::uint32_t group) {
        check(forebay_files_set_owner(get(), path.data(), path.size(), owner, group));
    }

    void set_times(std::string_view path, std::int64_t written_unix_ns, std::int64_t accessed_unix_ns) {
        check(forebay_files_set_times(get(), path.data(), path.size(), written_unix_ns, accessed_unix_ns));
    }

    Room room() const {
        Room room{};
        check(forebay_files_room(get(), &room.capacity_bytes, &room.free_bytes));
        return room;
    }

    Reader open_read(std::string_view path) const {
        forebay_reader *made = nullptr;
        check(forebay_files_open_read(get(), path.data(), path.size(), &made));
        return Reader(made);
    }

    // A file that is not there yet.
    Writer create(std::string_view path, std::uint32_t flags = FOREBAY_WRITE_SEAL, const Owner *owner = nullptr) {
        forebay_writer *made = nullptr;
        check(forebay_files_create(get(), path.data(), path.size(), owner, flags, &made));
        return Writer(made);
    }

    // A file that is there.
    Writer open_write(std::string_view path, std::uint32_t flags = FOREBAY_WRITE_SEAL) {
        forebay_writer *made = nullptr;
        check(forebay_files_open_write(get(), path.data(), path.size(), flags, &made));
        return Writer(made);
    }

    forebay_files *get() const noexcept { return files_.get(); }

private:
    detail::Handle<forebay_files, forebay_files_free> files_;
};

}  // namespace forebay

#endif  // FOREBAY_HPP
