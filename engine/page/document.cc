// SPDX-License-Identifier: Apache-2.0
#include "engine/page/document.h"

#include "engine/page/style.h"
#include "engine/page/svg.h"

namespace tally::page {
namespace {

// Nothing is fetched, whatever a name in the page holds.
constexpr std::string_view kHead =
    "<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<link rel=\"icon\" href=\"data:,\">\n";

std::string Paragraph(const std::string& text, std::string_view css_class = {}) {
  return "<p" + (css_class.empty() ? "" : " class=\"" + std::string(css_class) + "\"") + ">" + Escape(text) + "</p>\n";
}

std::string HeaderHtml(const Document& document) {
  std::string out = "<header>\n<h1>" + Escape(document.title) + "</h1>\n";
  for (const std::string& verdict : document.verdicts) out += Paragraph(verdict, document.bad ? "verdict bad" : "verdict");
  for (const std::string& fact : document.facts) out += Paragraph(fact, "fact");
  if (!document.headlines.empty()) out += "<dl class=\"headline\">\n";
  for (const Headline& h : document.headlines) {
    out += "<div><dt>" + Escape(h.name) + "</dt><dd>" + Escape(h.value) + "</dd>";
    if (!h.note.empty()) out += "<dd>" + Escape(h.note) + "</dd>";
    out += "</div>\n";
  }
  if (!document.headlines.empty()) out += "</dl>\n";
  out += "<nav aria-label=\"Sections\"><ul>\n";
  for (const Section& s : document.sections) out += "<li><a href=\"#" + Escape(s.id) + "\">" + Escape(s.title) + "</a></li>\n";
  return out + "</ul></nav>\n</header>\n";
}

std::string SectionHtml(const Section& section) {
  const std::string heading = Escape(section.id) + "-title";
  std::string out = "<section id=\"" + Escape(section.id) + "\" aria-labelledby=\"" + heading + "\"";
  out +=
      std::string(section.full ? " class=\"full\"" : "") + ">\n<h2 id=\"" + heading + "\">" + Escape(section.title) + "</h2>\n";
  for (const std::string& paragraph : section.paragraphs) out += Paragraph(paragraph);
  const bool several = section.blocks.size() > 1;
  if (several) out += "<div class=\"pair\">\n";
  for (const Block& block : section.blocks) {
    out += "<div>\n";
    if (!block.run.empty()) out += "<h3>" + Escape(block.run) + "</h3>\n";
    out += block.html + "</div>\n";
  }
  return out + (several ? "</div>\n" : "") + "</section>\n";
}

}  // namespace

std::string DocumentHtml(const Document& document) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n" + document.generator + "\n" + std::string(kHead) + "<title>" +
                    Escape(document.title) + "</title>\n<style>\n" + PageCss() + "</style>\n</head>\n<body" +
                    (document.compare ? " class=\"compare\"" : "") + ">\n" + HeaderHtml(document) + "<main>\n";
  for (const Section& section : document.sections) out += SectionHtml(section);
  return out + "</main>\n<footer class=\"note\">" + Escape(document.footer) + "</footer>\n<script>\n" +
         std::string(PageScript()) + "</script>\n</body>\n</html>\n";
}

}  // namespace tally::page
