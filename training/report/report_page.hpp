// A run as one HTML page, which needs no network: facts, and curves of loss, accuracy, step time,
// MXU % and idle %.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/run_figures.hpp"

namespace tpu::training {

/// Of such a page, up to its heading.
std::string page_head(const std::string& title);

/// `run`: what run.json says.
std::string report_page(const std::string& title, const nlohmann::ordered_json& run,
                        const std::vector<FigureRow>& rows);

}  // namespace tpu::training
