"""User stories. Each module has a docstring that tells the story, and
`run(context)`, which returns what to print beside its name (figures), or None.

`fast` stories need an API server alone; the others a cluster with nodes. They
run in this order: `install` brings the chart that those after it use,
`uninstall` takes it away.
"""

TIERS = {
    "fast": ["schema"],
    "core": ["install", "claim", "scale", "uninstall"],
    "full": [],
}
# These stop programs of the cluster or cut its network: only on our own.
LOCAL_ONLY = set()
