// The client of a Forebay server, for C and C++. docs/c.md says how to use it.
//
// Every function that gives an int32_t gives FOREBAY_DONE or the code of what went wrong; forebay_last_error() and its like tell this thread more. Where a function fails, what
// it would have given is not set, but a handle, which is null then.
//
// Paths are any bytes but zero, given with their number, and need no zero at their end; addresses, names of streams and the like are texts with a zero byte at their end.
// A null pointer is refused, except where it is said what it means, and as an array of no items.
//
// Any thread may use any handle but a forebay_config. Whoever frees one sees to it that nobody uses it any more. What a function gives by a handle of its own is freed by the
// function of that handle, and by nothing else.
//
// Made by cbindgen: `FOREBAY_BLESS=1 cargo test -p forebay-c --test header` writes it again.

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of the ABI: a program that was compiled for another one cannot use this library. What is added does not change it.
#define FOREBAY_ABI_VERSION 0

// Done.
#define FOREBAY_DONE 0

// A mistake inside the library. Please report it with the text of the error.
#define FOREBAY_INTERNAL 1

// What the caller gave cannot be meant: a null pointer, a number out of its range, a text that is none.
#define FOREBAY_INVALID 2

// There is no such file, directory, fragment or event.
#define FOREBAY_NOT_FOUND 3

// The name is taken.
#define FOREBAY_EXISTS 4

// Something on the way is not a directory.
#define FOREBAY_NOT_DIRECTORY 5

// It is a directory.
#define FOREBAY_IS_DIRECTORY 6

// It is a pipe, a socket or a device, of which the store has the name alone.
#define FOREBAY_NOT_FILE 7

// The directory has entries.
#define FOREBAY_NOT_EMPTY 8

// Nothing can be called that, or a directory would lie in itself.
#define FOREBAY_BAD_NAME 9

// The name has more than 255 bytes, or the target of a link more than 4095.
#define FOREBAY_TOO_LONG 10

// Symbolic links lead to links without an end.
#define FOREBAY_LINK_LOOP 11

// More links to a file, or changes of a file, than are counted.
#define FOREBAY_TOO_MANY 12

// The store is full, or its memory for the index is used up.
#define FOREBAY_NO_SPACE 13

// Too few drives answer.
#define FOREBAY_UNAVAILABLE 14

// Bytes arrived damaged again and again. They were not used.
#define FOREBAY_DAMAGED 15

// The store cannot give these bytes any more.
#define FOREBAY_LOST 16

// Another writer wrote there.
#define FOREBAY_CONFLICT 17

// The file is sealed and never changes again.
#define FOREBAY_SEALED 18

// The file is not sealed, and has no sums.
#define FOREBAY_NOT_SEALED 19

// The file is sealed, and its sums are being computed.
#define FOREBAY_NOT_READY 20

// The handle was closed.
#define FOREBAY_CLOSED 21

// The file was removed, or the event of the fragment is over.
#define FOREBAY_REMOVED 22

// More bytes than a fragment or a file can have.
#define FOREBAY_TOO_LARGE 23

// The store was started read-only.
#define FOREBAY_READ_ONLY 24

// The store was made by a version without files.
#define FOREBAY_NO_FILES 25

// No answer before the deadline.
#define FOREBAY_TIMED_OUT 26

// Nothing listens at the address, or there is no such address.
#define FOREBAY_NO_SERVER 27

// The server refuses.
#define FOREBAY_REFUSED 28

// What answers does not speak the protocol, or breaks its rules.
#define FOREBAY_PROTOCOL 29

// Another store answers at the address than the one that the handle began with.
#define FOREBAY_OTHER_STORE 30

// Nobody knows whether it was done.
#define FOREBAY_UNKNOWN 31

// The operating system refused something.
#define FOREBAY_SYSTEM 32

// Outcome of a put: on stable media, the writer may forget the fragment.
#define FOREBAY_PUT_DURABLE 0

// The event was decided before: the fragment was dropped and counted, the writer may forget it.
#define FOREBAY_PUT_LATE 1

// The id is stored with other content; nothing was changed.
#define FOREBAY_PUT_CONFLICT 2

// The store is full; keep the fragment and try again.
#define FOREBAY_PUT_NO_SPACE 3

// The bytes do not have the checksum that was given with them.
#define FOREBAY_PUT_CHECKSUM_MISMATCH 4

// Larger than this store takes.
#define FOREBAY_PUT_TOO_LARGE 5

// Too few drives; keep the fragment and try again.
#define FOREBAY_PUT_UNAVAILABLE 6

// The memory for the index is used up; keep the fragment and try again.
#define FOREBAY_PUT_INDEX_FULL 7

// The store was started read-only.
#define FOREBAY_PUT_READ_ONLY 8

// Run 4294967295 is kept for files.
#define FOREBAY_PUT_KEPT_RUN 9

// The run is closed.
#define FOREBAY_PUT_RUN_CLOSED 10

// The run is discarded.
#define FOREBAY_PUT_RUN_DISCARDED 11

// Outcome of a read: the right bytes.
#define FOREBAY_READ_FOUND 0

// No such thing was ever acknowledged here.
#define FOREBAY_READ_NOT_FOUND 1

// The event was rejected, deleted or released.
#define FOREBAY_READ_DELETED 2

// Too few drives answer now; nothing is lost.
#define FOREBAY_READ_UNAVAILABLE 3

// Damaged beyond what parity can mend.
#define FOREBAY_READ_LOST 4

// Outcome of a decision, a deletion or a release: durable.
#define FOREBAY_DECIDE_DONE 0

// The same was durable before.
#define FOREBAY_DECIDE_ALREADY_DONE 1

// The event was decided otherwise before; nothing was changed.
#define FOREBAY_DECIDE_CONFLICT 2

// No such event, or none of that stream.
#define FOREBAY_DECIDE_NOT_FOUND 3

// No space, even in the reserve; try again.
#define FOREBAY_DECIDE_NO_SPACE 4

// Too few drives; try again.
#define FOREBAY_DECIDE_UNAVAILABLE 5

// The store was started read-only.
#define FOREBAY_DECIDE_READ_ONLY 6

// The store knows as many streams as it can.
#define FOREBAY_DECIDE_TOO_MANY_STREAMS 7

// The run is held: nothing of it is freed.
#define FOREBAY_DECIDE_HELD 8

// How far an event is: not known here.
#define FOREBAY_EVENT_UNKNOWN 0

// It waits for a decision.
#define FOREBAY_EVENT_UNDECIDED 1

// A filter has it.
#define FOREBAY_EVENT_LEASED 2

// Accepted, and not released by all of its streams.
#define FOREBAY_EVENT_ACCEPTED 3

// Rejected, deleted, or released by all of its streams.
#define FOREBAY_EVENT_FINISHED 4

// Kind of a node: a file.
#define FOREBAY_KIND_FILE 1

// A directory.
#define FOREBAY_KIND_DIRECTORY 2

// A symbolic link.
#define FOREBAY_KIND_LINK 3

// A pipe.
#define FOREBAY_KIND_PIPE 4

// A socket.
#define FOREBAY_KIND_SOCKET 5

// A character device.
#define FOREBAY_KIND_CHARACTER_DEVICE 6

// A block device.
#define FOREBAY_KIND_BLOCK_DEVICE 7

// What a client is for: it writes fragments or files.
#define FOREBAY_CLASS_READOUT 1

// It reads and decides events.
#define FOREBAY_CLASS_FILTER 2

// It ships accepted events.
#define FOREBAY_CLASS_MOVER 3

// It looks.
#define FOREBAY_CLASS_MONITOR 4

// What a listing tells of each entry: its name, number and kind.
#define FOREBAY_LIST_NAMES 0

// And of files their length, whether they are sealed, and their sums.
#define FOREBAY_LIST_SIZES 1

// All that `forebay_files_stat` tells; a request for each entry, many at once.
#define FOREBAY_LIST_ALL 2

// Closing the writer seals the file.
#define FOREBAY_WRITE_SEAL 1

// The server chooses where each piece goes: behind what others wrote.
#define FOREBAY_WRITE_APPEND 2

// What has the new name already gives way, in the same step.
#define FOREBAY_RENAME_REPLACE 1

// The directories on the way are made, too, and one that is there is as it should be.
#define FOREBAY_MAKE_PARENTS 1

// The file loses its name, if that is still its own, and is gone with it.
#define FOREBAY_ABANDON_REMOVE 1

// A client of one server. Any thread may use it, and each call waits for the one before: threads that are to work at the same time have one each.
typedef struct forebay_client forebay_client;

// How a client behaves. It is copied when something connects with it; one thread at a time may use it.
typedef struct forebay_config forebay_config;

// Events that were read, in the order in which they were asked for or told.
typedef struct forebay_events forebay_events;

// The files of a store. Any thread may use it, at the same time as others: see `forebay_config_set_connections`. Readers, writers and listings that it gave may outlive it.
typedef struct forebay_files forebay_files;

// Fragments that were read, in the order in which they were asked for.
typedef struct forebay_fragments forebay_fragments;

// A directory that is listed, in the order of the bytes of its names. Pages are asked for as it goes on: what comes or goes meanwhile may be told or not.
typedef struct forebay_listing forebay_listing;

// A file that is open for reading. Any thread may use it, and each call waits for the one before. While it is open the file stays, whatever becomes of its name.
typedef struct forebay_reader forebay_reader;

// Somebody who looks on while events arrive: best effort, and nothing waits for it. It is used with the client that made it.
typedef struct forebay_subscription forebay_subscription;

// A text that the library gave: JSON, or the target of a link. `forebay_text_free` frees it.
typedef struct forebay_text forebay_text;

// A file that is open for writing, and for reading what is in it. Any thread may use it, and each call waits for the one before.
//
// Writes are taken at once and sent behind: they are durable when `forebay_writer_sync` or `forebay_writer_close` says so. After a failure that may pass
// (`forebay_last_is_retryable`) nothing is lost: what was not acknowledged is sent again by the next call. Others stay: each call says them again.
typedef struct forebay_writer forebay_writer;

// What names a fragment.
typedef struct {
    // The run.
    uint32_t run;
    // The source.
    uint32_t source;
    // The event.
    uint64_t event;
} forebay_fragment_id;

// A fragment that was read.
typedef struct {
    // What names it.
    forebay_fragment_id id;
    // One of `FOREBAY_READ_...`.
    int32_t outcome;
    // Its bytes, checked; they are there until what they were read with is freed.
    const uint8_t *bytes;
    // How many; 0 unless found.
    size_t bytes_count;
} forebay_fragment;

// What names an event.
typedef struct {
    // The run.
    uint32_t run;
    // The event.
    uint64_t event;
} forebay_event_key;

// An event that was read.
typedef struct {
    // What names it.
    forebay_event_key key;
    // One of `FOREBAY_READ_...`: found when the server knows it and has not finished it. Its fragments have outcomes of their own.
    int32_t outcome;
    // How far it is, one of `FOREBAY_EVENT_...`.
    int32_t state;
    // How many fragments it should have, as its writers said; 0 when not known.
    uint32_t expected;
    // How many fragments of it are stored, whatever sources were asked for.
    uint32_t stored;
    // How many fragments were read, ascending by source.
    size_t fragments;
} forebay_event;

// What became of a put.
typedef struct {
    // The fragment.
    forebay_fragment_id id;
    // One of `FOREBAY_PUT_...`: what the server last said; unavailable when it never answered. With durable and late alone the writer may forget the fragment.
    int32_t outcome;
    // Whether the server said so of every attempt. If not, the fragment may or may not be stored; putting it again is safe.
    bool answered;
    // From the call of put to the answer.
    uint64_t latency_ns;
} forebay_put_result;

// An event that is leased to a filter, or accepted.
typedef struct {
    // What names it.
    forebay_event_key key;
    // Bytes of its fragments.
    uint64_t bytes;
    // Fragments that are stored.
    uint32_t fragments;
    // Of a leased one: fragments that it should have, as its writers said; 0 when not known.
    uint16_t expected;
    // Of a leased one: how often it was leased, this time included.
    uint16_t attempt;
    // Whether it is given, or was decided, without all of its fragments.
    bool incomplete;
} forebay_listed_event;

// What is told with leased events.
typedef struct {
    // How many events there are.
    size_t count;
    // Events without a decision, leased or not.
    uint64_t undecided;
    // When it is worth to ask again for those that are missing; 0 when there are as many as were asked for.
    uint64_t retry_after_ms;
} forebay_lease;

// The word of a filter on an event.
typedef struct {
    // The event.
    forebay_event_key key;
    // The streams into which it is accepted, texts that end with a zero byte; null with `streams_count` 0: it is rejected.
    const char *const *streams;
    // How many; at most 64.
    size_t streams_count;
    // Whether it was decided without all of its fragments.
    bool incomplete;
} forebay_decision;

// What is told with accepted events.
typedef struct {
    // How many events there are.
    size_t count;
    // Whether there are more behind the last one now.
    bool more;
    // Whether there is an undecided event.
    bool has_undecided_floor;
    // The smallest undecided event: none below it that is there now will still be accepted.
    forebay_event_key undecided_floor;
} forebay_accepted;

// What became of the events of a subscription so far.
typedef struct {
    // Events that were wanted and told.
    uint64_t told;
    // Of these, those that were read.
    uint64_t read;
    // Events that were wanted and were over before they could be told, or read.
    uint64_t gone;
    // Events that were told and could not be read.
    uint64_t unreadable;
    // Events that the server forgot before it was asked, wanted or not.
    uint64_t dropped;
    // How often it was seen that the server had been started anew.
    uint64_t restarts;
} forebay_subscription_counts;

// Who asks for something that is done with a run, and why. It is kept with the run; either may be null where no reason is demanded.
typedef struct {
    // Who, at most 128 bytes; null: nobody says.
    const char *by;
    // Why, at most 1024 bytes; null: nobody says.
    const char *reason;
} forebay_signature;

// So many fragments came of each source from `first` to `last`.
typedef struct {
    // The first source.
    uint32_t first;
    // The last one, which may be the same.
    uint32_t last;
    // Fragments of each of them.
    uint64_t fragments;
} forebay_source_fragments;

// What a stream is defined to be. The store applies the prescale; all else is for whoever ships.
typedef struct {
    // The sources that it is shipped with, as in "0-15,32"; null: all.
    const char *sources;
    // The format of its files; null: what its events are.
    const char *format;
    // Where it goes: an address, or the name of a destination of the mover's configuration; null: where the mover is told.
    const char *destination;
    // A luminosity block has so many event numbers; 0: it does not end by these.
    uint64_t block_events;
    // A luminosity block lasts so many seconds; 0: it does not end by these. With both 0 a run is one block; one of both has to be.
    uint64_t block_s;
    // One event in so many is kept, at least 1.
    uint32_t prescale;
    // Streams with a higher one are shipped first.
    uint16_t priority;
} forebay_stream_definition;

// What is known of something that has a name.
typedef struct {
    // Its number, which nothing else in this store ever gets.
    uint64_t number;
    // How long it is, bytes; of a link, its target.
    uint64_t length;
    // When its content changed last, nanoseconds since 1970.
    int64_t written_unix_ns;
    // When its name, mode or owner changed last, nanoseconds since 1970.
    int64_t changed_unix_ns;
    // When it was read last, as far as somebody said so, nanoseconds since 1970.
    int64_t accessed_unix_ns;
    // One of `FOREBAY_KIND_...`.
    int32_t kind;
    // Permissions, 12 bits.
    uint32_t mode;
    // The number of its user.
    uint32_t owner;
    // The number of its group.
    uint32_t group;
    // How many names it has.
    uint32_t links;
    // With `has_sums`: the CRC32C of all of it.
    uint32_t crc32c;
    // With `has_sums`: the adler32 of all of it.
    uint32_t adler32;
    // Whether `length` is known: that of a file whose drives do not answer is not.
    bool has_length;
    // Whether it is a file that never changes again.
    bool is_sealed;
    // Whether somebody has it open for writing.
    bool is_written;
    // Whether its sums are known: a file has some from a moment after it was sealed.
    bool has_sums;
} forebay_stat;

// Whose something new is, and who may do what with it.
typedef struct {
    // Permissions, 12 bits.
    uint32_t mode;
    // The number of its user.
    uint32_t owner;
    // The number of its group.
    uint32_t group;
} forebay_owner;

// An entry of a directory.
typedef struct {
    // Its name, with a zero byte behind it; null behind the last entry. It is there until the listing is asked for the next one, or freed.
    const char *name;
    // How many bytes its name has.
    size_t name_bytes;
    // What is known of it: its number and kind, and what was asked for; all else is 0.
    forebay_stat stat;
} forebay_entry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the ABI of the library that runs; it must be `FOREBAY_ABI_VERSION` of the header.
uint32_t forebay_abi_version(void);

// The version of the library that runs, as in "0.1.0".
const char *forebay_version(void);

// The name of a code, as in "FOREBAY_NOT_FOUND"; of a number that is none, "FOREBAY_UNKNOWN_CODE".
const char *forebay_code_name(int32_t code);

// What happened in the last call of this thread that failed, what it means for the data, and what to do. Empty when none failed. It is there until another call of this thread
// fails.
const char *forebay_last_error(void);

// The code of that call; `FOREBAY_DONE` when none failed.
int32_t forebay_last_code(void);

// The number of POSIX for it, as in `errno.h`; 0 when none failed.
int32_t forebay_last_errno(void);

// Whether that call may be made again as it was, and may succeed then.
bool forebay_last_is_retryable(void);

// The defaults, for the server at `address` ("HOST:PORT"). `name` stands in the server's log; null is "c".
int32_t forebay_config_new(const char *address, const char *name, forebay_config **config);

// Frees it; null is nothing to free. What connected with it goes on.
void forebay_config_free(forebay_config *config);

// What the client is for, one of `FOREBAY_CLASS_...` (default: readout). A busy server serves the first classes first.
int32_t forebay_config_set_class(forebay_config *config, int32_t class_);

// How long a request is repeated before it is given up, counted from the last part of its answer that came (default 60000); negative: for ever.
int32_t forebay_config_set_deadline_ms(forebay_config *config, int64_t deadline_ms);

// How long connecting and greeting may take before they are tried again (default 5000).
int32_t forebay_config_set_connect_timeout_ms(forebay_config *config, uint32_t timeout_ms);

// Whether connecting ends at once when nothing listens, instead of trying until the deadline (default: no). Where several servers
// are named it does not: one of them may be about to take the store over.
int32_t forebay_config_set_must_listen(forebay_config *config, bool must_listen);

// A batch of puts leaves when it has so many bytes (default 1 MiB), or when its first put is so old (default 2000).
int32_t forebay_config_set_batch(forebay_config *config, size_t bytes, uint64_t delay_us);

// Of a `forebay_files`: so many connections at most, 1 to 64 (default 4). What uses the same one at the same time waits for each other. They are made when they are needed.
int32_t forebay_config_set_connections(forebay_config *config,
                                       uint32_t connections);

// How long writing tries again what the store refuses for now (no space, drives missing) before it is told; negative (default): as long as requests are repeated.
int32_t forebay_config_set_patience_ms(forebay_config *config,
                                       int64_t patience_ms);

// So many bytes of what follows are on their way or here while a file is read in order (default 8 MiB, at least 1 MiB).
int32_t forebay_config_set_ahead_bytes(forebay_config *config, size_t bytes);

// So many bytes of a writer are on their way without an answer before writing waits (default 16 MiB).
int32_t forebay_config_set_unanswered_bytes(forebay_config *config, size_t bytes);

// The text, with a zero byte behind it; it is there until it is freed.
const char *forebay_text_data(const forebay_text *text);

// How long it is, bytes, without the zero byte.
size_t forebay_text_bytes(const forebay_text *text);

// Frees it; null is nothing to free.
void forebay_text_free(forebay_text *text);

// How many fragments there are.
size_t forebay_fragments_count(const forebay_fragments *fragments);

// One of them, from 0 on.
int32_t forebay_fragments_at(const forebay_fragments *fragments, size_t index, forebay_fragment *fragment);

// Frees them, and their bytes; null is nothing to free.
void forebay_fragments_free(forebay_fragments *fragments);

// How many events there are.
size_t forebay_events_count(const forebay_events *events);

// One of them, from 0 on.
int32_t forebay_events_at(const forebay_events *events, size_t index, forebay_event *event);

// A fragment of one of them, both from 0 on.
int32_t forebay_events_fragment(const forebay_events *events, size_t index, size_t fragment_index, forebay_fragment *fragment);

// Frees them, and their bytes; null is nothing to free.
void forebay_events_free(forebay_events *events);

// Connects and greets, trying again until the deadline.
int32_t forebay_client_connect(const forebay_config *config, forebay_client **client);

// Ends the connections and frees the client; null is nothing to free. Puts that were not answered may or may not be stored.
void forebay_client_free(forebay_client *client);

// Waits for a sign of life of the server.
int32_t forebay_client_ping(const forebay_client *client);

// The state of the server, as one JSON object.
int32_t forebay_client_status(const forebay_client *client, forebay_text **json);

// All that the store knows of an event, as one JSON object; also of one that is over, or that was never seen.
int32_t forebay_client_trace(const forebay_client *client, forebay_event_key key, forebay_text **json);

// Puts a fragment: its bytes are copied, summed and sent with others, and the call waits when too many are on their way. `expected`: how many fragments the event should
// have; 0 when not known. What becomes of it is told by `forebay_client_take_put_results`, exactly once.
int32_t forebay_client_put(const forebay_client *client,
                           forebay_fragment_id id,
                           uint16_t expected,
                           const void *payload,
                           size_t payload_bytes);

// The same for a caller who has the CRC32C already. Bytes that do not have it are refused (`FOREBAY_PUT_CHECKSUM_MISMATCH`).
int32_t forebay_client_put_with_crc32c(const forebay_client *client,
                                       forebay_fragment_id id,
                                       uint16_t expected,
                                       const void *payload,
                                       size_t payload_bytes,
                                       uint32_t crc32c);

// The CRC32C of bytes.
int32_t forebay_crc32c(const void *data, size_t data_bytes, uint32_t *crc);

// Sends what is batched and waits until every put has its result. It fails when puts were refused as a whole or not answered since the last flush; they have results then, too.
int32_t forebay_client_flush(const forebay_client *client);

// Gives the results that are there, at most `max`, without waiting; the others are kept. Who puts rarely calls it now and then: what is batched leaves while a call runs.
int32_t forebay_client_take_put_results(const forebay_client *client,
                                        forebay_put_result *results,
                                        size_t max,
                                        size_t *count);

// The same, but it waits up to `longest_ms` until there is one, or until no put is without its result.
int32_t forebay_client_wait_put_results(const forebay_client *client, uint64_t longest_ms, forebay_put_result *results, size_t max, size_t *count);

// Puts without a result.
int32_t forebay_client_pending_puts(const forebay_client *client, size_t *count);

// Reads a fragment, and checks it. It fails when there is no such fragment for now or for ever.
int32_t forebay_client_get(const forebay_client *client, forebay_fragment_id id, forebay_fragments **fragments);

// Reads fragments, over all lanes at once, and checks them. Each has an outcome of its own.
int32_t forebay_client_get_many(const forebay_client *client, const forebay_fragment_id *ids, size_t count, forebay_fragments **fragments);

// Reads whole events, over all lanes at once, or (`sources` not null) some sources of them. What is read is checked.
int32_t forebay_client_get_events(const forebay_client *client,
                                  const forebay_event_key *keys,
                                  size_t count,
                                  const uint32_t *sources,
                                  size_t sources_count,
                                  forebay_events **events);

// Leases up to `max` undecided events, of a run or (`run` null) of all: nobody else is given them for `duration_ms`, 100 ms to an hour. `filter`: any number, another one for
// each filter.
int32_t forebay_client_lease(const forebay_client *client,
                             uint64_t duration_ms,
                             uint64_t filter,
                             const uint32_t *run_number,
                             forebay_listed_event *events,
                             uint32_t max,
                             forebay_lease *lease);

// Tells decisions. `outcomes` has room for as many as there are decisions, and is filled in their order with `FOREBAY_DECIDE_...`. What could not be made durable for now is told again
// until the deadline; telling the same twice is safe.
int32_t forebay_client_decide(const forebay_client *client,
                              const forebay_decision *decisions,
                              size_t count,
                              int32_t *outcomes);

// Drops events, whatever was decided. The outcomes are as those of `forebay_client_decide`.
int32_t forebay_client_delete(const forebay_client *client, const forebay_event_key *keys, size_t count, int32_t *outcomes);

// Gives accepted events of a stream that it has not released, behind `after` (null: from the first one on), at most `max`, ascending.
int32_t forebay_client_accepted(const forebay_client *client,
                                const char *stream,
                                const forebay_event_key *after,
                                forebay_listed_event *events,
                                uint32_t max,
                                forebay_accepted *accepted);

// Says that a stream has these events safely elsewhere. The outcomes are as those of `forebay_client_decide`.
int32_t forebay_client_release(const forebay_client *client, const char *stream, const forebay_event_key *keys, size_t count, int32_t *outcomes);

// Looks on from now on: at events of a run (`run` null: of all), when they are accepted into `stream` (null: as soon as filters may have them), and of these at so many of a
// million. The client should be of `FOREBAY_CLASS_MONITOR`.
int32_t forebay_client_subscribe(const forebay_client *client,
                                 const uint32_t *run_number,
                                 const char *stream,
                                 uint32_t fraction_millionths,
                                 forebay_subscription **subscription);

// The next events, read: some MiB at once, the others with the next call. It waits for the first of them for `longest_ms`, and gives none when there were none.
int32_t forebay_subscription_next(const forebay_client *client,
                                  const forebay_subscription *subscription,
                                  uint64_t longest_ms,
                                  forebay_events **events);

// What became of everything so far.
int32_t forebay_subscription_get_counts(const forebay_subscription *subscription, forebay_subscription_counts *counts);

// Frees it; null is nothing to free. The server knows nothing of it that would have to end.
void forebay_subscription_free(forebay_subscription *subscription);

// Takes a run number, durably, for a run of these sources, as in "0-15,32" or "0x100-0x1ff". `signature` may be null. `json` is set to the run as it is then, one JSON object as
// `forebay run show --json` has it; null: it is not wanted. `FOREBAY_REFUSED`: the text has what is so and what to do, and nothing was changed; that is so of all changes of runs and streams.
int32_t forebay_client_declare_run(const forebay_client *client,
                                   uint32_t run_number,
                                   const char *sources,
                                   const forebay_signature *signature,
                                   forebay_text **json);

// Data of the run are taken from now on, and it has the streams that are defined now. `signature` and `json` as above.
int32_t forebay_client_start_run(const forebay_client *client, uint32_t run_number, const forebay_signature *signature, forebay_text **json);

// No more data of the run are taken. `events`: how many events the run control counted, which closing compares; null: nobody counted, and closing needs a signature. `fragments`: how many
// fragments it counted by source, ascending, which are kept and shown; null with a count of 0: nobody counted.
int32_t forebay_client_stop_run(const forebay_client *client,
                                uint32_t run_number,
                                const uint64_t *events,
                                const forebay_source_fragments *fragments,
                                size_t fragments_count,
                                const forebay_signature *signature,
                                forebay_text **json);

// No fragment of the run is taken any more. It is refused unless the store knows as many events as were counted, all of them decided; with `accept_difference` it is closed as it is, and the
// reason of the signature is kept.
int32_t forebay_client_close_run(const forebay_client *client,
                                 uint32_t run_number,
                                 bool accept_difference,
                                 const forebay_signature *signature,
                                 forebay_text **json);

// Nothing of the run is freed until `forebay_client_end_hold`. It needs a reason.
int32_t forebay_client_hold_run(const forebay_client *client, uint32_t run_number, const forebay_signature *signature, forebay_text **json);

// Ends the hold of a run: what is to go may go again.
int32_t forebay_client_end_hold(const forebay_client *client, uint32_t run_number, const forebay_signature *signature, forebay_text **json);

// Deletes what is left of a run, for good, and takes no fragment of it any more. It needs a reason, and is refused while the run is held or running.
int32_t forebay_client_discard_run(const forebay_client *client, uint32_t run_number, const forebay_signature *signature, forebay_text **json);

// A run with what the store knows of it now, one JSON object as `forebay run show --json` has it. `FOREBAY_NOT_FOUND`: it was never declared.
int32_t forebay_client_run(const forebay_client *client, uint32_t run_number, forebay_text **json);

// The runs that were declared, from this number on, ascending: one JSON object as `forebay run list --json` has it.
int32_t forebay_client_runs(const forebay_client *client, uint32_t from, forebay_text **json);

// Defines a stream, durably: version 1, or one more than the newest. Runs that are started from then on have it. `by`: who defines it; may be null. `json` is set to the version, one JSON object;
// null: it is not wanted.
int32_t forebay_client_define_stream(const forebay_client *client,
                                     const char *name,
                                     const forebay_stream_definition *definition,
                                     const char *by,
                                     forebay_text **json);

// The newest definition of each stream that is defined, one JSON object as `forebay stream list --json` has it.
int32_t forebay_client_streams(const forebay_client *client, forebay_text **json);

// All versions of a stream, the oldest first, one JSON object as `forebay stream show --json` has it; an empty list when it is not defined.
int32_t forebay_client_stream_versions(const forebay_client *client, const char *name, forebay_text **json);

// The definitions that hold for a run, of the versions that it was started with; the newest for one that was not declared or not started. One JSON object as that of `forebay_client_streams`.
int32_t forebay_client_streams_of_run(const forebay_client *client,
                                      uint32_t run_number,
                                      forebay_text **json);

// Connects and greets, trying again until the deadline.
int32_t forebay_files_connect(const forebay_config *config, forebay_files **files);

// Frees it; null is nothing to free. The connections end with the last reader, writer and listing of it.
void forebay_files_free(forebay_files *files);

// What a path stands for; symbolic links are followed.
int32_t forebay_files_stat(const forebay_files *files, const char *path, size_t path_bytes, forebay_stat *stat);

// The same, but for a link that the path itself names: that is what is meant.
int32_t forebay_files_stat_link(const forebay_files *files, const char *path, size_t path_bytes, forebay_stat *stat);

// The sums of all of a sealed file. They are known a moment after it was sealed, or, where it was written over a start of the server, when it has been read back: waits for them up to
// `longest_ms`, then `FOREBAY_NOT_READY`. `FOREBAY_NOT_SEALED`: a file that may change has none.
int32_t forebay_files_checksums(const forebay_files *files,
                                const char *path,
                                size_t path_bytes,
                                uint64_t longest_ms,
                                uint32_t *crc32c,
                                uint32_t *adler32);

// Makes a directory. `owner` null: of user and group 0, mode 0755. `flags`: `FOREBAY_MAKE_PARENTS` or 0.
int32_t forebay_files_make_directory(const forebay_files *files, const char *path, size_t path_bytes, const forebay_owner *owner, uint32_t flags);

// Makes a symbolic link that leads to `target`, which need not be there. `owner` null: of user and group 0.
int32_t forebay_files_symlink(const forebay_files *files,
                              const char *target,
                              size_t target_bytes,
                              const char *path,
                              size_t path_bytes,
                              const forebay_owner *owner);

// Where a symbolic link leads.
int32_t forebay_files_read_link(const forebay_files *files, const char *path, size_t path_bytes, forebay_text **target);

// Gives what has one name another one besides. A link that `existing` names is meant itself.
int32_t forebay_files_link(const forebay_files *files, const char *existing, size_t existing_bytes, const char *path, size_t path_bytes);

// Gives something another name, in one step: also after a crash it has one of both. `flags`: `FOREBAY_RENAME_REPLACE` or 0, with which a name that is taken stays as it is
// (`FOREBAY_EXISTS`).
int32_t forebay_files_rename(const forebay_files *files,
                             const char *from,
                             size_t from_bytes,
                             const char *to,
                             size_t to_bytes,
                             uint32_t flags);

// Takes the name of something that is no directory away, and with the last one what has it: the bytes of a file are gone when nobody has it open any more.
int32_t forebay_files_remove(const forebay_files *files,
                             const char *path,
                             size_t path_bytes);

// Removes an empty directory.
int32_t forebay_files_remove_directory(const forebay_files *files, const char *path, size_t path_bytes);

// Seals a file: it never changes again, and its sums are kept. What is sealed already is as it should be.
int32_t forebay_files_seal(const forebay_files *files, const char *path, size_t path_bytes);

// Changes the permissions of what a path stands for, 12 bits; links are followed.
int32_t forebay_files_set_mode(const forebay_files *files, const char *path, size_t path_bytes, uint32_t mode);

// Changes whose what a path stands for is, by the numbers of user and group; links are followed.
int32_t forebay_files_set_owner(const forebay_files *files, const char *path, size_t path_bytes, uint32_t owner, uint32_t group);

// Changes when what a path stands for was written and read last, nanoseconds since 1970; links are followed.
int32_t forebay_files_set_times(const forebay_files *files, const char *path, size_t path_bytes, int64_t written_unix_ns, int64_t accessed_unix_ns);

// How many bytes the store can hold, and how many of these are free.
int32_t forebay_files_room(const forebay_files *files, uint64_t *capacity_bytes, uint64_t *free_bytes);

// Lists a directory; symbolic links are followed. `detail`: one of `FOREBAY_LIST_...`.
int32_t forebay_files_list(const forebay_files *files, const char *path, size_t path_bytes, int32_t detail, forebay_listing **listing);

// The next entry; behind the last one, and after a failure, its name is null. One thread at a time uses a listing.
int32_t forebay_listing_next(const forebay_listing *listing, forebay_entry *entry);

// Frees it; null is nothing to free.
void forebay_listing_free(forebay_listing *listing);

// Opens a file for reading; symbolic links are followed.
int32_t forebay_files_open_read(const forebay_files *files, const char *path, size_t path_bytes, forebay_reader **reader);

// Opens the file of a reader once more: the same file, whatever became of its name meanwhile, for somebody who reads elsewhere in it. It waits for no call of that reader, which has to stay open
// as long as this one.
int32_t forebay_reader_open_again(const forebay_reader *reader,
                                  forebay_reader **again);

// Reads from `offset` on as many bytes as there is room for; fewer before the present end of the file, or before what cannot be read, which the call that begins there says. What was
// read is checked, and holds zeros where nothing was written.
int32_t forebay_reader_pread(const forebay_reader *reader,
                             uint64_t offset,
                             void *into,
                             size_t into_bytes,
                             size_t *count);

// The same, and nothing behind what is wanted is asked for from `ahead_end` on, where somebody else reads: with `offset`, nothing at all is read ahead.
int32_t forebay_reader_pread_until(const forebay_reader *reader,
                                   uint64_t offset,
                                   void *into,
                                   size_t into_bytes,
                                   uint64_t ahead_end,
                                   size_t *count);

// What is known of the file now, whatever became of its name.
int32_t forebay_reader_stat(const forebay_reader *reader, forebay_stat *stat);

// Says that this reader is done, and waits for the answer: a file that has no name any more ends at once then, if nobody else has it open. The handle has to be freed all the
// same; closing it again is no failure.
int32_t forebay_reader_close(const forebay_reader *reader);

// Frees it; null is nothing to free. Of a reader that was not closed the server is told with what is asked next.
void forebay_reader_free(forebay_reader *reader);

// Makes a file that is not there yet, and opens it for writing. `owner` null: of user and group 0, mode 0644. `flags`: of `FOREBAY_WRITE_...`.
int32_t forebay_files_create(const forebay_files *files,
                             const char *path,
                             size_t path_bytes,
                             const forebay_owner *owner,
                             uint32_t flags,
                             forebay_writer **writer);

// Opens a file that is there for writing; symbolic links are followed. `flags`: of `FOREBAY_WRITE_...`.
int32_t forebay_files_open_write(const forebay_files *files, const char *path, size_t path_bytes, uint32_t flags, forebay_writer **writer);

// Writes at the end of what was there and of what was written by this function. It waits while too many bytes are on their way.
int32_t forebay_writer_write(const forebay_writer *writer, const void *data, size_t data_bytes);

// Writes from `offset` on, all of it. Writing the same again is safe.
int32_t forebay_writer_pwrite(const forebay_writer *writer, uint64_t offset, const void *data, size_t data_bytes);

// Reads as `forebay_reader_pread` does, when all that was written is durable: what this writer wrote is read, too.
int32_t forebay_writer_pread(const forebay_writer *writer, uint64_t offset, void *into, size_t into_bytes, size_t *count);

// Waits until all that was written is durable.
int32_t forebay_writer_sync(const forebay_writer *writer);

// Changes how long the file is, when all that was written is durable: what is cut is gone, what is added holds zeros.
int32_t forebay_writer_truncate(const forebay_writer *writer, uint64_t length);

// Changes the permissions of this file, whatever its name stands for by now.
int32_t forebay_writer_set_mode(const forebay_writer *writer, uint32_t mode);

// What is known of the file now, whatever became of its name. Its length is that when all that this writer wrote is there.
int32_t forebay_writer_stat(const forebay_writer *writer, forebay_stat *stat);

// How many bytes of this writer are durable, and how many of it are not answered yet.
int32_t forebay_writer_progress(const forebay_writer *writer, uint64_t *acknowledged_bytes, uint64_t *unanswered_bytes);

// Waits until all that was written is durable, seals the file if it was opened with `FOREBAY_WRITE_SEAL`, and says that this writer is done. When it fails the writer is as it was, and may
// be closed again or abandoned. The handle has to be freed all the same; closing it again is no failure.
int32_t forebay_writer_close(const forebay_writer *writer);

// Says that this writer is done, though not all that was written is acknowledged: what was not may be in the file or not, and it is not sealed. `flags`:
// `FOREBAY_ABANDON_REMOVE`, as for a file that was to be there whole or not at all, or 0.
int32_t forebay_writer_abandon(const forebay_writer *writer,
                               uint32_t flags);

// Frees it; null is nothing to free. A writer that was neither closed nor abandoned leaves its file as it is: not sealed, with what was acknowledged and perhaps more. The server
// takes it for one that is written for another minute.
void forebay_writer_free(forebay_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_H */
