#include "dataplane/rpc/role_identity.h"

#include <algorithm>
#include <optional>

namespace tidepool::rpc {
namespace {

constexpr std::string_view kPrefix = "spiffe://tidepool/";
constexpr size_t kNameBytesMax = 253;
constexpr Component kComponents[] = {Component::kConductor, Component::kWorker,
                                     Component::kController};

// Also keeps what is written into a certificate free of separators.
bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '.';
         });
}

// The text before the next slash, which goes with it; nullopt without one.
std::optional<std::string_view> TakeSegment(std::string_view& rest) {
  const size_t slash = rest.find('/');
  if (slash == rest.npos) return std::nullopt;
  const std::string_view segment = rest.substr(0, slash);
  rest.remove_prefix(slash + 1);
  return segment;
}

}  // namespace

std::string_view NameOf(Component component) {
  switch (component) {
    case Component::kConductor:
      return "conductor";
    case Component::kWorker:
      return "worker";
    case Component::kController:
      return "controller";
  }
  return "unknown";
}

std::string RoleIdentity::ToUri() const {
  return fmt::format("{}{}/{}/{}", kPrefix, space, pool, NameOf(component));
}

StatusOr<RoleIdentity> RoleIdentity::Parse(std::string_view uri) {
  std::string_view rest = uri;
  if (rest.starts_with(kPrefix)) {
    rest.remove_prefix(kPrefix.size());
    const auto space = TakeSegment(rest);
    const auto pool = TakeSegment(rest);
    const auto component = std::ranges::find(kComponents, rest, &rpc::NameOf);
    if (space && pool && component != std::end(kComponents)) {
      RoleIdentity identity{.space = std::string(*space),
                            .pool = std::string(*pool),
                            .component = *component};
      if (Validate(identity).ok()) return identity;
    }
  }
  return InvalidArgument(
      "`{}` is no role: that looks like {}NAMESPACE/POOL/COMPONENT",
      uri.substr(0, 2 * kNameBytesMax), kPrefix);
}

Status Validate(const RoleIdentity& identity) {
  if (!IsName(identity.space))
    return InvalidArgument("namespace: `{}` is no name of Kubernetes",
                           identity.space);
  if (!IsName(identity.pool))
    return InvalidArgument("pool: `{}` is no name of Kubernetes",
                           identity.pool);
  return OkStatus();
}

}  // namespace tidepool::rpc
