// SPDX-License-Identifier: Apache-2.0
// Reports of audits and of bench, and the files of a report.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "counters/books/books.h"
#include "engine/base/format.h"
#include "engine/page/page.h"
#include "engine/studies/report.h"
#include "loaders/loaders.h"

namespace tally {
namespace {

constexpr size_t kMostRows = 50;  // differing rows of an audit that a report shows

std::string Figure(const std::optional<uint64_t>& n) { return n ? books::WithThousands(*n) : ""; }

std::string Where(int32_t layer, std::string_view component) {
  return (layer >= 0 ? "layer " + std::to_string(layer) + " " : "") + std::string(component);
}

void AddRows(const std::string& step, std::span<const books::AuditRow> rows, ReportAudit& audit) {
  for (const books::AuditRow& r : rows) {
    if (r.agrees() || audit.rows.size() == kMostRows) continue;
    const std::string name(r.tensor.empty() ? ComponentName(r.component) : std::string_view(r.tensor));
    audit.rows.push_back({step, std::string(books::AccountName(r.account)), Where(r.layer, name), r.form,
                          books::WithThousands(r.closed), Figure(r.inventory), Figure(r.ledger)});
  }
}

void AddPages(const std::string& step, std::span<const PageRow> rows, ReportAudit& audit) {
  for (const PageRow& r : rows) {
    if (r.agrees() || audit.rows.size() == kMostRows) continue;
    audit.rows.push_back({step, "pages", Where(r.layer, r.tensor), "", "", books::WithThousands(r.touched_pages) + " touched",
                          books::WithThousands(r.charged_pages) + " charged"});
  }
}

ReportSpeed PointOf(const SpeedPoint& p, SpeedWork work, double of_roof, const char* roof) {
  return {std::string(kSpeedWorkNames[static_cast<size_t>(work)]),
          p.threads,
          std::string(kKvTypeNames[static_cast<size_t>(p.kv)]),
          p.depth,
          p.batch,
          p.tokens,
          p.rate.median,
          p.rate.least,
          p.rate.most,
          of_roof,
          roof};
}

}  // namespace

ReportAudit AuditOf(const AuditReport& report) {
  ReportAudit audit{report.compared, report.differing, report.page_bytes > 0, {}};
  AddRows("stored", report.stored, audit);
  for (size_t i = 0; i < report.steps.size(); ++i) {
    const AuditReport::Step& of = report.steps[i];
    const std::string step = "step " + std::to_string(i) + ", " + std::string(of.kind());
    AddRows(step, report.steps[i].audit, audit);
    AddPages(step, report.steps[i].pages, audit);
  }
  return audit;
}

std::vector<ReportSpeed> SpeedOf(const SpeedReport& report) {
  std::vector<ReportSpeed> speed;
  for (const PrefillSpeed& p : report.prefill) {
    speed.push_back(PointOf(p, SpeedWork::kPrefill, p.ratio_of_peak, "arithmetic peaks, measured around it"));
  }
  for (const DecodeSpeed& d : report.decode) {
    speed.push_back(PointOf(d, SpeedWork::kDecode, d.ratio_of_bandwidth, "read bandwidth, measured around it"));
  }
  return speed;
}

Status WriteReport(const std::string& path, std::span<const ReportData> runs) { return WriteTextFile(path, RenderPage(runs)); }

Status WriteFigures(const std::string& directory, const ReportData& run, const std::string& prefix) {
  std::vector<std::string> written;
  for (const ReportFigure& figure : RenderFigures(run)) {
    const std::string path = (std::filesystem::path(directory) / (prefix + figure.name + ".svg")).string();
    if (Status status = WriteTextFile(path, figure.svg); !status.ok()) {
      std::error_code ignored;
      for (const std::string& other : written) std::filesystem::remove(other, ignored);
      return status;
    }
    written.push_back(path);
  }
  return {};
}

}  // namespace tally
