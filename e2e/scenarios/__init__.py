"""User stories. Each module has a docstring that tells the story, and
`run(context)`, which returns what to print beside its name (figures), or None.

`fast` stories need an API server alone, `scale` simulated nodes; the others
a cluster with nodes. They run in this order: `install` brings the chart that
those after it use, `uninstall` takes it away.
"""

TIERS = {
    "fast": ["reconcile", "election"],
    "core": ["install", "claim", "scale", "kills", "rollout",
             "controller_upgrade", "drain", "node_lost", "api_away",
             "network_policy", "roles", "overload", "uninstall"],
    "full": ["autoscale", "api_away_long"],
    "scale": ["thousand_pools"],
}
# These stop programs of the cluster, signal containers or cut the network:
# only on our own.
LOCAL_ONLY = {"reconcile", "election", "claim", "kills", "node_lost",
              "api_away", "api_away_long", "network_policy",
              "autoscale", "thousand_pools"}
# These replace the conductor that a forwarded port leads to, or open more
# connections than it carries.
NEED_SERVICES = {"rollout", "drain", "overload"}
NEED_NEXT_IMAGE = {"rollout", "controller_upgrade"}
# In all others, a controller that was restarted has crashed.
KILL_CONTROLLERS = {"kills"}
