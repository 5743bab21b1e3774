// Fragments in and out: puts an event of three fragments, reads one back, and drops the event.
//
//     cc -o put_get put_get.c $(pkg-config --cflags --libs forebay)
//     ./put_get 127.0.0.1:7420

#include <forebay.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(int32_t code, const char *what) {
    if (code != FOREBAY_DONE) {
        fprintf(stderr, "%s: %s: %s\n", what, forebay_code_name(code), forebay_last_error());
        exit(1);
    }
}

int main(int count, char **words) {
    if (forebay_abi_version() != FOREBAY_ABI_VERSION) {
        fprintf(stderr, "compiled for another libforebay than %s\n", forebay_version());
        return 1;
    }
    if (count != 2) {
        fprintf(stderr, "usage: %s HOST:PORT\n", words[0]);
        return 2;
    }

    forebay_config *config = NULL;
    check(forebay_config_new(words[1], "put_get", &config), "config");
    check(forebay_config_set_deadline_ms(config, 30000), "deadline");
    forebay_client *client = NULL;
    check(forebay_client_connect(config, &client), "connect");
    forebay_config_free(config);

    // A run of its own each time: what is decided is never stored again.
    const forebay_event_key key = {.run = (uint32_t)time(NULL), .event = 7};
    const char payload[] = "the bytes of a fragment";
    for (uint32_t source = 1; source <= 3; source++) {
        const forebay_fragment_id id = {.run = key.run, .event = key.event, .source = source};
        check(forebay_client_put(client, id, 3, payload, sizeof payload), "put");
    }
    check(forebay_client_flush(client), "flush");

    // Only what a result calls durable (or late) may be forgotten.
    forebay_put_result results[3];
    size_t results_count = 0;
    check(forebay_client_take_put_results(client, results, 3, &results_count), "results");
    for (size_t index = 0; index < results_count; index++) {
        if (results[index].outcome != FOREBAY_PUT_DURABLE) {
            fprintf(stderr, "source %u was not stored: outcome %d\n", (unsigned)results[index].id.source, (int)results[index].outcome);
            return 1;
        }
    }
    printf("%zu fragments are durable\n", results_count);

    forebay_fragments *fragments = NULL;
    const forebay_fragment_id id = {.run = key.run, .event = key.event, .source = 2};
    check(forebay_client_get(client, id, &fragments), "get");
    forebay_fragment fragment;
    check(forebay_fragments_at(fragments, 0, &fragment), "fragment");
    const int is_same = fragment.bytes_count == sizeof payload && memcmp(fragment.bytes, payload, sizeof payload) == 0;
    printf("source 2 has %zu bytes, %s\n", fragment.bytes_count, is_same ? "those that were put" : "OTHERS");
    forebay_fragments_free(fragments);

    // The word of a filter: no stream wants it.
    const forebay_decision rejected = {.key = key, .streams = NULL, .streams_count = 0, .incomplete = false};
    int32_t outcome = -1;
    check(forebay_client_decide(client, &rejected, 1, &outcome), "decide");
    printf("the event is rejected: outcome %d\n", (int)outcome);

    forebay_client_free(client);
    return is_same && results_count == 3 && outcome == FOREBAY_DECIDE_DONE ? 0 : 1;
}
