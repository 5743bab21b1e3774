// Runs and streams as objects of a store, for C++17, over forebay.hpp. docs/runs.md says what may be done when, and what is promised.

#ifndef FOREBAY_RUNS_HPP
#define FOREBAY_RUNS_HPP

#include <forebay.hpp>

namespace forebay {

// Who asks for something that is done with a run, and why: both are kept with it.
struct Signature {
    std::string by;
    std::string reason;
};

// So many fragments came of each source from first to last.
using SourceFragments = forebay_source_fragments;

// What a stream is defined to be. Sources, format and destination may be empty, and a run is one luminosity block unless events or seconds are said.
struct StreamDefinition {
    std::string sources;
    std::uint32_t prescale = 1;
    std::string format;
    std::uint16_t priority = 0;
    std::string destination;
    std::uint64_t block_events = 0;
    std::uint64_t block_s = 0;
};

// The runs and streams of a store, by a client that has to live as long. What is told is JSON, as `forebay run` and `forebay stream` have it with --json. What may not be done throws
// FOREBAY_REFUSED, with what is so and what to do; nothing was changed then.
class Runs {
public:
    explicit Runs(const Client &client) : client_(client.get()) {}

    // Takes a run number, for a run of these sources, as in "0-15,32"; the run as it is then, as all that changes one gives it.
    std::string declare(std::uint32_t run, const std::string &sources, const Signature &signature = {}) {
        return json(signature, [&](const forebay_signature *by, forebay_text **text) {
            return forebay_client_declare_run(client_, run, sources.c_str(), by, text);
        });
    }

    // Data are taken from now on.
    std::string start(std::uint32_t run, const Signature &signature = {}) {
        return json(signature,
                    [&](const forebay_signature *by, forebay_text **text) { return forebay_client_start_run(client_, run, by, text); });
    }

    // No more are. Events that the run control counted, and fragments by source.
    std::string stop(std::uint32_t run, std::optional<std::uint64_t> events = std::nullopt, const std::vector<SourceFragments> &fragments = {},
                     const Signature &signature = {}) {
        return json(signature, [&](const forebay_signature *by, forebay_text **text) {
            return forebay_client_stop_run(client_, run, events ? &*events : nullptr, detail::data(fragments), fragments.size(), by, text);
        });
    }

    // No fragment is taken any more; with accept_difference also when the store knows other events than were counted, for the reason of the signature.
    std::string close(std::uint32_t run, bool accept_difference = false, const Signature &signature = {}) {
        return json(signature, [&](const forebay_signature *by, forebay_text **text) {
            return forebay_client_close_run(client_, run, accept_difference, by, text);
        });
    }

    // Nothing of it is freed until end_hold. It needs a reason.
    std::string hold(std::uint32_t run, const Signature &signature) {
        return json(signature,
                    [&](const forebay_signature *by, forebay_text **text) { return forebay_client_hold_run(client_, run, by, text); });
    }

    std::string end_hold(std::uint32_t run, const Signature &signature = {}) {
        return json(signature,
                    [&](const forebay_signature *by, forebay_text **text) { return forebay_client_end_hold(client_, run, by, text); });
    }

    // Deletes what is left of it, for good. It needs a reason.
    std::string discard(std::uint32_t run, const Signature &signature) {
        return json(signature,
                    [&](const forebay_signature *by, forebay_text **text) { return forebay_client_discard_run(client_, run, by, text); });
    }

    // A run with what the store knows of it now; it throws when it was never declared.
    std::string show(std::uint32_t run) {
        return json([&](forebay_text **text) { return forebay_client_run(client_, run, text); });
    }

    // The runs that were declared, from this number on.
    std::string list(std::uint32_t from = 0) {
        return json([&](forebay_text **text) { return forebay_client_runs(client_, from, text); });
    }

    // Defines a stream, for runs that are started from then on; the version that this is.
    std::string define_stream(const std::string &name, const StreamDefinition &definition, const std::string &by = "") {
        const auto given = [](const std::string &text) { return text.empty() ? nullptr : text.c_str(); };
        forebay_stream_definition told{};
        told.sources = given(definition.sources);
        told.format = given(definition.format);
        told.destination = given(definition.destination);
        told.block_events = definition.block_events;
        told.block_s = definition.block_s;
        told.prescale = definition.prescale;
        told.priority = definition.priority;
        return json([&](forebay_text **text) { return forebay_client_define_stream(client_, name.c_str(), &told, by.c_str(), text); });
    }

    // The newest version of each stream.
    std::string streams() {
        return json([&](forebay_text **text) { return forebay_client_streams(client_, text); });
    }

    // All versions of one, the oldest first.
    std::string stream_versions(const std::string &name) {
        return json([&](forebay_text **text) { return forebay_client_stream_versions(client_, name.c_str(), text); });
    }

    // Those that hold for a run.
    std::string streams_of(std::uint32_t run) {
        return json([&](forebay_text **text) { return forebay_client_streams_of_run(client_, run, text); });
    }

private:
    template <typename Ask>
    static std::string json(Ask ask) {
        forebay_text *text = nullptr;
        check(ask(&text));
        return detail::take(text);
    }

    template <typename Ask>
    static std::string json(const Signature &signature, Ask ask) {
        const forebay_signature by{signature.by.c_str(), signature.reason.c_str()};
        return json([&](forebay_text **text) { return ask(&by, text); });
    }

    forebay_client *client_;
};

}  // namespace forebay

#endif
