// The kinds of objects that the controller and its tests read and write.
#pragma once

#include "controller/kube/client.h"

namespace tidepool::kube {

inline constexpr ResourceType kPod{"", "v1", "pods", "Pod"};
inline constexpr ResourceType kService{"", "v1", "services", "Service"};
inline constexpr ResourceType kSecret{"", "v1", "secrets", "Secret"};
inline constexpr ResourceType kConfigMap{"", "v1", "configmaps", "ConfigMap"};
inline constexpr ResourceType kServiceAccount{"", "v1", "serviceaccounts",
                                              "ServiceAccount"};
inline constexpr ResourceType kNode{"", "v1", "nodes", "Node", false};
inline constexpr ResourceType kNamespace{"", "v1", "namespaces", "Namespace",
                                         false};

inline constexpr ResourceType kDeployment{"apps", "v1", "deployments",
                                          "Deployment"};
inline constexpr ResourceType kStatefulSet{"apps", "v1", "statefulsets",
                                           "StatefulSet"};
inline constexpr ResourceType kPodDisruptionBudget{
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"};
inline constexpr ResourceType kNetworkPolicy{
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"};
inline constexpr ResourceType kIngress{"networking.k8s.io", "v1", "ingresses",
                                       "Ingress"};
inline constexpr ResourceType kHttpRoute{"gateway.networking.k8s.io", "v1",
                                         "httproutes", "HTTPRoute"};
inline constexpr ResourceType kLease{"coordination.k8s.io", "v1", "leases",
                                     "Lease"};
inline constexpr ResourceType kEvent{"events.k8s.io", "v1", "events", "Event"};
inline constexpr ResourceType kCustomResourceDefinition{
    "apiextensions.k8s.io", "v1", "customresourcedefinitions",
    "CustomResourceDefinition", false};

inline constexpr ResourceType kKVCachePool{"tidepool.dev", "v1alpha1",
                                           "kvcachepools", "KVCachePool"};
inline constexpr ResourceType kPrefillPool{"tidepool.dev", "v1alpha1",
                                           "prefillpools", "PrefillPool"};
inline constexpr ResourceType kDecodePool{"tidepool.dev", "v1alpha1",
                                          "decodepools", "DecodePool"};

}  // namespace tidepool::kube
