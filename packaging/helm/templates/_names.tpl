{{- define "weir.name" -}}
{{- if contains "weir" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-weir" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "weir.secret" -}}
{{- default (include "weir.name" .) .Values.apiKeySecret -}}
{{- end -}}

{{- define "weir.hosts" -}}
{{- $name := include "weir.name" . -}}
{{- $space := .Release.Namespace -}}
{{- $own := list $name (printf "%s.%s" $name $space) (printf "%s.%s.svc" $name $space) -}}
{{- $own = append $own (printf "%s.%s.svc.cluster.local" $name $space) -}}
{{- join "," (concat $own .Values.allowedHosts) -}}
{{- end -}}
