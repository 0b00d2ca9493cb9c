{{/* These templates change fields of an object. Each template changes its arguments in place and prints nothing. */}}

{{/* A strategic merge. Lists of mounts are merged by path, and other lists of objects with names by name; those of the
     patch come first, as with kustomize.
     into: the object. from: the patch; null removes a field. */}}
{{- define "paddle.merge" -}}
{{- range $key, $new := .from }}
  {{- $old := get $.into $key }}
  {{- if and (kindIs "map" $new) (kindIs "map" $old) }}
    {{- include "paddle.merge" (dict "into" $old "from" $new) }}
  {{- else if kindIs "invalid" $new }}
    {{- $_ := unset $.into $key }}
  {{- else if and (kindIs "slice" $new) (kindIs "slice" $old) (include "paddle.listKey" (concat $old $new)) }}
    {{- $field := include "paddle.listKey" (concat $old $new) }}
    {{- $first := list }}
    {{- $names := list }}
    {{- range $item := $new }}
      {{- $merged := dict }}
      {{- range $old }}{{ if eq (get . $field) (get $item $field) }}{{ $merged = . }}{{ end }}{{ end }}
      {{- include "paddle.merge" (dict "into" $merged "from" $item) }}
      {{- $first = append $first $merged }}
      {{- $names = append $names (get $item $field) }}
    {{- end }}
    {{- range $old }}{{ if not (has (get . $field) $names) }}{{ $first = append $first . }}{{ end }}{{ end }}
    {{- $_ := set $.into $key $first }}
  {{- else if kindIs "map" $new }}
    {{- $_ := set $.into $key (deepCopy $new) }}
  {{- else }}
    {{- $_ := set $.into $key $new }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Prints the field by which the items of a list are known, or nothing if some item has no such field. */}}
{{- define "paddle.listKey" -}}
{{- $found := "" }}
{{- range $field := list "name" "mountPath" }}
  {{- $all := true }}
  {{- range $ }}{{ if not (and (kindIs "map" .) (hasKey . $field)) }}{{ $all = false }}{{ end }}{{ end }}
  {{- if $all }}{{ $found = $field }}{{ end }}
{{- end }}
{{- $found }}
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

{{/* Follows a field path of kustomize, such as spec.template.spec.containers.[name=trainer].image, to the objects around
     the last field. object; path; found: receives `nodes`, the objects that have the field, and `key`. */}}
{{- define "paddle.find" -}}
{{- $parts := splitList "." .path }}
{{- $nodes := list .object }}
{{- range $part := initial $parts }}
  {{- $next := list }}
  {{- range $node := $nodes }}
    {{- if hasPrefix "[" $part }}
      {{- $pair := splitn "=" 2 (trimAll "[]" $part) }}
      {{- range $node }}{{ if eq (toString (get . $pair._0)) $pair._1 }}{{ $next = append $next . }}{{ end }}{{ end }}
    {{- else if kindIs "slice" $node }}
      {{- if lt (int $part) (len $node) }}{{ $next = append $next (index $node (int $part)) }}{{ end }}
    {{- else if hasKey $node $part }}
      {{- $next = append $next (get $node $part) }}
    {{- end }}
  {{- end }}
  {{- $nodes = $next }}
{{- end }}
{{- $_ := set .found "nodes" $nodes }}
{{- $_ := set .found "key" (last $parts) }}
{{- end }}
