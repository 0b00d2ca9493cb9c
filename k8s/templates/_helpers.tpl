{{/* Prints the mode; `elastic` is the old name of `tasks`. */}}
{{- define "paddle.mode" -}}
{{ if eq .Values.mode "elastic" }}tasks{{ else }}{{ .Values.mode }}{{ end }}
{{- end }}

{{/* Prints a value as text: Helm reads a whole number of a values file as a float, whose own text may be 1e+06. */}}
{{- define "paddle.text" -}}
{{ if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}
