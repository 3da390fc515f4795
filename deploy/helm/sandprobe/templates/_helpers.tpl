{{- define "sandprobe.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sandprobe.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sandprobe.labels" -}}
{{ include "sandprobe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sandprobe.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sandprobe.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* Of what belongs to no namespace: another release may have the same name. */ -}}
{{- define "sandprobe.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "sandprobe.fullname" .) }}
{{- end -}}

{{- define "sandprobe.secret" -}}
{{- default (printf "%s-server" (include "sandprobe.fullname" .)) .Values.server.existingSecret -}}
{{- end -}}

{{- define "sandprobe.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Where it listens: the node's network has the port on every node, a network of its own only in the pod. */ -}}
{{- define "sandprobe.listen" -}}
{{- if eq .Values.server.mode "local" -}}127.0.0.1{{- else -}}{{ .Values.server.address }}{{- end -}}:{{ .Values.server.port }}
{{- end -}}

{{- define "sandprobe.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .root.Values.server.port }}
  scheme: {{ ternary "HTTPS" "HTTP" (eq .root.Values.server.mode "tls") }}
  {{- if .root.Values.hostNetwork }}
  host: 127.0.0.1
  {{- end }}
{{- end -}}

{{- /* How Prometheus reaches and knows it. */ -}}
{{- define "sandprobe.endpoint" -}}
port: http
path: /metrics
{{- if eq .Values.server.mode "tls" }}
scheme: https
authorization:
  credentials:
    name: {{ include "sandprobe.secret" . }}
    key: token
tlsConfig:
  serverName: sandprobe
  ca:
    secret:
      name: {{ include "sandprobe.secret" . }}
      key: ca.crt
{{- end }}
{{- end -}}

{{- define "sandprobe.relabelings" -}}
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
{{- end -}}

{{- /* A volume's name for a directory of the node. */ -}}
{{- define "sandprobe.volume" -}}
host{{ regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trunc 58 | trimSuffix "-" }}
{{- end -}}

{{- /* A pod that removes the hooks of its node once the agent has ended, and stays for a while. */ -}}
{{- define "sandprobe.detach" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
hostPID: true
hostNetwork: true
terminationGracePeriodSeconds: 1
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: detach
    image: {{ include "sandprobe.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: [detach, --wait, --linger={{ .lingers }}]
    # Ready is a pod whose node has no hooks any more. While the agent has them, this fails.
    readinessProbe:
      exec: {command: [/sandprobe, detach]}
      periodSeconds: 5
      timeoutSeconds: 5
    resources:
      requests: {cpu: 5m, memory: 16Mi}
      limits: {memory: 64Mi}
    securityContext:
      # The folder is root's.
      runAsUser: 0
      runAsGroup: 0
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities:
        drop: [ALL]
      {{- with .root.Values.seccompProfile }}
      seccompProfile: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.seLinuxOptions }}
      seLinuxOptions: {{- toYaml . | nindent 8 }}
      {{- end }}
    volumeMounts:
      - name: bpf
        mountPath: /sys/fs/bpf
volumes:
  - name: bpf
    hostPath:
      path: /sys/fs/bpf
      type: Directory
{{- end -}}

{{- /* A policy for what RBAC cannot say: "of its own node". A token that is taken from one node is of no use for another. */ -}}
{{- define "sandprobe.ownNodeOnly" -}}
{{- $name := printf "%s-%s" (include "sandprobe.clusterName" .root) .what -}}
# An agent writes about the node alone on which it runs, which its token names.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels: {{- include "sandprobe.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [{{ .operations }}]
        resources: [{{ .resource }}]
  matchConditions:
    - name: is-sandprobe
      expression: >-
        request.userInfo.username ==
        "system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "sandprobe.serviceAccount" .root }}"
  variables:
    - name: nodes
      expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"].orValue([])
  validations:
    {{- range .validations }}
    - reason: Forbidden
      message: {{ .message }}
      expression: >-
        {{- .expression | nindent 8 }}
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels: {{- include "sandprobe.labels" .root | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end }}
{{/* Only who sends to a receiver has to find Services by their names. */}}
{{- define "sandprobe.dnsPolicy" -}}
{{- if not .Values.otlp.endpoint -}}
Default
{{- else if .Values.hostNetwork -}}
ClusterFirstWithHostNet
{{- else -}}
ClusterFirst
{{- end -}}
{{- end -}}

{{- define "sandprobe.otlpPort" -}}
{{- $host := regexReplaceAll "^https?://([^/]*).*$" .Values.otlp.endpoint "${1}" -}}
{{- $port := regexFind ":[0-9]+$" $host | trimPrefix ":" -}}
{{- default (ternary "443" "80" (hasPrefix "https:" .Values.otlp.endpoint)) $port -}}
{{- end -}}
