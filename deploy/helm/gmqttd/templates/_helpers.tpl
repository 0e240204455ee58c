{{- define "gmqttd.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gmqttd.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gmqttd.labels" -}}
{{ include "gmqttd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The configuration of a node: `config`, with what other values say. */}}
{{- define "gmqttd.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.nodeTls.secret -}}
{{- $tls := dict "cert" "/etc/gmqtt/nodes/${POD_NAME}.pem" "key" "/etc/gmqtt/nodes/${POD_NAME}.key" "cacert" "/etc/gmqtt/nodes/ca.pem" "addr" ":8903" "advertise_addr" "${POD_IP}:8903" -}}
{{- $config = merge (dict "plugins" (dict "federation" (dict "tls" $tls "require_tls" true))) $config -}}
{{- end -}}
{{- if .Values.gossipKeys.secret -}}
{{- $config = merge (dict "plugins" (dict "federation" (dict "keyring_file" "/var/lib/gmqttd/keyring"))) $config -}}
{{- end -}}
{{- tpl (toYaml $config) . -}}
{{- end -}}
