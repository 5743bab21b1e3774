// A run control: defines a stream, and takes a run from its declaration to its end.
//
//     c++ -std=c++17 -o runs runs.cpp $(pkg-config --cflags --libs forebay)
//     ./runs 127.0.0.1:7420 1920

#include <forebay_runs.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t EVENTS = 10;
constexpr std::uint32_t SOURCE = 3;

// What a readout and a filter would do: takes events, and rejects them.
void take_data(forebay::Client &client, std::uint32_t run) {
    std::vector<forebay::Decision> decisions;
    for (std::uint64_t event = 0; event < EVENTS; event++) {
        client.put({run, SOURCE, event}, 1, "what the detector said");
        decisions.push_back({{run, event}, {}});
    }
    client.flush();
    client.decide(decisions);
}

}  // namespace

int main(int count, char **words) {
    if (count != 3) {
        std::cerr << "usage: " << words[0] << " HOST:PORT RUN\n";
        return 2;
    }
    try {
        const auto run = static_cast<std::uint32_t>(std::strtoul(words[2], nullptr, 10));
        forebay::Client client(forebay::Config(words[1], "run-control"));
        forebay::Runs runs(client);
        forebay::StreamDefinition calibration;
        calibration.sources = "0-3";
        calibration.prescale = 100;
        runs.define_stream("calibration", calibration, "run-control");
        runs.declare(run, "0-15", {"run-control", "an example"});
        runs.start(run);
        take_data(client, run);
        runs.stop(run, EVENTS, {{0, 15, 0}});
        std::printf("%s\n", runs.close(run).c_str());
        return 0;
    } catch (const forebay::Error &error) {
        std::cerr << error.name() << ": " << error.what() << "\n";
        return error.is_retryable() ? 3 : 1;
    }
}
