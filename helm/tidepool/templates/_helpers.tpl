{{/* What every object is called, a suffix apart. One controller in a cluster or
namespace is enough, so the release's name is in labels only. */}}
{{- define "tidepool.name" -}}tidepool-controller{{- end }}

{{- define "tidepool.selector" -}}
app.kubernetes.io/name: tidepool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "tidepool.commonLabels" -}}
app.kubernetes.io/name: tidepool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tidepool.labels" -}}
{{ include "tidepool.commonLabels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "tidepool.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The namespace that is looked after; empty for all. */}}
{{- define "tidepool.watchNamespace" -}}
{{ get .Values.flags "watch-namespace" }}
{{- end }}

{{/* Where the sample and the fleet of `helm test` are. */}}
{{- define "tidepool.fleetNamespace" -}}
{{ include "tidepool.watchNamespace" . | default .Release.Namespace }}
{{- end }}

{{/* Flags as arguments, in the order of their names. */}}
{{- define "tidepool.arguments" -}}
{{- $flags := .Values.flags | deepCopy }}
{{- if not (get $flags "image-repository") }}
{{- $_ := set $flags "image-repository" .Values.image.repository }}
{{- end }}
{{- range $name := keys $flags | sortAlpha }}
{{- $value := get $flags $name }}
{{- if not (and (kindIs "string" $value) (empty $value)) }}
- {{ printf "--%s=%s" $name (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidepool.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tidepool.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where the pods of this chart may run, and what they are pulled with. */}}
{{- define "tidepool.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* The spec of a pod that runs one of the controller's checks with its rights:
`root`, and `check`, the flag's name. */}}
{{- define "tidepool.checkPod" -}}
{{- $root := .root -}}
restartPolicy: Never
serviceAccountName: {{ include "tidepool.name" $root }}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  {{- include "tidepool.podSecurity" $root | nindent 2 }}
{{- include "tidepool.placement" $root }}
containers:
- name: check
  image: {{ include "tidepool.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [/usr/bin/tidepool-controller]
  args:
  - --{{ .check }}
  {{- with include "tidepool.watchNamespace" $root }}
  - --watch-namespace={{ . }}
  {{- end }}
  resources:
    requests:
      cpu: 50m
      memory: 64Mi
    limits:
      memory: 64Mi
  securityContext:
    {{- include "tidepool.containerSecurity" $root | nindent 4 }}
  # What it says shows in the pod's status, too.
  terminationMessagePolicy: FallbackToLogsOnError
{{- end }}
