#include "dataplane/conductor/membership.h"

#include <algorithm>
#include <set>

namespace tidepool::conductor {

bool Membership::IsKnown(const std::string& address) const {
  return std::ranges::any_of(members_, [&](const auto& entry) {
    return entry.second.contains(address);
  });
}

Membership::Change Membership::OnAnswer(
    size_t source, std::vector<std::string> addresses,
    const std::function<bool(std::string_view)>& has_session) {
  std::ranges::sort(addresses);
  addresses.erase(std::unique(addresses.begin(), addresses.end()),
                  addresses.end());
  if (addresses.size() > max_members_) addresses.resize(max_members_);

  Change change;
  for (const std::string& address : addresses) {
    if (!IsKnown(address)) change.added.push_back(address);
    members_[source][address] = 0;
  }
  std::map<std::string, uint32_t>& known = members_[source];
  for (auto next = known.begin(); next != known.end();) {
    const auto member = next++;
    if (std::ranges::binary_search(addresses, member->first)) continue;
    member->second = std::min(member->second + 1, kAbsencesMax);
    if (member->second < kAbsencesMax || has_session(member->first)) continue;
    const std::string address = member->first;
    known.erase(member);
    if (!IsKnown(address)) change.removed.push_back(address);
  }
  return change;
}

void Membership::Forget(const std::string& address) {
  for (auto& [source, known] : members_) known.erase(address);
}

size_t Membership::size() const {
  std::set<std::string_view> all;
  for (const auto& [source, known] : members_)
    for (const auto& [address, absences] : known) all.insert(address);
  return all.size();
}

}  // namespace tidepool::conductor
