#include "controller/kube/resource_url.h"

#include <fmt/format.h>

namespace tidepool::kube::internal {
namespace {

bool IsUnreserved(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

// Dot segments would be taken out of the path on the way.
std::string Escaped(std::string_view text) {
  const bool dots = text == "." || text == "..";
  std::string escaped;
  for (const char character : text) {
    const auto c = static_cast<unsigned char>(character);
    if (IsUnreserved(c) && !dots) {
      escaped += character;
    } else {
      escaped += fmt::format("%{:02X}", c);
    }
  }
  return escaped;
}

}  // namespace

std::string ResourcePath(const ResourceType& type, std::string_view space,
                         std::string_view name, std::string_view subresource) {
  std::string path = type.group.empty()
                         ? fmt::format("/api/{}", type.version)
                         : fmt::format("/apis/{}/{}", type.group, type.version);
  if (type.namespaced && !space.empty())
    path += fmt::format("/namespaces/{}", Escaped(space));
  path += fmt::format("/{}", type.plural);
  if (!name.empty()) path += fmt::format("/{}", Escaped(name));
  if (!subresource.empty()) path += fmt::format("/{}", subresource);
  return path;
}

void AddQuery(std::string& url, std::string_view name, std::string_view value) {
  url += url.find('?') == std::string::npos ? '?' : '&';
  url += fmt::format("{}={}", name, Escaped(value));
}

}  // namespace tidepool::kube::internal
