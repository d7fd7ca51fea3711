#include "tests/fakes/field_ownership.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace tidepool::fakes {

using kube::Json;

namespace {

// What tells the elements of a list apart, by the list's name. Lists not here
// are replaced as a whole.
const char* KeyOfList(std::string_view list) {
  if (list == "containers" || list == "initContainers" || list == "volumes" ||
      list == "env" || list == "imagePullSecrets" || list == "secrets")
    return "name";
  if (list == "volumeMounts") return "mountPath";
  if (list == "ownerReferences") return "uid";
  if (list == "conditions") return "type";
  if (list == "topologySpreadConstraints") return "topologyKey";
  if (list == "finalizers") return "";  // a set of texts
  return nullptr;
}

std::optional<std::string> ElementName(const char* key, const Json& element) {
  if (*key == '\0')
    return element.is_string() ? std::optional("[=" + element.dump() + "]")
                               : std::nullopt;
  if (!element.is_object() || !element.contains(key)) return std::nullopt;
  return "[" + std::string(key) + "=" + element.at(key).dump() + "]";
}

// The key of `list` if all its elements have it.
const char* KeyOf(std::string_view name, const Json& list) {
  const char* key = KeyOfList(name);
  if (key == nullptr) return nullptr;
  const bool all = std::ranges::all_of(list, [&](const Json& element) {
    return ElementName(key, element).has_value();
  });
  return all ? key : nullptr;
}

bool IsIdentity(const FieldPath& path) {
  static const FieldSet kIdentity = {{"apiVersion"},
                                     {"kind"},
                                     {"metadata", "name"},
                                     {"metadata", "namespace"},
                                     {"metadata", "resourceVersion"},
                                     {"metadata", "generation"},
                                     {"metadata", "creationTimestamp"},
                                     {"metadata", "deletionTimestamp"},
                                     {"metadata", "uid"}};
  return kIdentity.contains(path);
}

void Collect(const Json& value, FieldPath& path, FieldSet& fields) {
  if (IsIdentity(path)) return;
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, child] : value.items()) {
      path.push_back(name);
      Collect(child, path, fields);
      path.pop_back();
    }
    return;
  }
  const char* key = value.is_array() && !value.empty() && !path.empty()
                        ? KeyOf(path.back(), value)
                        : nullptr;
  if (key == nullptr) {
    if (!path.empty()) fields.insert(path);
    return;
  }
  for (const Json& element : value) {
    path.push_back(*ElementName(key, element));
    fields.insert(path);
    Collect(element, path, fields);
    path.pop_back();
  }
}

FieldSet FieldsOf(const Json& object) {
  FieldSet fields;
  FieldPath path;
  Collect(object, path, fields);
  return fields;
}

// The element of `list` that `name` names.
size_t FindElement(const Json& list, const std::string& list_name,
                   const std::string& name) {
  const char* key = KeyOfList(list_name);
  for (size_t i = 0; key != nullptr && i < list.size(); ++i)
    if (ElementName(key, list[i]) == name) return i;
  return list.size();
}

const Json* Find(const Json& object, const FieldPath& path) {
  const Json* at = &object;
  for (size_t i = 0; i < path.size(); ++i) {
    if (at->is_array()) {
      const size_t index = FindElement(*at, path[i - 1], path[i]);
      if (index == at->size()) return nullptr;
      at = &(*at)[index];
    } else {
      const auto it = at->is_object() ? at->find(path[i]) : at->end();
      if (!at->is_object() || it == at->end()) return nullptr;
      at = &*it;
    }
  }
  return at;
}

// Also takes away what is left empty around it.
void Erase(Json& at, const FieldPath& path, size_t depth) {
  const bool last = depth + 1 == path.size();
  if (at.is_array()) {
    const size_t index = FindElement(at, path[depth - 1], path[depth]);
    if (index == at.size()) return;
    if (!last) Erase(at[index], path, depth + 1);
    if (last || at[index].empty()) at.erase(index);
    return;
  }
  if (!at.is_object() || !at.contains(path[depth])) return;
  Json& child = at[path[depth]];
  if (!last) Erase(child, path, depth + 1);
  if (last || child.empty()) at.erase(path[depth]);
}

void Merge(Json& object, const Json& applied, const std::string& name) {
  if (object.is_object() && applied.is_object()) {
    for (const auto& [field, value] : applied.items()) {
      if (value.is_null()) continue;
      Merge(object[field], value, field);
    }
    return;
  }
  const char* key =
      applied.is_array() && object.is_array() ? KeyOf(name, applied) : nullptr;
  if (key == nullptr) {
    object = applied;
    return;
  }
  for (const Json& element : applied) {
    const size_t index = FindElement(object, name, *ElementName(key, element));
    if (index == object.size())
      object.push_back(element);
    else
      Merge(object[index], element, "");
  }
}

bool SameAt(const Json& a, const Json& b, const FieldPath& path) {
  const Json* left = Find(a, path);
  const Json* right = Find(b, path);
  if (left == nullptr || right == nullptr) return left == right;
  // Elements of keyed lists are compared by their own fields.
  if (path.back().starts_with("[")) return true;
  return *left == *right;
}

}  // namespace

bool FieldOwnership::OwnedByOthers(const std::string& manager,
                                   const FieldPath& path) const {
  return std::ranges::any_of(fields_, [&](const auto& entry) {
    if (entry.first == manager) return false;
    // An element stays while somebody has anything in it.
    const auto it = entry.second.lower_bound(path);
    return it != entry.second.end() && it->size() >= path.size() &&
           std::equal(path.begin(), path.end(), it->begin());
  });
}

Json FieldOwnership::Apply(const std::string& manager, const Json& object,
                           const Json& applied) {
  Json merged = object;
  Merge(merged, applied, "");
  const FieldSet now = FieldsOf(applied);
  for (auto& [other, fields] : fields_)
    if (other != manager)
      for (const FieldPath& path : now)
        if (!SameAt(object, merged, path)) fields.erase(path);
  FieldSet& mine = fields_[manager];
  for (const FieldPath& path : mine)
    if (!now.contains(path) && !OwnedByOthers(manager, path)) {
      // Not if it now holds fields of this apply.
      const auto it = now.lower_bound(path);
      const bool inside = it != now.end() && it->size() > path.size() &&
                          std::equal(path.begin(), path.end(), it->begin());
      if (!inside) Erase(merged, path, 0);
    }
  mine = now;
  return merged;
}

void FieldOwnership::Update(const std::string& manager, const Json& before,
                            const Json& after) {
  const FieldSet had = FieldsOf(before);
  const FieldSet has = FieldsOf(after);
  for (auto& [other, fields] : fields_)
    std::erase_if(fields, [&](const FieldPath& path) {
      return !SameAt(before, after, path);
    });
  for (const FieldPath& path : has)
    if (!had.contains(path) || !SameAt(before, after, path))
      fields_[manager].insert(path);
}

}  // namespace tidepool::fakes
