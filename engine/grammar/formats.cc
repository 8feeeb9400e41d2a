// SPDX-License-Identifier: Apache-2.0
// The grammars are those of the documents that JSON Schema names (2020-12, Validation, section 7.3): RFC 3339 for times, 4122 for uuid,
// 5321 for e-mail, 1123 for host names, 2673 and 4291 for addresses, 3986 for URIs, 6901 for JSON pointers. Days fit their months, leap
// years included; a second of 60 is one only where UTC may have it.
#include "engine/grammar/formats.h"

#include <algorithm>
#include <iterator>

namespace tally {
namespace {

#define TALLY_LEAP_YEAR R"((\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00))"
#define TALLY_DATE                                                                                                            \
  R"((\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|)" TALLY_LEAP_YEAR \
  R"(-02-29))"
#define TALLY_TIME R"((([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)|23:59:60(\.\d+)?[Zz]))"
#define TALLY_LABEL R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
#define TALLY_OCTET R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"
#define TALLY_IPV4 TALLY_OCTET R"((\.)" TALLY_OCTET R"(){3})"
#define TALLY_H16 R"([0-9A-Fa-f]{1,4})"
#define TALLY_LS32 R"(()" TALLY_H16 ":" TALLY_H16 "|" TALLY_IPV4 ")"
#define TALLY_IPV6                                                                                                               \
  "((" TALLY_H16 ":){6}" TALLY_LS32 "|::(" TALLY_H16 ":){5}" TALLY_LS32 "|(" TALLY_H16 ")?::(" TALLY_H16 ":){4}" TALLY_LS32      \
  "|((" TALLY_H16 ":){0,1}" TALLY_H16 ")?::(" TALLY_H16 ":){3}" TALLY_LS32 "|((" TALLY_H16 ":){0,2}" TALLY_H16 ")?::(" TALLY_H16 \
  ":){2}" TALLY_LS32 "|((" TALLY_H16 ":){0,3}" TALLY_H16 ")?::" TALLY_H16 ":" TALLY_LS32 "|((" TALLY_H16 ":){0,4}" TALLY_H16     \
  ")?::" TALLY_LS32 "|((" TALLY_H16 ":){0,5}" TALLY_H16 ")?::" TALLY_H16 "|((" TALLY_H16 ":){0,6}" TALLY_H16 ")?::)"
#define TALLY_ATEXT R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)"
#define TALLY_EMAIL                                                                                                     \
  "(" TALLY_ATEXT R"((\.)" TALLY_ATEXT R"()*|"([ !#-\[\]-~]|\\[ -~])*")@()" TALLY_LABEL R"((\.)" TALLY_LABEL R"()*|\[)" \
  "(" TALLY_IPV4 "|IPv6:" TALLY_IPV6 R"()\]))"
#define TALLY_PCHAR R"(([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}))"
#define TALLY_TAIL R"((\?()" TALLY_PCHAR R"(|[/?])*)?(#()" TALLY_PCHAR R"(|[/?])*)?)"
#define TALLY_AUTHORITY                                                  \
  R"((([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(\[()" TALLY_IPV6 \
  R"(|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:\d*)?)"
#define TALLY_PATH_ABEMPTY "(/" TALLY_PCHAR "*)*"
#define TALLY_URI                                                                                                                \
  R"([A-Za-z][A-Za-z0-9+.-]*:(//)" TALLY_AUTHORITY TALLY_PATH_ABEMPTY "|/(" TALLY_PCHAR "+" TALLY_PATH_ABEMPTY ")?|" TALLY_PCHAR \
  "+" TALLY_PATH_ABEMPTY "|)" TALLY_TAIL

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", TALLY_DATE},
    {"date-time", TALLY_DATE "[Tt]" TALLY_TIME},
    {"duration",
     R"(P((\d+D|\d+M(\d+D)?|\d+Y(\d+M(\d+D)?)?)(T(\d+S|\d+M(\d+S)?|\d+H(\d+M(\d+S)?)?))?|T(\d+S|\d+M(\d+S)?|\d+H(\d+M(\d+S)?)?)|\d+W))"},
    {"email", TALLY_EMAIL},
    {"hostname", "(?=.{1,253}$)" TALLY_LABEL R"((\.)" TALLY_LABEL ")*"},
    {"ipv4", TALLY_IPV4},
    {"ipv6", TALLY_IPV6},
    {"json-pointer", R"((/([^/~]|~[01])*)*)"},
    {"time", TALLY_TIME},
    {"uri", TALLY_URI},
    {"uuid", R"([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})"},
};

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> StringFormats() { return kFormats; }

std::string_view FormatPattern(std::string_view name) {
  const auto* const place = std::ranges::find(kFormats, name, &std::pair<std::string_view, std::string_view>::first);
  return place == std::end(kFormats) ? std::string_view() : place->second;
}

}  // namespace tally
