{{/* These templates replace kustomize for the features that k8s/ uses. `job` is the state: root, dir, objects, settings, components, namespace.
     Each template changes the state in place and prints nothing. */}}

{{/* Adds the objects of a file. job; path: in the chart. */}}
{{- define "paddle.addFile" -}}
{{- $text := .job.root.Files.Get (clean .path) }}
{{- if not $text }}{{ fail (printf "the chart has no file %s" (clean .path)) }}{{ end }}
{{- $objects := .job.objects }}
{{- range regexSplit "(?m)^---$" $text -1 }}
  {{- $object := fromYaml . }}
  {{- if hasKey $object "Error" }}{{ fail (printf "%s: %s" $.path $object.Error) }}{{ end }}
  {{- if $object }}{{ $objects = append $objects $object }}{{ end }}
{{- end }}
{{- $_ := set .job "objects" $objects }}
{{- end }}

{{/* Applies one patch to the objects that it selects. job; target; patch: an object, or the text of a patch. */}}
{{- define "paddle.patch" -}}
{{- $merge := .patch }}
{{- $changes := list }}
{{- if kindIs "string" .patch }}
  {{- $changes = fromYamlArray .patch }}
  {{- if kindIs "string" (first $changes) }}{{ $changes = list }}{{ end }}
  {{- $merge = ternary dict (fromYaml .patch) (not (empty $changes)) }}
{{- end }}
{{- $target := .target | default (dict "kind" $merge.kind "name" (dig "metadata" "name" "" $merge)) }}
{{- $kept := list }}
{{- range $object := .job.objects }}
  {{- $isChosen := true }}
  {{- if and $target.kind (ne $target.kind $object.kind) }}{{ $isChosen = false }}{{ end }}
  {{- if and $target.name (ne $target.name $object.metadata.name) }}{{ $isChosen = false }}{{ end }}
  {{- if $target.labelSelector }}
    {{- $pair := splitn "=" 2 $target.labelSelector }}
    {{- if ne (get ($object.metadata.labels | default dict) $pair._0) $pair._1 }}{{ $isChosen = false }}{{ end }}
  {{- end }}
  {{- if and $isChosen (eq (get $merge "$patch") "delete") }}{{ continue }}{{ end }}
  {{- if $isChosen }}
    {{- include "paddle.changeFields" (dict "object" $object "changes" $changes) }}
    {{- include "paddle.merge" (dict "into" $object "from" $merge) }}
  {{- end }}
  {{- $kept = append $kept $object }}
{{- end }}
{{- $_ := set .job "objects" $kept }}
{{- end }}

{{/* Adds the settings of a kustomization's ConfigMap generators, `NAME=VALUE`. job; kustomization. */}}
{{- define "paddle.addSettings" -}}
{{- range .kustomization.configMapGenerator }}
  {{- $_ := set $.job "generator" (get $.job "generator" | default .) }}
  {{- range .literals }}
    {{- $pair := splitn "=" 2 . }}
    {{- $_ := set $.job.settings $pair._0 $pair._1 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Adds a component: its objects, settings, patches and namespace; its replacements follow later. job; name. */}}
{{- define "paddle.addComponent" -}}
{{- $offered := regexFindAll "(?m)^#  - (\\.\\./)?components/\\S+" (.job.root.Files.Get (clean (print .job.dir "/kustomization.yaml"))) -1 }}
{{- $line := "" }}
{{- $names := list }}
{{- range $offered }}
  {{- $names = append $names (base .) }}
  {{- if eq (base .) $.name }}{{ $line = trimPrefix "#  - " . }}{{ end }}
{{- end }}
{{- if not $line }}{{ fail (printf "components: %s has none of the name %s; it has %s" .job.mode .name (join ", " $names)) }}{{ end }}
{{- $dir := clean (print .job.dir "/" $line) }}
{{- $kustomization := fromYaml (.job.root.Files.Get (print $dir "/kustomization.yaml")) }}
{{- range $kustomization.resources }}{{ include "paddle.addFile" (dict "job" $.job "path" (print $dir "/" .)) }}{{ end }}
{{- include "paddle.addSettings" (dict "job" .job "kustomization" $kustomization) }}
{{- range $kustomization.patches }}
  {{- include "paddle.patch" (dict "job" $.job "target" .target "patch" .patch) }}
{{- end }}
{{- if $kustomization.namespace }}{{ $_ := set .job "namespace" $kustomization.namespace }}{{ end }}
{{- $_ := set .job "components" (append .job.components $kustomization) }}
{{- end }}

{{/* Copies the settings to the fields that the kustomization's replacements name. job; kustomization. */}}
{{- define "paddle.replace" -}}
{{- range $replacement := .kustomization.replacements }}
  {{- $value := get $.job.settings (trimPrefix "data." $replacement.source.fieldPath) }}
  {{- range $target := $replacement.targets }}
    {{- range $object := $.job.objects }}
      {{- if and (eq $object.kind $target.select.kind) (eq $object.metadata.name $target.select.name) }}
        {{- range $target.fieldPaths }}
          {{- $found := dict }}
          {{- include "paddle.find" (dict "object" $object "path" . "found" $found) }}
          {{- if not $found.nodes }}{{ fail (printf "%s %s has no field %s" $object.kind $object.metadata.name .) }}{{ end }}
          {{- range $found.nodes }}
            {{- $old := get . $found.key }}
            {{- $new := ternary $value (int $value) (kindIs "string" $old) }}
            {{- with $target.options }}
              {{- $parts := list }}
              {{- range $number, $part := splitList .delimiter $old }}
                {{- $parts = append $parts (ternary $value $part (eq $number (int $target.options.index))) }}
              {{- end }}
              {{- $new = join .delimiter $parts }}
            {{- end }}
            {{- $_ := set . $found.key $new }}
          {{- end }}
        {{- end }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Sets the namespace of all objects that have one, and of the accounts that a RoleBinding names. job */}}
{{- define "paddle.setNamespace" -}}
{{- $clusterWide := list "Namespace" "PersistentVolume" "PriorityClass" }}
{{- range $object := .job.objects }}
  {{- if not (has $object.kind $clusterWide) }}{{ $_ := set $object.metadata "namespace" $.job.namespace }}{{ end }}
  {{- range $object.subjects }}{{ $_ := set . "namespace" $.job.namespace }}{{ end }}
{{- end }}
{{- end }}
