"""Fleets whose workers take the time of a stated performance."""

PERFORMANCE = """\
kv_capacity_tokens: 200000
prefill:
  base_seconds: 0.004
  seconds_per_token: {prefill}
decode:
  base_seconds: {decode}
  seconds_per_sequence: {sequence}
"""


def fleet(context, *, prefill_seconds_per_token, decode_base_seconds,
          decode_seconds_per_sequence=1e-4, spec=None, **options):
    """`spec` is of the KVCachePool, beside its engine."""
    namespace = context.namespace()
    context.cluster.apply({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "performance", "namespace": namespace},
        "data": {"perf-model.yaml": PERFORMANCE.format(
            prefill=prefill_seconds_per_token, decode=decode_base_seconds,
            sequence=decode_seconds_per_sequence)}})
    engine = {"type": "Emulated",
              "perfModelConfigMapRef": {"name": "performance"}}
    return context.fleet(namespace=namespace,
                         spec={"engine": engine, **(spec or {})}, **options)
