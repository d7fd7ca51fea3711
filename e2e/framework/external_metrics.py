"""Serves one number to autoscalers by the API for external metrics, as
adapters of metric stores do: from a thread of this process, on node 1."""

import datetime
import http.server
import json
import math
import ssl
import threading

from .cluster import run

GROUP = "external.metrics.k8s.io/v1beta1"
SERVICE, SPACE, PORT = "external-metrics", "kube-system", 6553
NODE_ADDRESS = "10.77.0.11"


class ExternalMetrics:
    """`values` maps the names of metrics to functions that read them."""

    def __init__(self, cluster, folder, values):
        self._cluster, self._values = cluster, values
        certificate, key = folder / "metrics.crt", folder / "metrics.key"
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj",
            "/CN=external-metrics", "-keyout", key, "-out", certificate)
        self._server = http.server.ThreadingHTTPServer(
            (NODE_ADDRESS, PORT), self._handler())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        self._server.socket = tls.wrap_socket(self._server.socket,
                                              server_side=True)

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever,
                         daemon=True).start()
        try:
            self._cluster.apply(*manifests())
            self._cluster.kubectl("wait", "--for=condition=Available",
                                  "apiservice/v1beta1.external.metrics.k8s.io",
                                  "--timeout=30s")
        except BaseException:
            # While an APIService does not answer, no namespace can end.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._cluster.kubectl("delete", "--ignore-not-found", "apiservice",
                              "v1beta1.external.metrics.k8s.io")
        self._cluster.kubectl("-n", SPACE, "delete", "--ignore-not-found",
                              "service,endpointslice", SERVICE)
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path):
        parts = path.split("?")[0].strip("/").split("/")
        if len(parts) == 6:  # apis/GROUP/VERSION/namespaces/NAMESPACE/METRIC
            value = self._values[parts[-1]]()
            return {"kind": "ExternalMetricValueList", "apiVersion": GROUP,
                    "metadata": {}, "items": [{
                        "metricName": parts[-1], "metricLabels": {},
                        "value": f"{math.ceil(1000 * value)}m",
                        "timestamp": datetime.datetime.now(
                            datetime.timezone.utc).strftime(
                                "%Y-%m-%dT%H:%M:%SZ")}]}
        return {"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": GROUP, "resources": [
                    {"name": name, "namespaced": True, "singularName": "",
                     "kind": "ExternalMetricValueList", "verbs": ["get"]}
                    for name in self._values]}

    def _handler(self):
        answer = self._answer

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


def manifests():
    meta = {"name": SERVICE, "namespace": SPACE}
    group, version = GROUP.split("/")
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta,
         "spec": {"ports": [{"port": 443, "targetPort": PORT}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
         "metadata": {**meta,
                      "labels": {"kubernetes.io/service-name": SERVICE}},
         "addressType": "IPv4", "ports": [{"port": PORT}],
         "endpoints": [{"addresses": [NODE_ADDRESS]}]},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
         "metadata": {"name": f"{version}.{group}"},
         "spec": {"group": group, "version": version,
                  "groupPriorityMinimum": 100, "versionPriority": 100,
                  "insecureSkipTLSVerify": True,
                  "service": {"name": SERVICE, "namespace": SPACE}}}]
