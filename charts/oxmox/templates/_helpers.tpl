{{- define "oxmox.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}

{{- define "oxmox.selector" -}}
app.kubernetes.io/name: oxmox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "oxmox.labels" -}}
{{ include "oxmox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
