// What a board in another process (tpuboard serve) takes beside one in this process: the wall-clock
// time of the shortest launch, and how fast large arrays are copied, on every carrier. Boards take
// turns, so that all of them have the same load of the host. Usage: worker-bench [TURNS [FOLDER]];
// the TLS certificate is made by the command openssl in FOLDER.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/tpu.hpp"

namespace {

using namespace tpu::driver;  // NOLINT(google-build-using-namespace)
using test::WorkerProcess;

constexpr int kLaunches = 50;  // of one board in a turn
constexpr int kWarm = 20;
constexpr int64_t kArrayBytes = int64_t{64} << 20;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of this process alone: seconds of its processors, and how often it was switched away.
struct Cost {
  double seconds = 0;
  double switches = 0;
};
Cost cost_now() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {of(usage.ru_utime) + of(usage.ru_stime),
          static_cast<double>(usage.ru_nvcsw + usage.ru_nivcsw)};
}

struct Certificate {
  std::string pem, key;
};
Certificate make_certificate(const std::string& folder) {
  Certificate made{folder + "/board.pem", folder + "/board.key"};
  const std::string command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=board " +
                              std::string("-addext subjectAltName=IP:127.0.0.1 -keyout ") +
                              made.key + " -out " + made.pem + " 2>/dev/null && chmod 600 " +
                              made.key;
  if (std::system(command.c_str()) != 0) {
    throw std::runtime_error("openssl made no certificate: " + command);
  }
  return made;
}

// A board in this process, or behind a carrier.
struct Place {
  std::string name;
  std::unique_ptr<WorkerProcess> worker;  // null: in this process
  OpenOptions options;
};
std::vector<Place> make_places(const std::string& transport, const Certificate& own) {
  std::vector<Place> places;
  for (const std::string name : {"in process", "unix", "tcp", "tls"}) {
    Place place;
    place.name = name;
    place.options.transport = transport;
    place.options.completion_thread = false;
    if (name != "in process") {
      ServeOptions serve;
      serve.board.transport = transport;
      serve.listen = name == "unix" ? "unix:" : "tcp:";
      if (name == "tls") {
        serve.tls_cert = place.options.connect_ca = own.pem;
        serve.tls_key = own.key;
      }
      place.worker = std::make_unique<WorkerProcess>(serve);
      place.options = place.worker->options(place.options);
    }
    places.push_back(std::move(place));
  }
  return places;
}

double part(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values.at(static_cast<size_t>(share * static_cast<double>(values.size() - 1)));
}

// A program that ends at once, on some cores of a board.
struct Launcher {
  std::string name;
  Executable program;
  Array argument;
  std::vector<double> times;
  Cost cost;

  void launch() { program.run({argument}).done.wait(); }
  void take_turn() {
    for (int i = 0; i < kWarm; ++i) {
      launch();
    }
    const Cost before = cost_now();
    for (int i = 0; i < kLaunches; ++i) {
      times.push_back(seconds_of([this] { launch(); }));
    }
    const Cost after = cost_now();
    cost.seconds += after.seconds - before.seconds;
    cost.switches += after.switches - before.switches;
  }
};

void measure_launches(const Certificate& own, int turns) {
  const std::vector<Place> places = make_places("sim", own);
  std::vector<Board> boards;
  for (const Place& place : places) {
    boards.push_back(Board::open(place.options));
  }
  fmt::print(
      "| launch on | board | least, us | p10 | median | to in process | CPU here, us | "
      "switches here |\n|---|---|---|---|---|---|---|---|\n");
  for (const int cores : {1, 8}) {
    const std::string text =
        fmt::format(".program \"empty\"\n.partitions {}\n{}  halt\n", cores, test::kCopySlots);
    const std::vector<std::byte> code = tpu::exe::write_executable(
        tpu::compiler::assemble(text, "empty.s", tpu::spec::load_board("v3_8")));
    std::vector<Launcher> launchers;
    for (size_t i = 0; i < places.size(); ++i) {
      const Executable program = boards[i].load(code, 0);
      const Array argument = program.put(0, test::counting(DType::kI32, {1024}));
      launchers.push_back({places[i].name, program, argument, {}, {}});
    }
    for (int turn = 0; turn < turns; ++turn) {
      for (Launcher& launcher : launchers) {
        launcher.take_turn();
      }
    }
    const double base = part(launchers.front().times, 0.5);
    for (const Launcher& launcher : launchers) {
      const auto launches = static_cast<double>(launcher.times.size());
      const double median = part(launcher.times, 0.5);
      fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.2f} | {:.0f} | {:.1f} |\n",
                 cores == 1 ? "1 core" : "8 cores", launcher.name, part(launcher.times, 0) * 1e6,
                 part(launcher.times, 0.1) * 1e6, median * 1e6, median / base,
                 launcher.cost.seconds * 1e6 / launches, launcher.cost.switches / launches);
    }
  }
  for (const Board& board : boards) {
    board.close();
  }
}

// Of boards that do nothing but copy: the carrier is what takes time.
void measure_copies(const Certificate& own, int turns) {
  const std::vector<Place> places = make_places("null", own);
  const HostArray sent = test::counting(DType::kI32, {kArrayBytes / 4});
  std::vector<Board> boards;
  std::vector<std::vector<double>> up(places.size());
  std::vector<std::vector<double>> down(places.size());
  for (const Place& place : places) {
    boards.push_back(Board::open(place.options));
  }
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < boards.size(); ++i) {
      Buffer buffer;
      up[i].push_back(seconds_of([&] {
        buffer = boards[i].put(0, sent);
        boards[i].synchronize();
      }));
      down[i].push_back(seconds_of([&] {
        if (buffer.to_host().bytes != sent.bytes) {
          throw std::runtime_error("the copy differs on " + places[i].name);
        }
      }));
    }
  }
  fmt::print(
      "\n| copies of {} MiB | up, GB/s, best | median | down, best | median |\n"
      "|---|---|---|---|---|\n",
      kArrayBytes >> 20);
  constexpr double kGigabytes = static_cast<double>(kArrayBytes) * 1e-9;
  for (size_t i = 0; i < boards.size(); ++i) {
    fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", places[i].name,
               kGigabytes / part(up[i], 0), kGigabytes / part(up[i], 0.5),
               kGigabytes / part(down[i], 0), kGigabytes / part(down[i], 0.5));
    boards[i].close();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int turns = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 40;
    const std::string folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path().string();
    const Certificate own = make_certificate(folder);
    measure_launches(own, turns);
    measure_copies(own, std::max(turns / 4, 3));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "worker-bench: {}\n", error.what());
    return 1;
  }
}
