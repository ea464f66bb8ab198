// Jobs in the text format that Prometheus reads (version 0.0.4).
#pragma once

#include <string>
#include <vector>

#include "job/snapshot.hpp"

namespace tpu::monitor {

/// One family after the other, with the samples of all jobs; labelled by process and core. Files of
/// jobs that cannot be read are counted, and named in comments.
std::string prometheus_text(const std::vector<Report>& jobs,
                            const std::vector<std::string>& unreadable = {});

}  // namespace tpu::monitor
