// A filter: leases events, reads them, and accepts those that are large into the stream "physics".
//
//     c++ -std=c++17 -o events events.cpp $(pkg-config --cflags --libs forebay)
//     ./events 127.0.0.1:7420 1000

#include <forebay.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

namespace {

constexpr std::uint32_t EVENTS_AT_ONCE = 64;
constexpr std::uint64_t LEASE_MS = 60000;
constexpr std::size_t LARGE_BYTES = 3000;

// What a filter would look for.
bool is_wanted(const forebay::Events &events, std::size_t index) {
    std::size_t bytes = 0;
    for (std::size_t fragment = 0; fragment < events[index].fragments; fragment++) {
        bytes += events.fragment(index, fragment).bytes.size();
    }
    return bytes >= LARGE_BYTES;
}

// Whether all of it could be read: what could not is left to whoever leases it next.
bool is_whole(const forebay::Events &events, std::size_t index) {
    const forebay_event event = events[index];
    for (std::size_t fragment = 0; fragment < event.fragments; fragment++) {
        if (!events.fragment(index, fragment).found()) {
            return false;
        }
    }
    return event.outcome == FOREBAY_READ_FOUND;
}

}  // namespace

int main(int count, char **words) {
    if (count != 3) {
        std::cerr << "usage: " << words[0] << " HOST:PORT EVENTS\n";
        return 2;
    }
    try {
        const unsigned long wanted = std::strtoul(words[2], nullptr, 10);
        forebay::Config config(words[1], "events");
        forebay::Client client(config.set_class(FOREBAY_CLASS_FILTER));
        unsigned long decided = 0, accepted = 0;
        while (decided < wanted) {
            const forebay::Lease lease = client.lease(EVENTS_AT_ONCE, LEASE_MS, 1);
            std::vector<forebay::EventKey> keys;
            for (const forebay::ListedEvent &event : lease.events) {
                keys.push_back(event.key);
            }
            const forebay::Events events = client.get_events(keys);
            std::vector<forebay::Decision> decisions;
            for (std::size_t index = 0; index < events.size(); index++) {
                if (is_whole(events, index)) {
                    forebay::Decision decision{events[index].key, {}, lease.events[index].incomplete};
                    if (is_wanted(events, index)) {
                        decision.streams.push_back("physics");
                    }
                    decisions.push_back(decision);
                }
            }
            const std::vector<std::int32_t> outcomes = client.decide(decisions);
            for (std::size_t index = 0; index < outcomes.size(); index++) {
                if (outcomes[index] == FOREBAY_DECIDE_DONE || outcomes[index] == FOREBAY_DECIDE_ALREADY_DONE) {
                    decided++;
                    accepted += decisions[index].streams.empty() ? 0 : 1;
                }
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(lease.retry_after_ms));
        }
        std::printf("%lu events decided, %lu accepted\n", decided, accepted);
        return 0;
    } catch (const forebay::Error &error) {
        std::cerr << error.name() << ": " << error.what() << "\n";
        return error.is_retryable() ? 3 : 1;
    }
}
