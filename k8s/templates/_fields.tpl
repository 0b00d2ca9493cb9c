{{/* These templates change fields of an object. Each template changes its arguments in place and prints nothing. */}}

{{/* A strategic merge. Lists of objects with names are merged by name; those of the patch come first, as with kustomize.
     into: the object. from: the patch; null removes a field. */}}
{{- define "paddle.merge" -}}
{{- range $key, $new := .from }}
  {{- $old := get $.into $key }}
  {{- if and (kindIs "map" $new) (kindIs "map" $old) }}
    {{- include "paddle.merge" (dict "into" $old "from" $new) }}
  {{- else if kindIs "invalid" $new }}
    {{- $_ := unset $.into $key }}
  {{- else if and (kindIs "slice" $new) (kindIs "slice" $old) (eq "named" (include "paddle.listKind" (concat $old $new))) }}
    {{- $first := list }}
    {{- $names := list }}
    {{- range $item := $new }}
      {{- $merged := dict }}
      {{- range $old }}{{ if eq .name $item.name }}{{ $merged = . }}{{ end }}{{ end }}
      {{- include "paddle.merge" (dict "into" $merged "from" $item) }}
      {{- $first = append $first $merged }}
      {{- $names = append $names $item.name }}
    {{- end }}
    {{- range $old }}{{ if not (has .name $names) }}{{ $first = append $first . }}{{ end }}{{ end }}
    {{- $_ := set $.into $key $first }}
  {{- else if kindIs "map" $new }}
    {{- $_ := set $.into $key (deepCopy $new) }}
  {{- else }}
    {{- $_ := set $.into $key $new }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Prints "named" if all items of a list are objects with a name. */}}
{{- define "paddle.listKind" -}}
{{- $kind := "named" }}
{{- range . }}{{ if not (and (kindIs "map" .) (hasKey . "name")) }}{{ $kind = "plain" }}{{ end }}{{ end }}
{{- $kind }}
{{- end }}

{{/* A JSON patch whose paths have only names of fields. object; changes: the list of `op`, `path` and `value`. */}}
{{- define "paddle.changeFields" -}}
{{- range $change := .changes }}
  {{- $parts := list }}
  {{- range rest (splitList "/" $change.path) }}
    {{- $parts = append $parts (. | replace "~1" "/" | replace "~0" "~") }}
  {{- end }}
  {{- $node := $.object }}
  {{- range initial $parts }}
    {{- $node = get $node . }}
    {{- if not (kindIs "map" $node) }}{{ fail (printf "patch of %s: no field %s" $.object.kind $change.path) }}{{ end }}
  {{- end }}
  {{- if eq $change.op "remove" }}
    {{- $_ := unset $node (last $parts) }}
  {{- else }}
    {{- $_ := set $node (last $parts) $change.value }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Follows a field path of kustomize, such as spec.template.spec.containers.[name=trainer].image, to the object around
     the last field. object; path; found: receives `node` and `key`, if the path exists. */}}
{{- define "paddle.find" -}}
{{- $parts := splitList "." .path }}
{{- $node := .object }}
{{- range initial $parts }}
  {{- $part := . }}
  {{- $next := dict }}
  {{- if hasPrefix "[" $part }}
    {{- $pair := splitn "=" 2 (trimAll "[]" $part) }}
    {{- if kindIs "slice" $node }}
      {{- range $node }}{{ if eq (toString (get . $pair._0)) $pair._1 }}{{ $_ := set $next "node" . }}{{ end }}{{ end }}
    {{- end }}
  {{- else if kindIs "map" $node }}
    {{- $_ := set $next "node" (get $node $part) }}
  {{- end }}
  {{- $node = get $next "node" }}
{{- end }}
{{- if kindIs "map" $node }}
  {{- $_ := set .found "node" $node }}
  {{- $_ := set .found "key" (last $parts) }}
{{- end }}
{{- end }}
