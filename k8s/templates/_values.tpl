{{/* These templates apply the values to the objects of the mode's kustomization. Each template changes the state in place. */}}

{{/* Makes the last changes. job: the state (_kustomize.tpl). values: the chart's values. */}}
{{- define "paddle.finish" -}}
{{- include "paddle.addConfigMap" .job }}
{{- include "paddle.leaveOut" . }}
{{- range $object := .job.objects }}
  {{- $pod := dig "spec" "template" "spec" dict $object }}
  {{- range concat (get $pod "initContainers" | default list) (get $pod "containers" | default list) }}
    {{- if hasPrefix "REPO/paddle:" .image }}
      {{- $_ := set . "image" (print $.values.image.repository ":" $.values.image.tag) }}
    {{- else if hasPrefix "REPO/etcd:" .image }}
      {{- $_ := set . "image" (print $.values.etcdImage.repository ":" $.values.etcdImage.tag) }}
    {{- end }}
    {{- $env := list }}
    {{- range $name, $value := get (dict "paddle-data" $.values.data.env "trainer" $.values.training.env) .name | default dict }}
      {{- $env = append $env (dict "name" $name "value" (include "paddle.text" $value)) }}
    {{- end }}
    {{- if $env }}{{ include "paddle.merge" (dict "into" . "from" (dict "env" $env)) }}{{ end }}
  {{- end }}
{{- end }}
{{- range .values.patches }}
  {{- include "paddle.patch" (dict "job" $.job "target" .target "patch" .patch) }}
{{- end }}
{{- if .job.namespace }}{{ include "paddle.setNamespace" (dict "job" .job) }}{{ end }}
{{- end }}

{{/* Adds the ConfigMap of the settings, if objects other than kustomize use it. */}}
{{- define "paddle.addConfigMap" -}}
{{- $options := .generator.options | default dict }}
{{- if not (dig "annotations" "config.kubernetes.io/local-config" "" $options) }}
  {{- $metadata := dict "name" .generator.name "labels" $options.labels }}
  {{- $map := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" $metadata "data" .settings }}
  {{- $_ := set . "objects" (append .objects $map) }}
{{- end }}
{{- end }}

{{/* Removes the data Job if data.enabled is false, and the training if training.enabled is false. job; values. */}}
{{- define "paddle.leaveOut" -}}
{{- $kept := list }}
{{- range .job.objects }}
  {{- $component := get .metadata.labels "app.kubernetes.io/component" }}
  {{- $isKept := $.values.training.enabled }}
  {{- if eq $component "data" }}{{ $isKept = $.values.data.enabled }}{{ end }}
  {{- if has $component (list "access" "volume") }}{{ $isKept = true }}{{ end }}
  {{- if $isKept }}{{ $kept = append $kept . }}{{ end }}
{{- end }}
{{- $_ := set .job "objects" $kept }}
{{- end }}

{{/* Prints a value as text: Helm reads a whole number of a values file as a float, whose own text may be 1e+06. */}}
{{- define "paddle.text" -}}
{{ if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}
