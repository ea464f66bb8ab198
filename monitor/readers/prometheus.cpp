// A family is its name, its type, and a function that adds the samples of a job.
#include "readers/prometheus.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

namespace tpu::monitor {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char each : text) {
    switch (each) {
      case '\\':
        out += "\\\\";
        break;
      case '"':
        out += "\\\"";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        out += each;
    }
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
}

// The samples of one family.
class Family {
 public:
  Family(std::string& text, const char* name) : text_(text), name_(name) {}

  template <class Value>
  void add(const Report& job, Value value, const std::string& labels = "") {
    text_ += fmt::format("{}{{pid=\"{}\"{}}} ", name_, job.now.pid, labels);
    if constexpr (std::is_floating_point_v<Value>) {
      text_ += number(value);
    } else {
      text_ += fmt::format("{}", value);
    }
    text_ += '\n';
  }
  template <class Of>
  void add_cores(const Report& job, const Of& of) {
    for (size_t i = 0; i < job.now.cores.size() && i < job.lately.cores.size(); ++i) {
      add(job, of(i), core(i));
    }
  }
  static std::string core(size_t i) { return fmt::format(",core=\"{}\"", i); }

 private:
  std::string& text_;
  const char* name_;
};

struct FamilyInfo {
  const char* name;
  const char* type;
  const char* help;
  void (*add)(Family& to, const Report& job);
};

using Member = uint64_t CoreSnapshot::*;
template <Member member>
void add_counter(Family& to, const Report& job) {
  to.add_cores(job, [&](size_t i) { return job.now.cores[i].*member; });
}

void add_core_time(Family& to, const Report& job) {
  using Cause = std::pair<const char*, uint64_t driver::CoreTimes::*>;
  static constexpr std::array<Cause, 6> kCauses = {{{"compute", &driver::CoreTimes::compute},
                                                    {"links", &driver::CoreTimes::links},
                                                    {"hbm", &driver::CoreTimes::hbm},
                                                    {"stalled", &driver::CoreTimes::stalled},
                                                    {"input", &driver::CoreTimes::input},
                                                    {"host", &driver::CoreTimes::host}}};
  for (size_t i = 0; i < job.now.cores.size(); ++i) {
    for (const auto& [name, member] : kCauses) {
      to.add(job, job.now.cores[i].times.*member,
             Family::core(i) + fmt::format(",cause=\"{}\"", name));
    }
  }
}

void add_values(Family& to, const Report& job) {
  if (!job.now.progress) {
    return;
  }
  for (const auto& [name, value] : job.now.progress->values) {
    to.add(job, value, fmt::format(",name=\"{}\"", escaped(name)));
  }
}

template <uint64_t spec::FaultTally::*member>
void add_faults(Family& to, const Report& job) {
  for (const spec::FaultTally& tally : job.now.faults) {
    to.add(job, tally.*member, fmt::format(",kind=\"{}\",place=\"{}\"", tally.kind, tally.place));
  }
}

constexpr const char* kCounter = "counter";
constexpr const char* kGauge = "gauge";

constexpr FamilyInfo kFamilies[] = {
    {"tpuboard_job_info", kGauge, "1 for each job that runs.",
     [](Family& to, const Report& job) {
       to.add(job, 1,
              fmt::format(",command=\"{}\",board=\"{}\"", escaped(job.now.command),
                          escaped(job.now.board)));
     }},
    {"tpuboard_board_cycles_total", kCounter, "Simulated time in core cycles.",
     [](Family& to, const Report& job) { to.add(job, job.now.cycles); }},
    {"tpuboard_faults_total", kCounter, "Faults on purpose that have happened.",
     add_faults<&spec::FaultTally::fired>},
    {"tpuboard_fault_effects_total", kCounter, "Times that the board met what such a fault left.",
     add_faults<&spec::FaultTally::seen>},
    {"tpuboard_last_look_timestamp_seconds", kGauge, "When the job last published its metrics.",
     [](Family& to, const Report& job) { to.add(job, job.now.taken); }},
    {"tpuboard_steps_total", kCounter, "Steps done.",
     [](Family& to, const Report& job) {
       if (job.now.progress) {
         to.add(job, job.now.progress->step);
       }
     }},
    {"tpuboard_steps_planned", kGauge, "Steps until the job ends.",
     [](Family& to, const Report& job) {
       if (job.now.progress) {
         to.add(job, job.now.progress->steps);
       }
     }},
    {"tpuboard_steps_per_second", kGauge, "Steps in a second of the host.",
     [](Family& to, const Report& job) { to.add(job, job.lately.steps_per_second); }},
    {"tpuboard_loss", kGauge, "Loss of the last step.",
     [](Family& to, const Report& job) {
       if (job.now.progress && job.now.progress->loss) {
         to.add(job, *job.now.progress->loss);
       }
     }},
    {"tpuboard_value", kGauge, "Metrics of the last step and its learning rate.", add_values},
    {"tpuboard_mxu_ratio", kGauge, "Share of the peak matmul operations, lately.",
     [](Family& to, const Report& job) {
       to.add_cores(job, [&](size_t i) { return job.lately.cores[i].mxu; });
     }},
    {"tpuboard_idle_ratio", kGauge, "Share of simulated time without a program, lately.",
     [](Family& to, const Report& job) {
       to.add_cores(job, [&](size_t i) { return job.lately.cores[i].time.idle(); });
     }},
    {"tpuboard_core_time_cycles_total", kCounter, "Cycles by cause.", add_core_time},
    {"tpuboard_programs_total", kCounter, "Programs that ended.",
     add_counter<&CoreSnapshot::programs>},
    {"tpuboard_mxu_operations_total", kCounter, "Logical matmul operations, 2MKN.",
     add_counter<&CoreSnapshot::mxu_flops>},
    {"tpuboard_hbm_read_bytes_total", kCounter, "Bytes that commands read from HBM.",
     add_counter<&CoreSnapshot::hbm_read_bytes>},
    {"tpuboard_hbm_written_bytes_total", kCounter, "Bytes that commands wrote to HBM.",
     add_counter<&CoreSnapshot::hbm_written_bytes>},
    {"tpuboard_link_sent_bytes_total", kCounter, "Bytes sent to other cores.",
     add_counter<&CoreSnapshot::link_sent_bytes>},
    {"tpuboard_link_received_bytes_total", kCounter, "Bytes received from other cores.",
     add_counter<&CoreSnapshot::link_received_bytes>},
    {"tpuboard_hbm_used_bytes", kGauge, "HBM that buffers and programs have.",
     add_counter<&CoreSnapshot::hbm_used>},
    {"tpuboard_hbm_bytes", kGauge, "HBM of the core.", add_counter<&CoreSnapshot::hbm_bytes>},
};

}  // namespace

std::string prometheus_text(const std::vector<Report>& jobs,
                            const std::vector<std::string>& unreadable) {
  std::string text;
  for (const std::string& why : unreadable) {
    text += fmt::format("# {}\n", escaped(why));
  }
  text += fmt::format(
      "# HELP {0} Files of running processes that cannot be read.\n# TYPE {0} {1}\n"
      "{0} {2}\n",
      "tpuboard_unreadable_job_files", kGauge, unreadable.size());
  for (const FamilyInfo& info : kFamilies) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", info.name, info.help, info.name, info.type);
    Family family(text, info.name);
    for (const Report& job : jobs) {
      info.add(family, job);
    }
  }
  return text;
}

}  // namespace tpu::monitor
